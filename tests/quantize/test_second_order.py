"""Weights rounded by what the data says of their inputs: less error than to the nearest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.quantize.networks import normal, operators, perceptron, rng
from tilewright.graph import Builder, Module, verify
from tilewright.graph.ops.quantized.matmul_nbits import unpacked_bits
from tilewright.quantize.blocks import packed_rows
from tilewright.quantize.second_order import rounded_by_moments


def correlated(rows: int, depth: int, seed: int = 0) -> Any:
    """Samples that lie near a plane of few dimensions, as activations do."""
    mixing = rng(100).standard_normal((depth // 4, depth))
    few = rng(seed).standard_normal((rows, depth // 4))
    noise = 0.1 * rng(seed + 1).standard_normal((rows, depth))
    return (few @ mixing + noise).astype(np.float32)


def real(packed: Any, scales: Any, bits: int, group: int, depth: int) -> Any:
    steps = unpacked_bits(packed, bits)[..., :group].astype(np.float64) - 2 ** (bits - 1)
    return (steps * scales[..., None]).reshape(len(scales), -1)[:, :depth]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("depth", "group"), [(128, 32), (100, 32), (300, 64), (16, 16)])
def test_the_error_at_the_outputs_is_less(bits: int, depth: int, group: int) -> None:
    x, weight = correlated(400, depth), normal(24, depth, seed=3)
    moments = x.T.astype(np.float64) @ x
    errors = [
        np.linalg.norm(x @ (real(*found, bits, group, depth) - weight).T)
        for found in (
            rounded_by_moments(weight, moments, bits, group),
            packed_rows(weight, bits, group),
        )
    ]
    assert errors[0] < 0.75 * errors[1]


@pytest.mark.parametrize("moments", [np.zeros((40, 40)), np.eye(40)])
def test_inputs_that_say_nothing_leave_weights_to_the_nearest(moments: Any) -> None:
    weight = normal(8, 40, seed=1)
    for a, b in zip(
        rounded_by_moments(weight, moments, 4, 32), packed_rows(weight, 4, 32), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_inputs_that_are_never_seen_or_all_alike() -> None:
    x = correlated(50, 64)
    x[:, 10:20] = 0
    x[:, 30:] = x[:, 30:31]
    weight = normal(8, 64, seed=1)
    weight[3], weight[4, 5] = 0, 1e20
    packed, scales = rounded_by_moments(weight, x.T.astype(np.float64) @ x, 4, 32)
    assert np.isfinite(scales).all() and not real(packed, scales, 4, 32, 64)[3].any()


def test_a_network() -> None:
    module, data = perceptron(), correlated(200, 64, seed=5)
    plain = tw.quantize(module, data, weights="int4", validation=correlated(50, 64, seed=9))
    by_data = tw.quantize(
        module, data, weights="int4", method="gptq", validation=correlated(50, 64, seed=9)
    )
    verify(by_data)
    assert operators(by_data) == operators(plain)
    assert by_data.report.error is not None and plain.report.error is not None
    assert by_data.report.error.sqnr > plain.report.error.sqnr + 1
    assert by_data.report.method == "gptq, blocks of 32" and by_data.report.held_out


def shared_weights() -> Module:
    b = Builder()
    x = b.input("x", "f32", ("n", 48))
    weight = b.constant(normal(48, 48, seed=1, scale=0.2))
    y = b.matmul(b.relu(b.matmul(x, weight)), weight)
    b.output(b.matmul(y, normal(48, 20, seed=2)), names=["y"])
    return b.build()


def test_layers_that_share_their_weights_share_what_is_packed() -> None:
    q = tw.quantize(shared_weights(), correlated(64, 48), weights="int4", method="gptq")
    calls = [b.expr for b in q.main.body]
    packed = [c.args[1] for c in calls if c.args and len(c.args) > 2]
    assert operators(q).count("matmul_nbits") == 3 and packed[0] is packed[1]
    assert q.report.error is not None and q.report.error.sqnr > 12


def test_what_is_refused() -> None:
    rows = normal(16, 64)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"weights": "int4", "method": "gptq"}, "gptq without calibration data"),
        ({"data": rows, "method": "gptq"}, "gptq rounds weights alone"),
        ({"weights": "int4", "method": "entropy"}, "weights cannot be rounded by entropy"),
        ({"data": rows[:0], "weights": "int4", "method": "gptq"}, "no calibration data"),
    ]
    for options, message in refused:
        with pytest.raises(tw.UserError, match=message):
            tw.quantize(perceptron(), **options)
