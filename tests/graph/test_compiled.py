"""Random graphs with branches, loops, closures and tuples: compiled against evaluated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

import tilewright as tw
from tests.graph.random_graphs import inputs, modules
from tilewright.graph import Builder, Module, evaluate, verify


@pytest.mark.parametrize("opt_level", [0, 2])
def test_compiled_graphs_give_what_the_evaluator_gives(opt_level: int) -> None:
    @settings(max_examples=25, deadline=None)
    @given(modules())
    def check(module: Module) -> None:
        model = tw.compile(module, opt_level=opt_level)
        if opt_level:
            assert isinstance(model, tw.Model), "everything in these graphs can be native"
            verify(model.graph)
        for flag in (True, False):
            given = inputs(3, n=3, flag=flag)
            with np.errstate(all="ignore"):
                expected = evaluate(module, given)
            for got, want in zip(model.run(given), expected, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)

    check()


def test_values_that_are_doubled_again_and_again() -> None:
    """Written out, the sum would have 2**60 terms; it has sixty distinct ones."""
    b = Builder()
    value = b.input("x", "f32", ("n", 4))
    for _ in range(60):
        value = b.add(value, value)
    b.output(value)
    (got,) = tw.compile(b.build()).run([np.full((2, 4), 3, np.float32)])
    np.testing.assert_array_equal(got, np.full((2, 4), 3 * 2.0**60, np.float32))


@pytest.mark.parametrize(("factor", "is_written"), [(1 << 20, True), (1000, False)])
def test_products_by_powers_of_two_are_shifts(factor: int, is_written: bool) -> None:
    """The number is part of the formula; others come from memory, so that kernels are shared."""
    b = Builder()
    x = b.input("x", "i32", (64,))
    b.output(b.mul(x, np.int32(factor)))
    model = tw.compile(b.build())
    assert isinstance(model, tw.Model)
    (kernel,) = model.kernels
    assert (str(factor) in str(model.ir(kernel))) == is_written
    given = np.arange(-32, 32, dtype=np.int32)
    np.testing.assert_array_equal(np.asarray(model.run([given])[0]), given * np.int32(factor))
