"""Operators of com.microsoft against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.onnx.models import applied, one
from tests.frontends.onnx.peer import compare, run_peer

RNG = np.random.default_rng(11)


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def u8(*shape: int) -> Any:
    return RNG.integers(0, 255, shape).astype(np.uint8)


def u7(*shape: int) -> Any:
    return RNG.integers(0, 128, shape).astype(np.uint8)


def i7(*shape: int) -> Any:
    """Weights whose sums by pairs fit 16 bits, where the runtime's sums stop on some processors."""
    return RNG.integers(-63, 64, shape).astype(np.int8)


def i8(*shape: int) -> Any:
    return RNG.integers(-127, 127, shape).astype(np.int8)


def i32(*numbers: int) -> Any:
    return np.array(numbers, np.int32)


def scale(value: float) -> Any:
    return np.array(value, np.float32)


def zero(value: int) -> Any:
    return np.array(value, np.uint8)


# ---- fused products, convolutions, activations --------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "attrs"),
    [
        (f(2, 3, 4), f(2, 4, 5), {"alpha": 0.5}),
        (f(2, 4, 3), f(2, 5, 4), {"transA": 1, "transB": 1}),
        (f(3, 2, 4), f(2, 4, 5), {"transBatchA": 1}),
        (f(4, 2, 3), f(2, 4, 5), {"transBatchA": 1, "transA": 1}),
    ],
)
def test_fused_matmul(a: Any, b: Any, attrs: dict) -> None:
    compare("FusedMatMul", [a, b], **attrs)


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [("Relu", []), ("Clip", [0.0, 1.0]), ("LeakyRelu", [0.1]), ("HardSigmoid", [0.3, 0.4])],
)
def test_fused_conv(activation: str, parameters: list[float]) -> None:
    attrs: dict[str, Any] = {"activation_params": parameters} if parameters else {}
    operands = [f(1, 3, 7, 7), f(4, 3, 3, 3), f(4)]
    compare("FusedConv", operands, activation=activation, pads=[1, 1, 1, 1], **attrs)


def test_other_fused_products() -> None:
    image, kernel, bias = f(1, 3, 7, 7), f(4, 3, 3, 3), f(4)
    compare("FusedConv", [image, kernel, bias, f(1, 4, 5, 5)], activation="Relu")
    compare("FusedGemm", [f(3, 4), f(5, 4), f(5)], transB=1, activation="Tanh")
    leaky: dict[str, Any] = {"activation": "LeakyRelu", "activation_alpha": 0.2}
    compare("FusedGemm", [f(3, 4), f(4, 5), f(5)], **leaky)


def test_activations() -> None:
    compare("Gelu", [f(3, 4)])
    compare("BiasGelu", [f(3, 4), f(4)])
    compare("FastGelu", [f(3, 4), f(4)])
    compare("QuickGelu", [f(3, 4)], alpha=1.5)


def test_images_with_channels_last() -> None:
    """Beside a plain convolution: on x86-64, ONNX Runtime has none for such images."""
    image, kernel, bias = f(1, 7, 7, 3), f(4, 3, 3, 3), f(4)
    got = applied("NhwcFusedConv", image, kernel, bias, domain="com.microsoft")[0]
    plain = one("Conv", [image.transpose(0, 3, 1, 2), kernel, bias])
    (want,) = run_peer(plain, [np.ascontiguousarray(image.transpose(0, 3, 1, 2)), kernel, bias])
    np.testing.assert_allclose(got, want.transpose(0, 2, 3, 1), rtol=1e-4, atol=1e-4)


def test_what_the_runtime_has_no_kernel_for() -> None:
    x, bias, skip = f(2, 3, 4), f(4), f(2, 3, 4)
    got = applied("BiasAdd", x, bias, skip, domain="com.microsoft")[0]
    np.testing.assert_allclose(got, x + bias + skip, rtol=1e-6)
    scores, mask = f(2, 3, 4, 5), f(2, 1, 1, 5)
    soft = applied("BiasSoftmax", scores, mask, domain="com.microsoft", axis=3)[0]
    powers = np.exp(scores + mask)
    np.testing.assert_allclose(soft, powers / powers.sum(-1, keepdims=True), rtol=1e-5)


def test_normalisation() -> None:
    x, skip, gamma, beta, bias = f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)
    compare("SimplifiedLayerNormalization", [x, gamma], domain="", axis=-1, epsilon=1e-5)
    compare("SkipLayerNormalization", [x, skip, gamma, beta, bias], epsilon=1e-5)
    compare("SkipSimplifiedLayerNormalization", [x, skip, gamma, bias], epsilon=1e-5)


def test_embeddings() -> None:
    ids = RNG.integers(0, 10, (2, 3)).astype(np.int32)
    tables = [f(10, 8), f(6, 8), f(2, 8), f(8), f(8)]
    segments = np.array([[0, 1, 1], [0, 0, 1]], np.int32)
    mask = np.array([[1, 1, 0], [1, 1, 1]], np.int32)
    compare("EmbedLayerNormalization", [ids, segments, *tables, mask], count=2, epsilon=1e-5)
    compare("EmbedLayerNormalization", [ids, None, *tables[:2], None, *tables[3:]], count=2)


