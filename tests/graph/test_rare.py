"""Operators that few models have: deformable convolution, unpooling, packed weights, windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph.harness import check, natively
from tests.graph.interpreted import check_definition
from tilewright.graph import Builder, find_op
from tilewright.graph.evaluate import by_reference
from tilewright.support.errors import UserError

RNG = np.random.default_rng(14)
LOOSE: Any = {"rtol": 1e-4, "atol": 1e-4}


def normal(*shape: int, dtype: Any = "f4") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def test_deform_conv_without_offsets_is_a_convolution() -> None:
    x, w = normal(1, 2, 5, 5), normal(3, 2, 3, 3)
    conv = find_op("conv")
    (expected,) = conv.evaluate(*conv.bind([x, w], {}))
    check_definition("deform_conv", [x, w, np.zeros((1, 18, 3, 3), "f4")],
                     expected=expected, symbolic=False, **LOOSE)  # fmt: skip


def test_deform_conv() -> None:
    x, w = normal(1, 4, 5, 6), normal(4, 2, 2, 2)
    offset, mask = normal(1, 16, 3, 5) * 2, normal(1, 8, 3, 5)
    window = {"strides": [2, 1], "pads": [1, 0, 0, 0], "groups": 2, "offset_groups": 2}
    inputs = [x, w, offset, normal(4), mask]
    check_definition("deform_conv", inputs, symbolic=False, **window, **LOOSE)
    check_definition("deform_conv", [x, w, offset], symbolic=False, **window, **LOOSE)
    inputs = [normal(1, 2, 9), normal(3, 2, 3), normal(1, 3, 7), normal(3), normal(1, 3, 7)]
    check("deform_conv", inputs, symbolic=False, **LOOSE)


def test_max_unpool() -> None:
    x = normal(1, 2, 2, 2)
    indices = np.array([[[[5, 7], [13, 15]], [[16, 19], [24, 31]]]])
    check("max_unpool", [x, indices], shape=[1, 2, 4, 4], symbolic=False)
    check_definition("max_unpool", [x.astype("f8"), indices], shape=[1, 2, 4, 5], symbolic=False)
    op = find_op("max_unpool")
    for apply in (natively, by_reference):
        with pytest.raises(UserError, match="an index is outside the result"):
            apply(op, [x, indices + 900], {"shape": (1, 2, 4, 4)})


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_matmul_nbits(bits: int) -> None:
    depth, block, outputs = 40, 16, 5
    blocks = 3
    weight = RNG.integers(0, 256, (outputs, blocks, block * bits // 8)).astype("u1")
    scales, x = np.abs(normal(outputs, blocks)), normal(2, 3, depth)
    zeros = RNG.integers(0, 256, (outputs, -(-blocks * bits // 8))).astype("u1")
    options = {"depth": depth, "bits": bits, "block": block, "rtol": 1e-3, "atol": 1e-3}
    check_definition("matmul_nbits", [x, weight, scales], symbolic=False, **options)
    check_definition("matmul_nbits", [x, weight, scales, normal(outputs, blocks)],
                     symbolic=False, **options)  # fmt: skip
    inputs = [x, weight, scales, zeros, normal(outputs)]
    check("matmul_nbits", inputs, symbolic=False, **options)


@pytest.mark.parametrize("kind", ["hann", "hamming", "blackman"])
def test_windows(kind: str) -> None:
    for periodic in (True, False):
        options = {"kind": kind, "periodic": periodic, "symbolic": False}
        check_definition("window", [], size=10, **options)
        check_definition("window", [], size=1, **options)
        check_definition("window", [], size=7, dtype="f64", **options)
    check("window", [], size=30, kind=kind, symbolic=False)


def test_what_is_refused() -> None:
    b = Builder()
    x = b.input("x", "f32", (1, 4, 5, 5))
    with pytest.raises(UserError, match=r"dimension 1 of offsets .* differ: 9 and 18"):
        b.deform_conv(x, np.ones((2, 4, 3, 3), "f4"), np.ones((1, 9, 3, 3), "f4"))
    with pytest.raises(UserError, match="unknown window han"):
        b.window(size=3, kind="han")
    with pytest.raises(UserError, match="weights of 3 bits"):
        b.matmul_nbits(x, np.ones((1, 1, 4), "u1"), np.ones((1, 1), "f4"), depth=5, bits=3)
