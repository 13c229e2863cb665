"""Programs with free dimensions are compiled once and right at every size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder, Module, evaluate

SIZES = (1, 2, 3, 5, 7, 8, 15, 16, 17, 33, 128)
_RNG = np.random.default_rng(3)


def _array(*shape: int) -> Any:
    return (_RNG.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def perceptron() -> Module:
    b = Builder()
    x = b.input("x", "f32", ("n", 40))
    y = b.relu(b.matmul(x, _array(40, 56)) + _array(56))
    b.output(b.matmul(y, _array(56, 10)))
    return b.build()


def encoder() -> Module:
    """Attention with two heads of 8, and what follows it."""
    b = Builder()
    x = b.input("x", "f32", ("n", "s", 16))
    n, s, _ = x.shape

    def heads(v: Any) -> Any:
        return b.transpose(b.reshape(v, shape=[n, s, 2, 8]), axes=[0, 2, 1, 3])

    q, k, v = (heads(b.matmul(x, _array(16, 16)) + _array(16)) for _ in range(3))
    mixed = b.matmul(b.softmax(b.matmul(q, b.transpose(k, axes=[0, 1, 3, 2])), axis=-1), v)
    mixed = b.reshape(b.transpose(mixed, axes=[0, 2, 1, 3]), shape=[n, s, 16])
    y = b.layer_norm(x + b.matmul(mixed, _array(16, 16)), _array(16), _array(16), axis=-1)
    b.output(y + b.matmul(b.gelu(b.matmul(y, _array(16, 24))), _array(24, 16)))
    return b.build()


def images(shape: Sequence[Any]) -> Module:
    """Strided, plain and depthwise windows, pooling."""
    b = Builder()
    x = b.input("x", "f32", shape)
    y = b.relu(b.conv(x, _array(16, 3, 3, 3), strides=[2, 2], pads=[1] * 4) + _array(16, 1, 1))
    y = y + b.relu(b.conv(y, _array(16, 16, 3, 3), pads=[1] * 4))
    y = b.conv(y, _array(16, 1, 3, 3), pads=[1] * 4, groups=16)
    y = b.max_pool(b.conv(y, _array(24, 16, 1, 1)), kernel=[2, 2], strides=[2, 2])
    b.output(y)
    b.output(b.mean(y, axes=[2, 3], keepdims=False))
    return b.build()


def agrees(module: Module, shapes: Sequence[Mapping[str, Sequence[int]]]) -> None:
    """The program, compiled once, gives what the evaluator does for all these shapes."""
    model = tw.compile(module, threads=1)
    for given in shapes:
        inputs = {name: _RNG.standard_normal(s).astype(np.float32) for name, s in given.items()}
        wanted = evaluate(module, list(inputs.values()))
        for ours, other in zip(model.run(inputs), wanted, strict=True):
            np.testing.assert_allclose(ours, other, rtol=1e-4, atol=1e-4 * np.abs(other).max())


def test_any_number_of_rows() -> None:
    agrees(perceptron(), [{"x": (n, 40)} for n in SIZES])


def test_any_batch_and_length() -> None:
    pairs = [*product((1, 2, 3), (1, 2, 3, 5, 7, 8, 17, 33)), (5, 16), (8, 15), (1, 128)]
    agrees(encoder(), [{"x": (n, s, 16)} for n, s in pairs])


@pytest.mark.parametrize("size", [16, 23])
def test_any_number_of_images(size: int) -> None:
    shapes = [{"x": (n, 3, size, size)} for n in (1, 2, 3, 5, 7, 8)]
    agrees(images(("n", 3, size, size)), shapes)


def test_images_of_any_size() -> None:
    pairs = [(4, 4), (5, 7), (15, 33), (16, 16), (17, 8), (31, 30)]
    agrees(images(("n", 3, "h", "w")), [{"x": (1, 3, h, w)} for h, w in pairs])


def test_one_call_after_another_may_have_other_sizes() -> None:
    """What follows from shapes is remembered for each of them, and refusals are not."""
    module = perceptron()
    model = tw.compile(module, threads=1)
    arrays = [_RNG.standard_normal((n, 40)).astype(np.float32) for n in (3, 300, 1, 3, 0, 300)]
    for x in arrays:
        (wanted,) = evaluate(module, [x])
        np.testing.assert_allclose(model.run([x])[0], wanted, rtol=1e-4, atol=1e-4)
        with pytest.raises(tw.UserError, match="input x must be"):
            model.run([x[:, :39]])
