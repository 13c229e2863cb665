"""Rows that lie in pieces are read from a copy, laid out as tiles read it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.graph import Builder, PassContext, evaluate
from tilewright.ir import Expr, Function, function_text, interpret, verify
from tilewright.schedule import Schedule
from tilewright.schedule.rules import Choices
from tilewright.schedule.rules.products.gather_rows import GATHER_ROWS

#: Caches so small that little is near.
TARGET = tw.Target.of("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -num-cores=2 -l1d=1K")


def gather_rows(function: Function, target: tw.Target) -> Function:
    s = Schedule(function)
    for block in s.blocks():
        GATHER_ROWS.attempt(s, block.name, target, Choices())
    return s.function


def windows(columns: int, *, row: int = 3) -> Function:
    """Windows of 3 rows of 2×8 channels, every second one, times a matrix; then one is added."""
    x = te.placeholder((2, 2 * row + 1, 5, 8), name="X")
    w = te.placeholder((2, 3, 8, columns), name="W")
    c, k, r = (te.reduce_axis(n, name=name) for n, name in ((2, "c"), (3, "k"), (8, "r")))

    def element(i: Expr, j: Expr, o: Expr) -> Any:
        return te.sum(x[c, i * 2 + k, j, r] * w[c, k, r, o], axis=[c, k, r])

    y = te.compute((row, 5, columns), element, name="Y")
    z = te.compute(y.shape, lambda i, j, o: y[i, j, o] + 1.0, name="Z")
    return te.function([x, w], [z], name="f")


def test_windows_are_gathered_and_their_rows_are_one_dimension() -> None:
    gathered = gather_rows(windows(32, row=4), TARGET)
    verify(gathered)
    text = function_text(gathered)
    assert "X_reindex = alloc(f32[20, 2, 3, 8])" in text
    assert "X[vc, vi_vj // 5 * 2 + vk, vi_vj % 5, vr]" in text
    assert "Z: f32[20, 32]" in text
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(d).astype("f4") for d in ((2, 9, 5, 8), (2, 3, 8, 32)))
    got, want = np.empty((20, 32), "f4"), np.empty((4, 5, 32), "f4")
    interpret(gathered, x, w, got)
    interpret(windows(32, row=4), x, w, want)
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-5, atol=1e-5)


def test_a_search_may_leave_it_out() -> None:
    function = windows(32, row=4)
    s, choices = Schedule(function), Choices({"gather_rows(Y).applied": 1})
    assert not GATHER_ROWS.attempt(s, "Y", TARGET, choices)
    assert s.function is function and not s.declined
    assert choices.offered == {"gather_rows(Y).applied": (True, False)}


def test_not_where_a_copy_costs_more_than_it_saves() -> None:
    narrow, short = windows(8, row=4), windows(32, row=1)
    assert gather_rows(narrow, TARGET) is narrow
    assert gather_rows(short, TARGET) is short
    large = tw.Target.of("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1 -l1d=1M")
    wide = windows(32, row=4)
    assert gather_rows(wide, large) is wide


def test_not_where_rows_are_whole() -> None:
    a, b = te.placeholder((64, 512), name="A"), te.placeholder((512, 64), name="B")
    k = te.reduce_axis(512, name="k")
    y = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="Y")
    product = te.function([a, b], [y], name="f")
    assert gather_rows(product, TARGET) is product


# ---- convolutions as they are compiled ----------------------------------------------------------

#: Batch, channels in and out, height and width, and what the convolution is given.
CONVOLUTIONS = [
    (1, 64, 48, 9, 11, (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (2, 70, 33, 7, 7, (3, 3), {"pads": [0, 1, 1, 0]}),
    (3, 40, 32, 5, 5, (1, 1), {}),
    (1, 32, 64, 13, 17, (1, 1), {"strides": [2, 3]}),
    (1, 48, 48, 1, 37, (1, 7), {"pads": [0, 3, 0, 3]}),
    (2, 32, 40, 37, 1, (7, 1), {"strides": [2, 1], "pads": [3, 0, 3, 0]}),
    (1, 32, 32, 12, 10, (3, 3), {"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
    (1, 64, 128, 6, 7, (3, 3), {"groups": 2, "pads": [1, 1, 1, 1]}),
]


#: Few cores share out rows, many the columns.
RUNS = [*((case, 2) for case in CONVOLUTIONS), *((case, 16) for case in CONVOLUTIONS[:2])]


@pytest.mark.parametrize(("case", "cores"), RUNS, ids=lambda c: str(c).replace(" ", ""))
def test_convolutions_are_right(case: Any, cores: int) -> None:
    n, inputs, outputs, height, width, kernel, attrs = case
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((outputs, inputs // attrs.get("groups", 1), *kernel)).astype("f4")
    bias = rng.standard_normal(outputs).astype("f4")
    b = Builder()
    x = b.input("x", "f32", (n, inputs, height, width))
    y = b.conv(x, weight, bias, **attrs)
    b.output(b.relu(b.add(y, b.constant(np.float32(0.5)))))
    module = b.build()
    image = rng.standard_normal((n, inputs, height, width)).astype("f4")
    (want,) = evaluate(module, [image])
    with PassContext(opt_level=3, disabled_passes=frozenset({"winograd"})):
        model = tw.compile(module, f"llvm -num-cores={cores} -l1d=1K -l2=64K", threads=2)
    (got,) = model.run([image])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