# ---- attention ----------------------------------------------------------------------------------

B, L, H, N = 2, 4, 8, 2
PAST = f(2, B, N, 3, H // N)


@pytest.mark.parametrize(
    ("rest", "attrs"),
    [
        ([], {}),
        ([], {"unidirectional": 1}),
        ([np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)], {}),
        ([i32(3, 2)], {}),
        ([i32(4, 4, 1, 2)], {}),
        ([RNG.integers(0, 2, (B, L, L)).astype(np.int32)], {}),
        ([None, PAST], {"unidirectional": 1, "count": 2}),
        ([np.ones((B, L + 3), np.int32), PAST], {"unidirectional": 1, "count": 2}),
        ([None, None, f(B, N, L, L)], {}),
    ],
)
def test_attention(rest: list[Any], attrs: dict) -> None:
    compare("Attention", [f(B, L, H), f(H, 3 * H), f(3 * H), *rest], num_heads=N, **attrs)


def test_attention_whose_values_are_narrower() -> None:
    operands = [f(B, L, H), f(H, 20), f(20)]
    compare("Attention", operands, num_heads=N, qkv_hidden_sizes=[8, 8, 4])


@pytest.mark.parametrize(
    ("operands", "attrs"),
    [
        ([f(B, L, H), f(B, 5, H), f(B, 5, H)], {}),
        ([f(B, L, H), f(B, 5, H), f(B, 5, H), f(3 * H)], {}),
        ([f(B, L, H), f(B, 5, H), f(B, 5, H), None, i32(3, 4)], {}),
        ([f(B, L, H), f(B, 5, H), f(B, 5, H), None, None, f(B, N, L, 5)], {}),
        ([f(B, L, H), f(B, L, H), f(B, L, H)], {"unidirectional": 1}),
        ([f(B, L, H), f(B, N, 5, 4), f(B, N, 5, 4)], {}),
        (
            [f(B, L, H), f(B, L, H), f(B, L, H), None, None, None, f(B, N, 3, 4), f(B, N, 3, 4)],
            {"count": 3},
        ),
    ],
)
def test_multi_head_attention(operands: list[Any], attrs: dict) -> None:
    compare("MultiHeadAttention", operands, num_heads=N, **attrs)


def test_packed_attention_is_what_it_packs() -> None:
    packed = f(B, L, N, 3, 4)
    apart = [packed[:, :, :, k].reshape(B, L, N * 4) for k in range(3)]
    options: dict[str, Any] = {"domain": "com.microsoft", "num_heads": N}
    got = applied("MultiHeadAttention", packed, **options)[0]
    want = applied("MultiHeadAttention", *apart, **options)[0]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("length", "past", "ends", "attrs"),
    [
        (5, 0, (5, 5), {}),
        (5, 0, (5, 3), {}),
        (1, 6, (7, 7), {}),
        (5, 0, (5, 5), {"do_rotary": 1}),
        (1, 6, (7, 7), {"do_rotary": 1, "rotary_interleaved": 1}),
        (5, 0, (5, 5), {"local_window_size": 2}),
        (5, 0, (5, 5), {"softcap": 2.0}),
    ],
)
def test_group_query_attention(length: int, past: int, ends: Any, attrs: dict) -> None:
    compare("GroupQueryAttention", grouped(length, past, ends, attrs), count=3, **HEADS, **attrs)


HEADS: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2}


def grouped(length: int, past: int, ends: Any, attrs: dict) -> list[Any]:
    fresh = [f(2, length, h * 16) for h in (4, 2, 2)]
    old = [f(2, 2, past, 16), f(2, 2, past, 16)]
    angles = [f(32, 8), f(32, 8)] if attrs.get("do_rotary") else []
    last = i32(*(e - 1 for e in ends))
    return [*fresh, *old, last, np.array(past + length, np.int32), *angles]


def test_sequences_of_different_lengths_go_on_where_they_ended() -> None:
    """The runtime leaves what lies behind the end of a sequence undefined: compare without it."""
    operands = grouped(1, 6, (7, 5), {})
    compare("GroupQueryAttention", operands, count=3, compared=1, **HEADS)


@pytest.mark.parametrize(
    ("x", "places", "size", "attrs"),
    [
        (f(2, 4, 32), np.arange(8).reshape(2, 4), 8, {}),
        (f(2, 4, 32), np.array([2]), 8, {"interleaved": 1}),
        (f(2, 2, 4, 16), np.array([2]), 8, {}),
        (f(2, 4, 32), np.array([2]), 4, {"rotary_embedding_dim": 8, "num_heads": 2}),
    ],
)
def test_rotary_embedding(x: Any, places: Any, size: int, attrs: dict) -> None:
    compare("RotaryEmbedding", [x, places, f(16, size), f(16, size)], **attrs)


# ---- quantized ----------------------------------------------------------------------------------

ONE = [scale(0.1), zero(128)]
TWO = [scale(0.2), zero(100)]


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
def test_quantized_arithmetic(op: str) -> None:
    result = [scale(3.0 if op == "QLinearMul" else 0.3), zero(120)]
    compare(op, [u8(3, 4), *ONE, u8(3, 4), *TWO, *result], slack=1)


