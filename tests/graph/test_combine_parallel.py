"""Small products of one operand become one, and answers stay as they were."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder, Call, Module, PassContext, evaluate, verify
from tilewright.graph.passes import combine_parallel
from tilewright.target import Target

COMBINE = combine_parallel(Target.of("llvm -mcpu=haswell"))
RNG = np.random.default_rng(4)


def array(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def operators(module: Module, *inputs: Any) -> list[str]:
    """What is left, once it is known to mean the same."""
    changed = COMBINE(module)
    verify(changed)
    for a, b in zip(evaluate(changed, inputs), evaluate(module, inputs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    return [b.expr.op.name for b in changed.main.body if isinstance(b.expr, Call)]


@pytest.mark.parametrize("transposed", [False, True])
def test_products_with_bias_and_activation(transposed: bool) -> None:
    b = Builder()
    x = b.input("x", "f32", (2, 3, 6))
    parts = [
        b.relu(
            b.matmul(x, array(n, 6) if transposed else array(6, n), transpose_b=transposed)
            + array(n)
        )
        for n in (4, 5, 1)
    ]
    b.output(*map(b.exp, parts[:2]), b.tanh(parts[2]))
    found = operators(b.build(), array(2, 3, 6))
    assert found == ["matmul", "add", "relu", *["slice"] * 3, "exp", "exp", "tanh"]


def test_missing_biases_are_zeros() -> None:
    b = Builder()
    x = b.input("x", "f32", (3, 6))
    b.output(b.exp(b.dense(x, array(4, 6), array(4))), b.tanh(b.dense(x, array(5, 6))))
    assert operators(b.build(), array(3, 6)) == ["dense", "slice", "slice", "exp", "tanh"]
    b = Builder()
    x = b.input("x", "f32", (3, 6))
    one, two = b.gemm(x, array(6, 4), array(1), alpha=0.5), b.gemm(x, array(6, 5), alpha=0.5)
    b.output(b.exp(one), b.tanh(two))
    assert operators(b.build(), array(3, 6)) == ["gemm", "slice", "slice", "exp", "tanh"]


def test_what_differs_stays_apart() -> None:
    b = Builder()
    x, y = b.input("x", "f32", (3, 6)), b.input("y", "f32", (3, 6))
    one, two = b.matmul(x, array(6, 4)), b.matmul(y, array(6, 4))
    three, four = b.gemm(x, array(6, 4), alpha=0.5), b.gemm(x, array(6, 4))
    b.output(one, two, three, four, b.matmul(x, b.transpose(y)))
    assert "slice" not in operators(b.build(), array(3, 6), array(3, 6))


def test_maps_that_differ_come_after_the_slices() -> None:
    b = Builder()
    x = b.input("x", "f32", (3, 6))
    p, q = b.matmul(x, array(6, 4)) * array(4), b.matmul(x, array(6, 4)) * 2.0
    b.output(b.relu(p), b.tanh(q))
    found = operators(b.build(), array(3, 6))
    assert found == ["matmul", "mul", "slice", "slice", "relu", "tanh"]


def test_large_products_stay_apart() -> None:
    b = Builder()
    x = b.input("x", "f32", (64, 64))
    b.output(b.exp(b.matmul(x, array(64, 64))), b.tanh(b.matmul(x, array(64, 64))))
    module = b.build()
    assert COMBINE(module) is module
    with PassContext(options={"combine_limit": 1 << 20}):
        assert COMBINE(module) is not module


def test_more_is_small_on_gpus() -> None:
    b = Builder()
    x = b.input("x", "f32", ("n", 64))
    b.output(b.exp(b.matmul(x, array(64, 64))), b.tanh(b.matmul(x, array(64, 64))))
    module = b.build()
    assert COMBINE(module) is module, "its size is not known"
    assert combine_parallel(Target.of("cuda -arch=sm_80"))(module) is not module


def test_parts_that_would_be_copied_stay_apart() -> None:
    b = Builder()
    x = b.input("x", "f32", (3, 6))
    p, q, r = (b.matmul(x, array(6, 4)) for _ in range(3))
    b.output(b.softmax(p, axis=1), b.concat(q, r, axis=0), b.exp(r))
    module = b.build()
    assert COMBINE(module) is module


@pytest.mark.parametrize("opt_level", [0, 1, 2, 3])
def test_compiled(opt_level: int) -> None:
    b = Builder()
    x = b.input("x", "f32", (3, 5, 8))
    heads = [b.matmul(x, array(8, 4)) + array(4) for _ in range(3)]
    q, k, v = (b.transpose(b.reshape(h, shape=[-1, 5, 2, 2]), axes=[0, 2, 1, 3]) for h in heads)
    scores = b.softmax(b.matmul(q * 0.5, b.transpose(k, axes=[0, 1, 3, 2])), axis=-1)
    b.output(b.reshape(b.transpose(b.matmul(scores, v), axes=[0, 2, 1, 3]), shape=[-1, 5, 4]))
    module, inputs = b.build(), [array(3, 5, 8)]
    got = tw.compile(module, opt_level=opt_level, threads=1).run(inputs)[0]
    np.testing.assert_allclose(got, evaluate(module, inputs)[0], rtol=1e-4, atol=1e-5)
