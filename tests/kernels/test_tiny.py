"""Functions of few instances keep their loops, unless they reduce more than a few elements."""

from __future__ import annotations

import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.kernels.pipeline import scheduled

TARGET = tw.Target.of("llvm -mcpu=neoverse-n1 -num-cores=2")


def _sums(rows: int) -> tw.Function:
    x = te.placeholder((rows, 64), "float32", name="x")
    return te.function([x], [ops.sum(x, axes=[0])], name="sums")


def _more(size: int) -> tw.Function:
    x = te.placeholder((size,), "float32", name="x")
    return te.function([x], [te.compute((size,), lambda i: x[i] + 1.0)], name="more")


@pytest.mark.parametrize(
    ("function", "is_worth"),
    [(_sums(13), True), (_sums(2), False), (_more(512), False), (_more(2048), True)],
)
def test_what_is_worth_a_schedule(function: tw.Function, is_worth: bool) -> None:
    assert ("vectorized" in str(scheduled(function, TARGET))) == is_worth
