"""Fused operators of com.microsoft: products, convolutions, activations, normalisation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from tilewright.frontends.common.images import channels_first, channels_last
from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.ops.activation import gelu
from tilewright.frontends.onnx.ops.convolution import convolved
from tilewright.frontends.onnx.ops.linear import gemm
from tilewright.frontends.onnx.ops.normalization import rms_norm
from tilewright.frontends.onnx.ops.pooling import max_pool_of
from tilewright.frontends.onnx.table import TABLE, converts
from tilewright.graph import Value
from tilewright.support.errors import UserError

_MS: Final = "com.microsoft"
TABLE.add("Gelu", gelu, domain=_MS)


# ---- products -----------------------------------------------------------------------------------


@converts("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", domain=_MS)
def fused_matmul(n: Node) -> Value:
    b = n.builder
    left, right = (
        _batch_in_front(n, x, n.flag(f"transBatch{side}")) for x, side in ((n[0], "A"), (n[1], "B"))
    )
    product = b.matmul(
        left,
        right,
        transpose_a=_is_transposed(n, left, "A"),
        transpose_b=_is_transposed(n, right, "B"),
    )
    alpha = n.real("alpha", 1.0)
    scaled = product if alpha == 1.0 else b.mul(product, n.scalar(alpha, product))
    return _activated(n, scaled) if n.has("activation") else scaled


def _is_transposed(n: Node, x: Value, side: str) -> bool:
    # Vectors are not transposed.
    return n.flag(f"trans{side}") and x.ndim > 1


def _batch_in_front(n: Node, x: Value, is_behind: bool) -> Value:
    """Matrices whose batch is between rows and columns, with the batch first."""
    if not is_behind:
        return x
    order = [*range(1, x.ndim - 1), 0, x.ndim - 1]
    return n.builder.transpose(x, axes=order)


@converts("FusedGemm", domain=_MS)
def fused_gemm(n: Node) -> Value:
    return _activated(n, gemm(n))


@converts("GemmFastGelu", domain=_MS)
def gemm_fast_gelu(n: Node) -> Value:
    product = n.builder.matmul(n[0], n[1])
    return _fast_gelu(n, product, n.get(2))


# ---- convolutions -------------------------------------------------------------------------------


@converts("FusedConv", domain=_MS)
def fused_conv(n: Node) -> Value:
    result = convolved(n, n[0], n[1], n.get(2))
    total = result if n.get(3) is None else n.builder.add(result, n[3])
    return _activated(n, total)


@converts("NhwcConv", "NhwcFusedConv", domain=_MS)
def nhwc_conv(n: Node) -> Value:
    """Channels of images are last; those of weights are not."""
    b = n.builder
    result = convolved(n, channels_first(n.builder, n[0]), n[1], n.get(2))
    if n.get(3) is not None:
        result = b.add(result, channels_first(n.builder, n[3]))
    return channels_last(n.builder, _activated(n, result))


@converts("NhwcMaxPool", domain=_MS)
def nhwc_max_pool(n: Node) -> Value:
    return channels_last(n.builder, max_pool_of(n, channels_first(n.builder, n[0])))


# ---- activations --------------------------------------------------------------------------------

_Activate = Callable[[Node, Value, list[float]], Value]
_ACTIVATIONS: Final[dict[str, _Activate]] = {
    "": lambda _n, x, _p: x,
    "Relu": lambda n, x, _p: n.builder.relu(x),
    "Sigmoid": lambda n, x, _p: n.builder.sigmoid(x),
    "Tanh": lambda n, x, _p: n.builder.tanh(x),
    "LeakyRelu": lambda n, x, p: n.builder.leaky_relu(x, alpha=p[0] if p else 0.01),
    "Clip": lambda n, x, p: n.builder.clip(x, *(n.scalar(v, x) for v in p[:2])),
    "HardSigmoid": lambda n, x, p: n.builder.hard_sigmoid(
        x, alpha=p[0] if p else 0.2, beta=p[1] if len(p) > 1 else 0.5
    ),
}


def _activated(n: Node, x: Value) -> Value:
    """The activation named by a fused node, with its parameters."""
    name = n.text("activation", "")
    if name not in _ACTIVATIONS:
        raise UserError(f"the activation {name}", remedy=f"known: {', '.join(_ACTIVATIONS)}")
    parameters = n.reals("activation_params", None)
    if parameters is None:
        names = ("activation_alpha", "activation_beta", "activation_gamma")
        parameters = [n.real(p) for p in names if n.has(p)]
    return _ACTIVATIONS[name](n, x, parameters)


@converts("BiasGelu", domain=_MS)
def bias_gelu(n: Node) -> Value:
    return n.builder.gelu(n.builder.add(n[0], n[1]))


@converts("FastGelu", domain=_MS)
def fast_gelu(n: Node) -> Value:
    return _fast_gelu(n, n[0], n.get(1))


def _fast_gelu(n: Node, x: Value, bias: Value | None) -> Value:
    total = x if bias is None else n.builder.add(x, bias)
    return n.builder.gelu(total, approximate="tanh")


@converts("QuickGelu", domain=_MS)
def quick_gelu(n: Node) -> Value:
    return n.builder.gelu_quick(n[0], alpha=n.real("alpha", 1.702))


@converts("BiasAdd", domain=_MS)
def bias_add(n: Node) -> Value:
    return n.builder.add(n.builder.add(n[0], n[1]), n[2])


@converts("BiasSplitGelu", domain=_MS)
def bias_split_gelu(n: Node) -> Value:
    """The first half times the gelu of the second."""
    b, total = n.builder, n.builder.add(n[0], n[1])
    half = total.shape[-1] // 2
    left, right = b.split(total, sizes=[half, half], axis=-1)
    return b.mul(left, b.gelu(right))


@converts("BiasSoftmax", domain=_MS)
def bias_softmax(n: Node) -> Value:
    x, bias, axis = n[0], n[1], n.integer("axis", 1)
    if not n.flag("is_inner_broadcast", True):
        # The bias has the outer dimensions; it is broadcast along those between.
        missing = x.ndim - bias.ndim
        bias = n.builder.unsqueeze(bias, axes=list(range(1, 1 + missing))) if missing else bias
    total = n.builder.add(x, bias)
    if axis % x.ndim == x.ndim - 1:
        return n.builder.softmax(total, axis=-1)
    flat = n.builder.flatten(total, axis=axis % x.ndim)
    return n.builder.reshape(n.builder.softmax(flat, axis=1), shape=x.shape)


# ---- normalisation ------------------------------------------------------------------------------


def simplified_layer_norm(n: Node) -> Value:
    return rms_norm(n)


for _domain in ("", _MS):
    TABLE.add("SimplifiedLayerNormalization", simplified_layer_norm, domain=_domain)


@converts("LayerNormalization", domain=_MS)
def layer_norm(n: Node) -> Any:
    return n.builder.layer_norm(
        n[0],
        n[1],
        n.get(2),
        axis=n.integer("axis", -1),
        epsilon=n.real("epsilon", 1e-5),
        return_stats=n.wants(1) or n.wants(2),
    )


@converts("SkipLayerNormalization", domain=_MS)
def skip_layer_norm(n: Node) -> list[Value | None]:
    """(input, skip, gamma, beta?, bias?) -> (output, mean, inverse deviation, sum)."""
    total = _with_skip(n, n.get(4))
    result: Any = n.builder.layer_norm(
        total, n[2], n.get(3), epsilon=n.real("epsilon", 1e-12), return_stats=n.wants(1)
    )
    parts = list(result) if n.wants(1) else [result, None, None]
    return [*parts, total]


@converts("SkipSimplifiedLayerNormalization", domain=_MS)
def skip_simplified_layer_norm(n: Node) -> list[Value | None]:
    total = _with_skip(n, n.get(3))
    result = n.builder.rms_norm(total, n[2], epsilon=n.real("epsilon", 1e-12))
    return [result, None, None, total]


def _with_skip(n: Node, bias: Value | None) -> Value:
    total = n.builder.add(n[0], n[1])
    return total if bias is None else n.builder.add(total, bias)


@converts("EmbedLayerNormalization", domain=_MS)
def embed_layer_norm(n: Node) -> list[Value | None]:
    """(ids, segments?, words, positions, segment table?, gamma, beta, mask?, position ids?)."""
    b, ids, segments = n.builder, n[0], n.get(1)
    places = n.get(8)
    if places is None:
        start, step = n.constant(0, "int64"), n.constant(1, "int64")
        places = b.unsqueeze(b.ramp(start, step, size=ids.shape[1]), axes=[0])
    total = b.add(b.gather(n[2], ids, axis=0), b.gather(n[3], places, axis=0))
    if segments is not None:
        total = b.add(total, b.gather(n[4], segments, axis=0))
    result = b.layer_norm(total, n[5], n[6], epsilon=n.real("epsilon", 1e-12))
    return [result, _lengths(n, ids), total]


def _lengths(n: Node, ids: Value) -> Value:
    """The number of unmasked tokens of each row; 0 where there is no mask."""
    b, mask = n.builder, n.get(7)
    if mask is None:
        return b.full(n.constant(0, "int32"), shape=ids.shape[:1])
    return b.sum(b.cast(mask, dtype="int32"), axes=[1])


@converts("GroupNorm", domain=_MS)
def group_norm(n: Node) -> Value:
    return _group_norm(n, n[0], n[1], n[2])


def _group_norm(n: Node, x: Value, gamma: Value, beta: Value) -> Value:
    """Channels may be last; a swish may follow."""
    b, is_last = n.builder, n.flag("channels_last", True)
    images = channels_first(n.builder, x) if is_last else x
    gamma, beta = (_as(n, p, x) for p in (gamma, beta))
    result = b.group_norm(
        images, gamma, beta, groups=n.integer("groups"), epsilon=n.real("epsilon", 1e-5)
    )
    result = b.swish(result) if n.flag("activation") else result
    return channels_last(n.builder, result) if is_last else result


def _as(n: Node, value: Value, like: Value) -> Value:
    return value if value.dtype is like.dtype else n.builder.cast(value, dtype=like.dtype)
