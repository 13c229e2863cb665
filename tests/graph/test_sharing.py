"""Views, parts and concats take no copies, and programs that share memory give the same answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.graph import Builder, Module, Value, evaluate

RNG = np.random.default_rng(2)


def weights(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def compared(module: Module, *inputs: Any, **options: Any) -> tw.Model:
    """The compiled model, once it is known to give what the evaluator gives."""
    model = tw.compile(module, threads=1, **options)
    assert isinstance(model, tw.Model)
    with np.errstate(all="ignore"):
        expected = evaluate(module, inputs)
    for _ in range(2):
        for got, want in zip(model.run(list(inputs)), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    return model


def copies(model: tw.Model) -> int:
    return str(model.ir()).count("copy_memory")


def test_parts_are_computed_where_they_belong() -> None:
    b = Builder()
    x = b.input("x", "f32", (1, 3, 4, 4))
    parts = [b.relu(b.conv(x, weights(n, 3, 1, 1))) for n in (2, 3, 5)]
    b.output(b.exp(b.concat(*parts, axis=1)))
    model = compared(b.build(), weights(1, 3, 4, 4))
    assert copies(model) == 0
    assert not any("concat" in name for name in model.kernels)


def test_a_concat_that_is_the_result_is_computed_there() -> None:
    b = Builder()
    x = b.input("x", "f32", (4, 3))
    b.output(b.concat(b.matmul(x, weights(3, 5)), b.matmul(x, weights(3, 5)), axis=0))
    model = compared(b.build(), weights(4, 3))
    assert copies(model) == 0 and "alloc(f32" not in str(model.ir())


def test_what_grows_by_concats_is_there_once() -> None:
    """As in DenseNet: each layer reads all before it, put together."""
    b = Builder()
    features: list[Value] = [b.relu(b.input("x", "f32", (1, 3, 4, 4)))]
    for _ in range(4):
        joined = b.concat(*features, axis=1)
        features.append(b.tanh(b.conv(b.relu(joined), weights(2, 3 + 2 * len(features) - 2, 1, 1))))
    b.output(b.mean(b.concat(*features, axis=1), axes=[2, 3]))
    assert copies(compared(b.build(), weights(1, 3, 4, 4))) == 0


def test_what_cannot_be_computed_there_is_copied() -> None:
    b = Builder()
    x, y = b.input("x", "f32", (2, 3)), b.input("y", "f32", (1, 3))
    a = b.exp(x)
    # An input, a value twice, a result of its own, a constant.
    b.output(b.concat(y, a, a, weights(1, 3), axis=0), a)
    compared(b.build(), weights(2, 3), weights(1, 3))


def test_one_value_in_two_wholes() -> None:
    b = Builder()
    x = b.input("x", "f32", (2, 3))
    p, q, r = b.exp(x), b.tanh(x), b.relu(x)
    one, two = b.concat(p, q, axis=0), b.concat(q, r, p, axis=0)
    b.output(b.neg(one), b.abs(two))
    compared(b.build(), weights(2, 3))


def test_slices_of_rows_are_views() -> None:
    b = Builder()
    x = b.input("x", "f32", (6, 4, 5))
    h = b.exp(x)
    parts = [b.slice(h, starts=[k], ends=[k + 2], axes=[0]) for k in (0, 2, 4)]
    inner = b.slice(h, starts=[3, 1], ends=[4, 3], axes=[0, 1])
    b.output(*(b.matmul(p, weights(5, 2)) for p in parts), b.relu(inner))
    model = compared(b.build(), weights(6, 4, 5))
    assert copies(model) == 0 and not any("slice" in name for name in model.kernels)


def test_slices_that_are_in_pieces_are_kernels() -> None:
    b = Builder()
    x = b.input("x", "f32", (6, 4))
    b.output(
        b.slice(x, starts=[1], ends=[3], axes=[1]),
        b.slice(x, starts=[5], ends=[-7], axes=[0], steps=[-2]),
    )
    model = compared(b.build(), weights(6, 4))
    assert len(model.kernels) == 2


@pytest.mark.parametrize("n", [1, 5])
def test_views_of_symbolic_rows(n: int) -> None:
    b = Builder()
    x = b.input("x", "f32", ("n", 4))
    h = b.exp(x)
    last = b.slice(h, starts=[-1], ends=[2**40], axes=[0])
    rest = b.slice(h, starts=[1], ends=[2**40], axes=[0])
    b.output(b.neg(last), b.neg(rest))
    model = compared(b.build(), weights(n, 4))
    assert not any("slice" in name for name in model.kernels)


def test_parts_in_loops_and_branches() -> None:
    b = Builder()
    x, flag = b.input("x", "f32", (2, 3)), b.input("flag", "bool")

    def body(i: Value, s: Value) -> Any:
        del i
        rows = b.concat(b.exp(b.slice(s, starts=[1], ends=[2], axes=[0])), b.neg(x), axis=0)
        return [b.slice(rows, starts=[1], ends=[3], axes=[0])], [rows]

    state, rows = b.loop(3, [x], body)
    chosen = b.branch(
        flag,
        lambda: b.concat(b.exp(x), b.neg(state), axis=0),
        lambda: b.concat(x, b.tanh(x), axis=0),
    )
    b.output(state, rows, b.concat(chosen, b.relu(x), axis=0))
    module = b.build()
    for value in (True, False):
        compared(module, 0.1 * weights(2, 3), np.array(value))


def test_maps_are_computed_over_what_nothing_else_needs() -> None:
    b = Builder()
    x = b.input("x", "f32", (64, 33))
    h = b.softmax(x, axis=1)
    for _ in range(4):
        h = b.tanh(h * b.sum(h, axes=[1], keepdims=True))
    b.output(b.mean(h, axes=[0]))
    model = compared(b.build(), weights(64, 33), opt_level=0)
    assert str(model.ir()).count("alloc(f32[64, 33])") == 1


@pytest.mark.parametrize("n", [1, 37])
def test_maps_over_symbolic_sizes(n: int) -> None:
    b = Builder()
    x = b.input("x", "f32", ("n", 5))
    h = b.cumsum(x, axis=0)
    b.output(b.sum(b.neg(b.exp(h)), axes=[1]))
    model = compared(b.build(), weights(n, 5), opt_level=0)
    assert str(model.ir()).count("alloc(f32[n, 5])") == 1


def test_what_is_still_needed_is_not_overwritten() -> None:
    b = Builder()
    x = b.input("x", "f32", (4, 6))
    h = b.softmax(x, axis=1)
    # Used later; by a view; by the same map in another order; by a loop again and again.
    a = b.exp(h)
    flat = b.reshape(h, shape=[24])
    turned = b.softmax(b.matmul(x, weights(6, 4)), axis=1)
    both = turned + b.transpose(turned)
    k = b.softmax(h, axis=0)
    state = b.loop(3, [x], lambda _i, s: [b.tanh(k) + s])
    b.output(a + h, b.relu(flat), both, state)
    module = b.build()
    for opt_level in (0, 3):
        compared(module, weights(4, 6), opt_level=opt_level)


def test_views_of_what_is_overwritten() -> None:
    b = Builder()
    x = b.input("x", "f32", (4, 6))
    h = b.softmax(x, axis=1)
    row = b.slice(h, starts=[1], ends=[2], axes=[0])
    b.output(b.mean(h * row, axes=[0]))
    compared(b.build(), weights(4, 6), opt_level=0)


# ---- random programs ----------------------------------------------------------------------------


@st.composite
def programs(draw: Any) -> Module:
    """Rows that are computed, cut, put together and looked at in other shapes."""
    b = Builder()
    scope: list[Value] = [b.input("x", "f32", (4, 6)), b.input("y", "f32", (2, 6))]
    for _ in range(draw(st.integers(3, 10))):
        x = draw(st.sampled_from(scope[-5:]))
        rows = x.tensor.static_shape[0]
        kind = draw(st.sampled_from(["map", "slice", "concat", "concat", "view", "product"]))
        if kind == "slice":
            cut = draw(st.integers(0, rows))
            x = b.slice(x, starts=[cut], ends=[draw(st.integers(cut, rows))], axes=[0])
        elif kind == "concat":
            x = b.concat(*draw(st.lists(st.sampled_from(scope), min_size=1, max_size=4)), axis=0)
        elif kind == "view":
            x = b.reshape(b.reshape(x, shape=[rows * 2, 3]), shape=[rows, 6])
        elif kind == "product":
            x = b.matmul(x, np.eye(6, dtype="f4")[::-1])
        else:
            x = b.emit(draw(st.sampled_from(["neg", "relu", "abs"])), x)
        scope.append(x)
    b.output(*draw(st.lists(st.sampled_from(scope[2:]), min_size=1, max_size=4)))
    return b.build()


@pytest.mark.parametrize("opt_level", [0, 3])
def test_random_programs(opt_level: int) -> None:
    @settings(max_examples=25, deadline=None)
    @given(programs())
    def check(module: Module) -> None:
        compared(module, weights(4, 6), weights(2, 6), opt_level=opt_level)

    check()
