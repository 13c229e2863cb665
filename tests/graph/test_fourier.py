"""Fourier transforms against NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph.harness import check
from tilewright.graph import Builder, Value, evaluate, find_op
from tilewright.support.errors import UserError


def signal(*shape: int) -> Any:
    return np.random.default_rng(5).standard_normal((*shape, 2)).astype(np.float32)


@pytest.mark.parametrize("inverse", [False, True])
def test_short_signals(inverse: bool) -> None:
    for shape in [(7,), (2, 3, 8)]:
        check("dft", [signal(*shape)], symbolic=False, inverse=inverse, rtol=1e-4, atol=1e-4)


def test_long_signals_are_taken_apart() -> None:
    check("dft", [signal(2, 240)], symbolic=False, rtol=1e-4, atol=1e-3)


def test_the_decomposition_by_references() -> None:
    """Without compiling: lengths with several factors, and without any."""
    for size in (131, 256, 1000):
        x = signal(3, size)
        b = Builder("main")
        b.output(*_expanded(b, b.input("x", "f32", x.shape)))
        (got,) = evaluate(b.build(), [x])
        want = np.fft.fft(x[..., 0] + 1j * x[..., 1])
        np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, atol=1e-3)


@pytest.mark.parametrize("inverse", [False, True])
def test_a_length_known_at_run_time(inverse: bool) -> None:
    b = Builder("main")
    b.output(*_expanded(b, b.input("x", "f32", ("n", 2)), inverse))
    for size in (1, 6, 13):
        x = signal(size)
        (got,) = evaluate(b.build(), [x])
        want = (np.fft.ifft if inverse else np.fft.fft)(x[..., 0] + 1j * x[..., 1])
        np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, atol=1e-4)


def _expanded(b: Builder, x: Value, inverse: bool = False) -> tuple[Value, ...]:
    return find_op("dft").expand(b, [x], {"inverse": inverse})


def test_what_is_not_complex_is_refused() -> None:
    b = Builder("main")
    with pytest.raises(UserError, match="holds no complex numbers"):
        b.dft(b.input("x", "f32", (4, 3)))
    with pytest.raises(UserError, match="must have factors"):
        _expanded(b, b.input("y", "f32", (100_003, 2)))
