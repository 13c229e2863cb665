"""Norms that a model spells out are one operator."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Module, Step, evaluate, module_text, parse_module, run_passes
from tilewright.graph.passes import algebra, constant_folding, dead_code

STEPS = [Step(algebra), Step(constant_folding), Step(dead_code)]
SQUARES = "s = mul(x, x)\n v = mean(s, axes=[-1], keepdims=True)"
CENTRED = "m = mean(x, axes=[-1], keepdims=True)\n d = sub(x, m)"
SPREAD = "p = pow(d, f32(2.0))\n v = mean(p, axes=[-1], keepdims=True)"


def module(body: str, shape: str = "3, 4, 33") -> Module:
    lines = "\n".join(f"    {line.strip()}" for line in body.splitlines())
    return parse_module(f"def main(x: f32[{shape}]):\n{lines}\n    return y\n")


def rewritten(body: str) -> str:
    before = module(body)
    changed = run_passes(before, STEPS)
    x = np.random.default_rng(0).normal(2, 3, (3, 4, 33)).astype("float32")
    x[0, 0], x[0, 1, 2], x[0, 2, 5] = 0, np.inf, np.nan
    with np.errstate(all="ignore"):
        (got,), (want,) = evaluate(changed, [x]), evaluate(before, [x])
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)
    return module_text(changed)


@pytest.mark.parametrize(
    "end",
    [
        "r = sqrt(a)\n y = div(x, r)",
        "r = sqrt(a)\n i = reciprocal(r)\n y = mul(x, i)",
        "i = rsqrt(a)\n y = mul(i, x)",
    ],
)
def test_root_mean_squares(end: str) -> None:
    text = rewritten(f"{SQUARES}\n a = add(v, f32(0.001))\n {end}")
    assert "rms_norm" in text and "mean" not in text and "mul" not in text


@pytest.mark.parametrize("end", ["r = sqrt(a)\n y = div(d, r)", "i = rsqrt(a)\n y = mul(d, i)"])
def test_layer_norms(end: str) -> None:
    text = rewritten(f"{CENTRED}\n {SPREAD}\n a = add(f32(0.001), v)\n {end}")
    assert "layer_norm" in text and "mean" not in text and "sub" not in text


def test_norms_over_several_axes() -> None:
    text = rewritten(
        """s = mul(x, x)
        v = mean(s, axes=[2, 1], keepdims=True)
        a = add(v, f32(0.001))
        r = sqrt(a)
        y = div(x, r)"""
    )
    assert "rms_norm(x, axis=1" in text


@pytest.mark.parametrize(
    "body",
    [
        # Other axes than the last ones.
        "s = mul(x, x)\n v = mean(s, axes=[1], keepdims=True)\n a = add(v, f32(0.1))\n r = sqrt(a)"
        "\n y = div(x, r)",
        # The mean of something else.
        "n = abs(x)\n s = mul(n, x)\n v = mean(s, axes=[-1], keepdims=True)\n a = add(v, f32(0.1))"
        "\n r = sqrt(a)\n y = div(x, r)",
        # Something else is divided.
        f"{SQUARES}\n a = add(v, f32(0.1))\n r = sqrt(a)\n n = exp(x)\n y = div(n, r)",
        # The root is needed besides.
        f"{SQUARES}\n a = add(v, f32(0.1))\n r = sqrt(a)\n q = div(x, r)\n y = add(q, r)",
        # What is added is no single number.
        f"{SQUARES}\n a = add(v, f32([[[0.1], [0.2], [0.3], [0.4]]]))\n r = sqrt(a)"
        "\n y = div(x, r)",
    ],
)
def test_what_stays(body: str) -> None:
    assert "norm" not in rewritten(body)


def test_one_kernel_computes_a_norm() -> None:
    norm = "a = add(v, f32(1e-5))\n r = sqrt(a)\n n = div(d, r)\n y = mul(n, x)"
    body = f"{CENTRED}\n {SPREAD}\n {norm}"
    model = tw.compile(module(body))
    x = np.random.default_rng(0).normal(2, 3, (3, 4, 33)).astype("float32")
    wide = x.astype("float64")
    want = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * x
    np.testing.assert_allclose(model(x), want, rtol=2e-5, atol=2e-5)
    assert len(model.kernels) == 1
