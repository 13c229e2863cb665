"""Small numbers are converted before a product, where they are there before it"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.ir import Function, interpret
from tilewright.schedule import RULES
from tilewright.tensor import te

TARGET = tw.Target.of("llvm -mcpu=haswell -num-cores=1")


def scan(steps: int, n: int) -> Function:
    """h[t] = f16(h[t - 1] · W) + x[t], with sums in float32."""
    W, X = (
        te.placeholder((n, n), "float16", name="W"),
        te.placeholder((steps, n), "float16", name="X"),
    )
    state, r = te.placeholder((steps, n), "float16", name="state"), te.reduce_axis(n, name="r")
    first = te.compute((1, n), lambda _, j: X[0, j], name="first")

    def product(t: Any, j: Any) -> Any:
        return te.cast(state[t - 1, r], "float32") * te.cast(W[r, j], "float32")

    moved = te.compute((steps, n), lambda t, j: te.sum(product(t, j), axis=r), name="moved")
    update = te.compute(
        (steps, n), lambda t, j: te.cast(moved[t, j], "float16") + X[t, j], name="step"
    )
    results: Any = te.scan(first, update, state, name="S")
    return te.function(
        [W, X], list(results) if isinstance(results, Sequence) else [results], name="f"
    )


def test_the_state_of_a_scan_is_not_converted_before_its_steps() -> None:
    steps, n = 33, 36
    function = scan(steps, n)
    s = RULES.schedule(function, TARGET)
    names = [b.name for b in s.blocks()]
    assert "W_wide" in names and not any(name.startswith("S_wide") for name in names)
    rng = np.random.default_rng(0)
    # A permutation, so that numbers stay small.
    w, x = np.eye(n, dtype="f2")[rng.permutation(n)], rng.integers(-1, 2, (steps, n)).astype("f2")
    want, got = np.zeros((steps, n), "f2"), np.zeros((steps, n), "f2")
    interpret(function, w, x, want)
    interpret(s.function, w, x, got)
    np.testing.assert_array_equal(got, want)
