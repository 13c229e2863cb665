"""Rows of products, and sides of transposes, in several dimensions become those of one."""

from __future__ import annotations

import numpy as np

from tilewright import ops, te
from tilewright.ir import Expr, Function, Var, function_text, interpret, same_function, verify
from tilewright.schedule import Schedule, Trace
from tilewright.schedule.rules import merge_rows as rule
from tilewright.target import Target


def merge_rows(function: Function, target: str = "llvm") -> Function:
    """The function merged, which its trace makes again."""
    s = Schedule(function)
    rule.merge_rows(s, Target.of(target))
    again = Trace.from_json(s.trace.to_json()).replay(function)
    assert same_function(again.function, s.function)
    return s.function


def product(*, transposed: bool = False, with_index: bool = False) -> Function:
    """An n×s×4 tensor times 4×6, then added to another one."""
    n, s = Var("n"), Var("s")
    a, b = te.placeholder((n, s, 4), name="A"), te.placeholder((4, 6), name="B")
    shape = (s, n, 6) if transposed else (n, s, 6)
    c = te.placeholder(shape, name="C")
    r = te.reduce_axis(4, name="r")
    y = te.compute((n, s, 6), lambda i, j, k: te.sum(a[i, j, r] * b[r, k], axis=r), name="Y")

    def element(i: Expr, j: Expr, k: Expr) -> Expr:
        other = c[j, i, k] if transposed else c[i, j, k]
        return y[i, j, k] + other + (te.cast(j, "float32") if with_index else 0.0)

    z = te.compute((n, s, 6), element, name="Z")
    return te.function([a, b, c], [z], name="f")


def test_all_that_shares_the_rows_is_merged() -> None:
    function = product()
    merged = merge_rows(function)
    verify(merged)
    text = function_text(merged)
    assert "A: f32[n * s, 4], B: f32[4, 6], C: f32[n * s, 6], Z: f32[n * s, 6]" in text
    assert text.count("range(n * s)") == 2
    assert merged.dims == function.dims
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(d).astype("f4") for d in ((3, 5, 4), (4, 6), (3, 5, 6)))
    z = np.empty((15, 6), "f4")
    interpret(merged, a.reshape(15, 4), b, c.reshape(15, 6), z, n=3, s=5)
    np.testing.assert_allclose(z.reshape(3, 5, 6), a @ b + c, rtol=1e-5)


def test_not_where_something_tells_the_dimensions_apart() -> None:
    for function in (product(transposed=True), product(with_index=True)):
        assert merge_rows(function) is function


def test_sides_of_a_transpose() -> None:
    x = te.placeholder((2, 3, 4, 5), name="X")
    merged = merge_rows(te.function([x], [ops.transpose(x, axes=(0, 2, 3, 1), name="Y")], name="f"))
    verify(merged)
    assert "X: f32[2, 3, 20], Y: f32[2, 20, 3]" in function_text(merged)
    a, y = np.arange(120, dtype="f4").reshape(2, 3, 20), np.empty((2, 20, 3), "f4")
    interpret(merged, a, y)
    np.testing.assert_array_equal(y, a.transpose(0, 2, 1))


def test_rows_that_are_summed_become_one_dimension_on_gpus() -> None:
    x = te.placeholder((5, 7, 12), name="X")
    function = te.function([x], [ops.softmax(x, axis=-1)], name="f")
    merged = merge_rows(function, "cuda -arch=sm_90a")
    assert {len(b.shape) for b in merged.buffers} == {2}
    given = np.random.default_rng(0).random((5, 7, 12), np.float32)
    wanted, got = np.zeros_like(given), np.zeros((35, 12), np.float32)
    interpret(function, given, wanted)
    interpret(merged, given.reshape(35, 12), got)
    np.testing.assert_array_equal(got.reshape(5, 7, 12), wanted)
    assert merge_rows(function) is function, "other loops suit processors as they are"
