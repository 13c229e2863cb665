"""Symbolic dimensions are sizes: what follows from that, and what does not for numbers read."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder, TensorType, evaluate
from tilewright.graph.sizes.broadcast import broadcast_shapes
from tilewright.graph.sizes.naturals import renewed, simplify_size
from tilewright.ir import Var, maximum, minimum
from tilewright.support.errors import UserError


def test_sizes_are_not_negative() -> None:
    n, m = Var("n"), Var("m")
    assert simplify_size(maximum(n, 0)) is n
    assert TensorType("f32", [maximum(n * m, 0)]) == TensorType("f32", [n * m])
    assert broadcast_shapes([n], [maximum(n, 0)]) == (n,)
    assert broadcast_shapes([n], [minimum(n, 512)]) == (n,)
    assert broadcast_shapes([minimum(n, 512)], [n]) == (n,)


def test_a_range_up_to_a_size_has_that_size() -> None:
    b = Builder("main")
    x = b.input("x", "f32", ("n",))
    (size,) = b.shape_of(x).known.ravel()  # type: ignore[union-attr]
    count = b.reshape(b.shape_of(x), shape=[])
    y = b.range(b.constant(0, "i64"), count, b.constant(1, "i64"))
    assert y.shape == (size,)


def test_a_range_up_to_a_size_that_became_a_float() -> None:
    """It is that long, unless there are more numbers than float32 tells apart."""
    b = Builder("main")
    x = b.input("x", "i8", ("n",))
    (size,) = x.shape
    count = b.cast(b.reshape(b.shape_of(x), shape=[]), dtype="float32")
    y = b.range(b.constant(0.0, "f32"), count, b.constant(1.0, "f32"))
    assert y.shape == (size,)
    b.output(y)
    model = tw.compile(b.build())
    np.testing.assert_array_equal(model(np.zeros(5, "i1")), np.arange(5, dtype="f4"))
    with pytest.raises(UserError, match="float32 does not count further than to 16777216"):
        model(np.zeros((1 << 24) + 1, "i1"))


def test_numbers_that_are_read_may_be_negative() -> None:
    b = Builder("main")
    k = b.input("k", "i64", ())
    (d,) = b.read(k)
    assert isinstance(d, Var)
    clamped = simplify_size(maximum(d, 0))
    assert clamped is not d
    assert simplify_size(maximum(renewed(d), 0)) is not d
    b.output(b.range(b.constant(0, "i64"), k, b.constant(1, "i64")))
    module = b.build()
    for number, want in ((3, [0, 1, 2]), (0, []), (-4, [])):
        (got,) = evaluate(module, [np.array(number)])
        np.testing.assert_array_equal(got, want)
