"""Cheaper operators stand for costly ones."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph import Step, evaluate, module_text, parse_module, run_passes
from tilewright.graph.passes import algebra, constant_folding, dead_code

STEPS = [Step(algebra), Step(constant_folding), Step(dead_code)]
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -2.5, 1e-30, 3e20, 0.7], np.float32)


def rewritten(body: str) -> str:
    module = parse_module(f"def main(x: f32[9]):\n    {body}\n    return y\n")
    changed = run_passes(module, STEPS)
    with np.errstate(all="ignore"):
        (got,), (expected,) = evaluate(changed, [SPECIAL]), evaluate(module, [SPECIAL])
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected))
    np.testing.assert_allclose(got, expected, rtol=4e-7)
    return module_text(changed)


@pytest.mark.parametrize("exponent", ["2.0", "3.0", "[2.0]"])
def test_small_powers_are_products(exponent: str) -> None:
    text = rewritten(f"y = pow(x, f32({exponent}))")
    assert "mul" in text and "pow" not in text


@pytest.mark.parametrize(
    "exponent", ["0.5", "-2.0", "[[2.0]]", "[2.0, 2.0, 2.0, 1, 1, 1, 1, 1, 1]"]
)
def test_other_powers_stay(exponent: str) -> None:
    assert "pow" in rewritten(f"y = pow(x, f32({exponent}))")


@pytest.mark.parametrize("name", ["erf", "tanh", "sigmoid"])
def test_divisions_before_smooth_functions_are_multiplications(name: str) -> None:
    text = rewritten(f"a = div(x, f32(1.4142135))\n    y = {name}(a)")
    assert "mul" in text and "div" not in text


@pytest.mark.parametrize("body", ["y = div(x, f32(3.0))", "a = div(x, f32(3.0))\n    y = floor(a)"])
def test_divisions_stay_where_a_last_bit_counts(body: str) -> None:
    assert "div" in rewritten(body)


def test_divisions_by_what_has_no_reciprocal_stay() -> None:
    assert "div" in rewritten("a = div(x, f32(1e-30))\n    y = tanh(a)")
