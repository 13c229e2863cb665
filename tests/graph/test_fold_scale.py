"""Factors and addends end up in weights, and answers stay as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.graph import (
    Builder,
    Call,
    Module,
    PassContext,
    PassVerifier,
    Step,
    Value,
    evaluate,
    run_passes,
)
from tilewright.graph.passes import constant_folding, dead_code, fold_scale

STEPS = [Step(fold_scale), Step(constant_folding), Step(dead_code)]
RNG = np.random.default_rng(1)


def array(*shape: int) -> Any:
    return RNG.uniform(0.5, 1.5, shape).astype("float32")


def folded(module: Module) -> list[str]:
    """The operators that are left, once the answers are known to be the same."""
    inputs = [array(*p.tensor.static_shape) for p in module.main.params]
    with PassContext(instruments=[PassVerifier()]):
        changed = run_passes(module, STEPS)
    for a, b in zip(evaluate(changed, inputs), evaluate(module, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
    return [b.expr.op.name for b in changed.main.body if isinstance(b.expr, Call)]


def built(*outputs: Any, b: Builder) -> Module:
    b.output(*outputs)
    return b.build()


def norm(b: Builder, x: Value, channels: int) -> Any:
    moments = [array(channels) for _ in range(4)]
    return b.batch_norm(x, *moments)


def test_batch_norm_goes_into_the_convolution_of_an_image_of_any_size() -> None:
    """Whether the kernel fits into the image is asked by the new convolution as by the old one."""
    b = Builder()
    x = b.input("x", "f32", (1, 4, "h", "w"))
    module = built(norm(b, b.conv(x, array(8, 4, 3, 3)), 8), b=b)
    changed = run_passes(module, STEPS)
    assert [b.expr.op.name for b in changed.main.body if isinstance(b.expr, Call)] == ["conv"]


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("bias", [False, True])
def test_batch_norm_goes_into_the_convolution(groups: int, bias: bool) -> None:
    b = Builder()
    x = b.input("x", "f32", (1, 4, 6, 6))
    y = b.conv(x, array(8, 4 // groups, 3, 3), array(8) if bias else None, groups=groups)
    assert folded(built(norm(b, y, 8), b=b)) == ["conv"]


@pytest.mark.parametrize("groups", [1, 2])
def test_factors_of_both_sides_go_into_a_convolution(groups: int) -> None:
    b = Builder()
    x = b.input("x", "f32", (1, 4, 6, 6))
    a = b.conv(x * array(4, 1, 1), array(6, 4 // groups, 3, 3), pads=[1] * 4, groups=groups)
    assert folded(built(a / array(6, 1, 1) - array(6, 1, 1), b=b)) == ["conv"]


@pytest.mark.parametrize("groups", [1, 2])
def test_transposed_convolution(groups: int) -> None:
    b = Builder()
    x = b.input("x", "f32", (1, 4, 5, 5))
    a = b.conv_transpose(x * array(4, 1, 1), array(4, 6 // groups, 3, 3), groups=groups)
    assert folded(built(norm(b, a, 6), b=b)) == ["conv_transpose"]


@pytest.mark.parametrize("transposed", [False, True])
def test_products(transposed: bool) -> None:
    b = Builder()
    x = b.input("x", "f32", (3, 5))
    w = array(7, 5) if transposed else array(5, 7)
    one = b.matmul(x * array(5), w, transpose_b=transposed) * array(7)
    two = b.gemm(x * 2.0, w, array(7), alpha=0.5, beta=2.0, transpose_b=transposed) * array(7)
    three = b.dense(x * array(5), array(7, 5)) * array(1, 7) + array(7)
    made = built(one, two + array(7), three, b=b)
    assert sorted(folded(made)) == ["dense", "gemm", "matmul"]


def test_factors_go_through_sums_views_and_transposes() -> None:
    b = Builder()
    x = b.input("x", "f32", (6, 5))
    a = b.reshape(b.matmul(x, array(5, 8)) + array(8), shape=[2, 3, 8])
    y = b.transpose(a, axes=[0, 2, 1]) * array(8, 1)
    assert folded(built(y, b=b)) == ["matmul", "add", "reshape", "transpose"]


def test_numbers_are_multiplied_after_the_product() -> None:
    b = Builder()
    q, k = b.input("q", "f32", (2, 3, 4)), b.input("k", "f32", (2, 5, 4))
    y = b.matmul(q * 0.3, b.transpose(k / 3.0, axes=[0, 2, 1]))
    assert folded(built(y * 0.5, b=b)) == ["matmul", "mul"], "nothing is left before the product"


def test_chains_of_constants_become_one() -> None:
    b = Builder()
    x = b.input("x", "f32", (3, 4))
    y = b.relu(x) * array(4) * 2.0
    assert folded(built(y + array(4) + 1.0, b=b)) == ["relu", "mul", "add"]


def test_what_is_used_elsewhere_stays() -> None:
    b = Builder()
    x = b.input("x", "f32", (3, 4))
    y = b.matmul(x, array(4, 4))
    assert folded(built(y, y * 2.0, b=b)) == ["matmul", "mul"]


def test_weights_that_are_shared_are_not_copied() -> None:
    b = Builder()
    x, w = b.input("x", "f32", (3, 256)), b.constant(array(256, 256))
    y, z = b.matmul(x, w) * array(256), b.matmul(b.relu(x), w)
    assert folded(built(y, z, b=b)).count("mul") == 1


def test_infinite_factors_and_padded_addends_stay() -> None:
    b = Builder()
    x = b.input("x", "f32", (1, 2, 5, 5))
    y = b.conv(x + array(2, 1, 1), array(3, 2, 3, 3), pads=[1] * 4)
    assert folded(built(y, b=b)) == ["add", "conv"]
    b = Builder()
    x = b.input("x", "f32", (2, 3))
    y = b.matmul(x, array(3, 3)) * np.array([1, np.inf, 1], "f4")
    assert folded(built(y, b=b)) == ["matmul", "mul"]


def test_narrow_floats_and_integers_stay() -> None:
    for dtype in ("f16", "i32"):
        b = Builder()
        x = b.input("x", dtype, (2, 3))
        w = b.constant(np.ones((3, 3)), dtype)
        module = built(b.matmul(x, w) * b.constant(np.full(3, 2), dtype), b=b)
        assert fold_scale(module) is module


# ---- random networks ----------------------------------------------------------------------------


@st.composite
def networks(draw: Any) -> Module:
    """Convolutions, products, factors and addends of channels, views between them."""
    b = Builder()
    x: Any = b.input("x", "f32", (1, 4, 5, 5))
    steps = {
        "conv": lambda v: b.conv(v, array(4, 4, 3, 3), pads=[1] * 4),
        "depthwise": lambda v: b.conv(v, array(4, 1, 3, 3), array(4), pads=[1] * 4, groups=4),
        "dense": lambda v: b.matmul(v, array(5, 5)),
        "norm": lambda v: norm(b, v, 4),
        "mul": lambda v: v * array(4, 1, 1),
        "number": lambda v: v * 0.25,
        "div": lambda v: v / array(1, 5),
        "add": lambda v: v + array(4, 1, 1),
        "sub": lambda v: v - 0.5,
        "transpose": lambda v: b.transpose(v, axes=[0, 1, 3, 2]),
        "view": lambda v: b.reshape(b.reshape(v, shape=[4, 25]) * array(4, 1), shape=[1, 4, 5, 5]),
        "relu": b.relu,
        "pair": lambda v: b.matmul(v * 0.5, b.transpose(v, axes=[0, 1, 3, 2]) * 0.1),
    }
    for name in draw(st.lists(st.sampled_from(sorted(steps)), min_size=2, max_size=7)):
        x = steps[name](x) * 0.2 if name in ("conv", "depthwise", "dense") else steps[name](x)
    b.output(x)
    return b.build()


@settings(max_examples=60, deadline=None)
@given(networks())
def test_random_networks(module: Module) -> None:
    folded_closely(module)


def folded_closely(module: Module) -> None:
    inputs = [array(1, 4, 5, 5)]
    with PassContext(instruments=[PassVerifier()]):
        changed = run_passes(module, STEPS)
    want = evaluate(module, inputs)[0]
    got = evaluate(changed, inputs)[0]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
def test_compiled(opt_level: int) -> None:
    b = Builder()
    x = b.input("x", "f32", (1, 4, 6, 6))
    y = b.relu(norm(b, b.conv(x, array(8, 4, 3, 3), pads=[1] * 4), 8))
    z = b.matmul(b.reshape(y, shape=[8, 36]) * array(36), array(36, 5)) * 0.1 + array(5)
    b.output(z)
    module, inputs = b.build(), [array(1, 4, 6, 6)]
    want = evaluate(module, inputs)[0]
    got = tw.compile(module, opt_level=opt_level, threads=1).run(inputs)[0]
    np.testing.assert_allclose(got, want, rtol=1e-4)