def test_quantized_functions() -> None:
    fine = [scale(0.05), zero(128)]
    unit = [scale(1 / 256), zero(0)]
    compare("QLinearSigmoid", [u8(3, 4), *fine, *unit], slack=1)
    compare("QLinearLeakyRelu", [u8(3, 4), *fine, scale(0.05), zero(30)], slack=1, alpha=0.1)
    soft: dict[str, Any] = {"axis": -1, "opset": 13, "constants": (1, 2, 3, 4)}
    compare("QLinearSoftmax", [u8(3, 4), *fine, *unit], slack=1, **soft)
    choice = [np.array([[True, False, True]]), u8(2, 3), *ONE, u8(2, 3), *TWO, *fine]
    compare("QLinearWhere", choice, slack=1, constants=(2, 3, 5, 6, 7, 8))
    parts = [*ONE, u8(2, 3), *TWO, u8(2, 4), *fine]
    compare("QLinearConcat", parts, slack=1, axis=1, constants=(0, 1, 3, 4, 6, 7))


def test_quantized_pooling() -> None:
    rest = [scale(0.05), zero(128), scale(0.05), zero(120)]
    compare("QLinearAveragePool", [u8(1, 2, 6, 6), *rest], slack=1, kernel_shape=[2, 2])
    last: dict[str, Any] = {"kernel_shape": [2, 2], "channels_last": 1}
    compare("QLinearAveragePool", [u8(1, 6, 6, 2), *rest], slack=1, **last)
    compare("QLinearGlobalAveragePool", [u8(1, 2, 6, 6), *rest], slack=1, channels_last=0)


def test_quantized_products() -> None:
    """Of seven bits on one side: the runtime's own sums of two products stop at 16 bits on
    processors without dot products."""
    bias = RNG.integers(-50, 50, 5).astype(np.int32)
    per_column = [np.full(5, 0.2, np.float32), zero(100), i8(5), f(5)]
    compare("MatMulIntegerToFloat", [u7(3, 4), i8(4, 5), scale(0.1), *per_column])
    compare("DynamicQuantizeMatMul", [f(3, 4), i7(4, 5), scale(0.1), np.array(3, np.int8), f(5)])
    weight = [scale(0.2), np.array(3, np.int8), bias]
    compare("QGemm", [u7(3, 4), *ONE, i8(4, 5), *weight, scale(3.0), zero(100)], slack=1)
    compare("QGemm", [u7(3, 4), *ONE, i8(5, 4), *weight], transB=1)
    image = [u7(1, 5, 5, 3), *ONE, i8(4, 3, 3, 3), scale(0.1), np.array(0, np.int8)]
    compare("QLinearConv", [*image, scale(1.0), zero(100)], slack=1, channels_last=1)


@pytest.mark.parametrize(("bits", "depth"), [(4, 32), (4, 40), (8, 32)])
@pytest.mark.parametrize("with_zeros", [False, True])
def test_weights_of_a_few_bits(bits: int, depth: int, with_zeros: bool) -> None:
    blocks = -(-depth // 16)
    operands = [f(3, depth), u8(6, blocks, 2 * bits), np.abs(f(6 * blocks))]
    zeros = [u8(6 * -(-blocks * bits // 8))] if with_zeros else []
    attrs: dict[str, Any] = {"K": depth, "N": 6, "bits": bits, "block_size": 16}
    places = tuple(range(1, 3 + len(zeros)))
    compare("MatMulNBits", [*operands, *zeros], constants=places, **attrs)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("by_column", [False, True])
def test_a_quantized_lstm(direction: str, by_column: bool) -> None:
    """Inputs and states are rounded to bytes as the runtime does."""
    d = 2 if direction == "bidirectional" else 1
    shape = (d, 16) if by_column else (d,)
    ranges = [np.full(shape, 0.02, np.float32), np.full(shape, 0 if by_column else 3, np.int8)] * 2
    weights = [i7(d, 3, 16), i7(d, 4, 16), f(d, 32)]
    operands = [f(5, 2, 3), *weights, None, f(d, 2, 4), f(d, 2, 4), None, *ranges]
    constants = (1, 2, 3, 8, 9, 10, 11)
    given: dict[str, Any] = {"constants": constants, "hidden_size": 4, "direction": direction}
    compare("DynamicQuantizeLSTM", operands, count=3, rtol=1e-4, atol=1e-5, **given)


def test_a_quantized_lstm_with_other_gates() -> None:
    """The runtime quantizes inputs too, so that it is less exact than we are."""
    scales = [np.array([0.02], np.float32), np.array([0], np.int8)] * 2
    operands = [f(5, 2, 3), i7(1, 3, 16), i7(1, 4, 16), f(1, 32), None, None, None, None, *scales]
    loose: dict[str, Any] = {"rtol": 0.1, "atol": 0.05, "constants": (1, 2, 3, 8, 9, 10, 11)}
    compare("DynamicQuantizeLSTM", operands, count=3, hidden_size=4, input_forget=1, **loose)
