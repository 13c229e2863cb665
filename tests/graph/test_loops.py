"""Loops that are written out, recursion that becomes loops, dimensions that become numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tilewright as tw
from tests.graph.random_graphs import inputs, modules
from tilewright.graph import (
    Builder,
    CallFunction,
    Loop,
    Module,
    PassContext,
    PassVerifier,
    Step,
    Value,
    all_graphs,
    evaluate,
    parse_module,
    run_passes,
    verify,
)
from tilewright.graph.passes import (
    constant_folding,
    dead_code,
    inline_functions,
    tail_recursion,
    unroll_loops,
)

STEPS = [Step(inline_functions), Step(constant_folding), Step(unroll_loops), Step(constant_folding)]


def changed(module: Module, *steps: Step) -> Module:
    with PassContext(instruments=[PassVerifier()]):
        return run_passes(module, steps)


def count(module: Module, kind: type) -> int:
    return sum(
        isinstance(b.expr, kind)
        for f in module.functions.values()
        for g in all_graphs(f)
        for b in g.body
    )


@settings(max_examples=60, deadline=None)
@given(modules())
def test_unrolling_keeps_the_meaning(module: Module) -> None:
    unrolled = changed(module, *STEPS)
    for flag in (True, False):
        given_inputs = inputs(flag=flag)
        with np.errstate(all="ignore"):
            expected = evaluate(module, given_inputs)
            got = evaluate(unrolled, given_inputs)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_state_and_rows(trips: int) -> None:
    b = Builder()
    x = b.input("x", "f32", (2, 3))
    state, rows = b.loop(trips, [x], lambda i, s: ([s * b.cast(i, dtype="f32") + 1.0], [b.exp(s)]))
    b.output(state, rows)
    module = b.build()
    unrolled = changed(module, *STEPS)
    assert count(unrolled, Loop) == 0
    x_array = np.random.default_rng(0).random((2, 3), dtype="f4")
    for a, c in zip(evaluate(unrolled, [x_array]), evaluate(module, [x_array]), strict=True):
        np.testing.assert_array_equal(a, c)


def test_a_state_that_grows_gets_numbers_for_its_shape() -> None:
    b = Builder()
    x = b.input("x", "f32", (2, 3))
    b.output(b.loop(3, [x], lambda _i, s: [b.concat(s, x, axis=0)]))
    module = b.build()
    assert not module.main.results[0].tensor.is_static
    unrolled = changed(module, *STEPS, Step(dead_code))
    assert unrolled.main.results[0].tensor.static_shape == (8, 3)


def test_rows_of_as_many_iterations_as_a_decomposition_finds() -> None:
    """Where `non_zero` is decomposed, the number that it finds gets another name."""
    b = Builder()
    x = b.input("x", "f32", (6,))
    trips = b.index(b.shape_of(b.non_zero(x)), 1)
    state, rows = b.loop(trips, [x], lambda i, s: ([s + 1.0], [b.exp(s)]))
    b.output(state, rows)
    model = tw.compile(b.build())
    given_x = np.array([0, 1, 0, 2, -1, 0], np.float32)
    state, rows = model.run([given_x])
    np.testing.assert_allclose(state, given_x + 3)
    np.testing.assert_allclose(rows, [np.exp(given_x + k) for k in range(3)], rtol=1e-6)


def test_rows_of_a_loop_that_ends_long_before_its_limit() -> None:
    b = Builder()
    x = b.input("x", "f32", ("n",))

    def body(_i: Value, s: Value) -> Any:
        return b.less(b.max(s, axes=None, keepdims=False), 10.0), [s * 2.0], [s]

    state, rows = b.loop(2**63 - 1, [x], body)
    b.output(state, rows)
    state, rows = tw.compile(b.build()).run([np.array([1, 2, 3], np.float32)])
    np.testing.assert_array_equal(state, [8, 16, 24])
    np.testing.assert_array_equal(rows, [[1, 2, 3], [2, 4, 6], [4, 8, 12]])


def test_what_may_end_early_or_is_long_stays() -> None:
    b = Builder()
    x = b.input("x", "f32", (3,))

    def body(_i: Value, s: Value) -> Any:
        return b.less(b.sum(s, axes=None, keepdims=False), 10.0), [s * 2.0], []

    b.output(b.loop(5, [x], body), b.loop(1000, [x], lambda _i, s: [s * 1.5]))
    assert count(changed(b.build(), *STEPS), Loop) == 2
    b = Builder()
    x = b.input("x", "f32", (3,))
    b.output(b.loop(1, [x], body))
    assert count(changed(b.build(), *STEPS), Loop) == 0


def test_a_limit_can_be_set() -> None:
    b = Builder()
    x = b.input("x", "f32", (3,))
    b.output(b.loop(4, [x], lambda _i, s: [b.tanh(s * 2.0)]))
    module = b.build()
    with PassContext(options={"unroll_limit": 7}):
        assert unroll_loops(module) is module
    assert unroll_loops(module) is not module


def test_a_dimension_that_turns_out_to_be_a_number_is_one_everywhere() -> None:
    text = """
def main(x: f32[6, 2]):
    s = add(i64([1, 2]), i64([1, 2]))
    n, m = read(s)
    y = reshape(x, shape=[n, -1])
    z = exp(y)
    w = slice(z, starts=[0], ends=[m], axes=[1])
    return w
"""
    module = parse_module(text)
    verify(module)
    folded = changed(module, Step(constant_folding), Step(dead_code))
    assert folded.main.results[0].tensor.static_shape == (2, 4)
    assert "read" not in str(folded)


# ---- recursion ----------------------------------------------------------------------------------

SUM = """
def total(n: i64[()], s: f32[3]) -> f32[3]:
    c = greater(n, i64(0))
    def then():
        m = sub(n, i64(1))
        t = add(s, s)
        r: f32[3] = call(total, m, t)
        return r
    def otherwise():
        u = add(s, f32(1.0))
        return u
    y = branch(c, then, otherwise)
    return y
def main(n: i64[()], x: f32[3]):
    y: f32[3] = call(total, n, x)
    return y
"""


@pytest.mark.parametrize("turned", [False, True])
def test_tail_calls_become_loops(turned: bool) -> None:
    text = SUM
    if turned:
        text = text.replace("greater(n, i64(0))", "less_equal(n, i64(0))")
        text = text.replace("def then", "def swapped").replace("def otherwise", "def then")
        text = text.replace("def swapped", "def otherwise")
    module = parse_module(text)
    verify(module)
    looped = changed(module, Step(tail_recursion), Step(inline_functions), Step(dead_code))
    assert count(looped, CallFunction) == 0 and count(looped, Loop) == 1
    model = tw.compile(module, threads=1)
    assert isinstance(model, tw.Model), "a loop is native"
    for n in (0, 1, 5):
        given_inputs = [np.array(n), np.arange(3, dtype="f4")]
        expected = evaluate(module, given_inputs)[0]
        np.testing.assert_array_equal(evaluate(looped, given_inputs)[0], expected)
        np.testing.assert_array_equal(model.run(given_inputs)[0], expected)


def test_other_recursion_is_left_alone() -> None:
    text = SUM.replace("        return r\n", "        q = add(r, r)\n        return q\n")
    module = parse_module(text)
    assert tail_recursion(module) is module
