"""Floats by weights of fewer bits: bytes, nibbles, float16, sparse ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.tflite.cases import floats
from tests.frontends.tflite.peer import lite, ours
from tests.frontends.tflite.writer import Writer

RNG = np.random.default_rng(9)


def require_near(found: Any, wanted: Any, exact: Any) -> None:
    """As LiteRT has it, and about what real numbers give."""
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert np.abs(found - exact).max() < 0.03 * np.abs(exact).max()


@pytest.mark.parametrize("asymmetric", [False, True])
def test_fully_connected(asymmetric: bool) -> None:
    x, weights = floats(3, 32), RNG.integers(-127, 128, (8, 32)).astype(np.int8)
    w = Writer()
    ins = [w.input("float32", x.shape), w.constant(weights, scale=0.01)]
    ins.append(w.constant(np.arange(8, dtype=np.float32)))
    out = w.tensor("float32", [3, 8])
    version = 9 if asymmetric else 3
    y = w.op("FULLY_CONNECTED", ins, out, version=version, asymmetric=asymmetric)
    data = w.model([y])
    exact = x @ (weights * np.float32(0.01)).T + np.arange(8)
    require_near(ours(data, x)[0], lite(data, x)[0], exact)


@pytest.mark.parametrize("op", ["CONV_2D", "DEPTHWISE_CONV_2D"])
def test_conv(op: str) -> None:
    x = floats(2, 7, 7, 4)
    deep = op == "DEPTHWISE_CONV_2D"
    shape = (1, 3, 3, 4) if deep else (5, 3, 3, 4)
    outputs = 4 if deep else 5
    weights = RNG.integers(-127, 128, shape).astype(np.int8)
    scales = RNG.uniform(0.005, 0.01, outputs).astype(np.float32)
    w = Writer()
    ins = [w.input("float32", x.shape), w.constant(weights, scale=scales, axis=3 if deep else 0)]
    ins.append(w.constant(np.arange(outputs, dtype=np.float32)))
    how: dict[str, Any] = {"stride_w": 1, "stride_h": 1, **({"multiplier": 1} if deep else {})}
    version = 6 if deep else 5
    y = w.op(op, ins, w.tensor("float32", [2, 7, 7, outputs]), version=version, **how)
    data = w.model([y])
    found = ours(data, x)[0]
    wanted = lite(data, x)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(ours(data, x, native=True)[0], found, rtol=1e-4, atol=1e-4)


def test_halves() -> None:
    x, weights = floats(3, 8), floats(4, 8).astype(np.float16)
    w = Writer()
    wide = w.op("DEQUANTIZE", [w.constant(weights)], w.tensor("float32", [4, 8]), version=3)
    ins = [w.input("float32", x.shape), wide, w.constant(np.zeros(4, np.float32))]
    data = w.model([w.op("FULLY_CONNECTED", ins, w.tensor("float32", [3, 4]))])
    wanted = x @ weights.astype(np.float32).T
    np.testing.assert_allclose(ours(data, x)[0], wanted, rtol=1e-5, atol=1e-5)


def test_nibbles() -> None:
    """Two numbers of four bits a byte, the first in the low half."""
    stored = np.array([1, -2, 7, -8, 3], np.int8)
    low, high = stored[::2] & 15, np.append(stored[1::2], 0) & 15
    w = Writer()
    packed = (low | high << 4).astype(np.uint8)
    x = w.tensor("int4", [5], data=packed.tobytes(), scale=0.5)
    y = w.op("DEQUANTIZE", [x], w.tensor("float32", [5]))
    z = w.op("ADD", [y, w.input("float32", [5])], w.tensor("float32", [5]))
    found = ours(w.model([z]), np.zeros(5, np.float32))[0]
    np.testing.assert_array_equal(found, stored * 0.5)


def test_sparse_weights() -> None:
    """Rows of which only some columns are stored."""
    dense = np.zeros((3, 4), np.float32)
    dense[0, 1], dense[2, 0], dense[2, 3] = 5, 6, 7
    w = Writer()
    x = w.tensor("float32", [3, 4], data=np.array([5, 6, 7], np.float32).tobytes())
    vector = {0: np.array([0, 1, 1, 3], np.uint8)}
    columns = {0: np.array([1, 0, 3], np.uint8)}
    levels = [
        {0: ("b", 0), 1: ("i", 3)},
        {0: ("b", 1), 2: ("B", 3), 3: vector, 4: ("B", 3), 5: columns},
    ]
    w.tensors[x][6] = {0: np.array([0, 1], np.int32), 2: levels}
    y = w.op("DENSIFY", [x], w.tensor("float32", [3, 4]))
    z = w.op("ADD", [y, w.input("float32", [3, 4])], w.tensor("float32", [3, 4]))
    np.testing.assert_array_equal(ours(w.model([z]), np.zeros((3, 4), np.float32))[0], dense)
