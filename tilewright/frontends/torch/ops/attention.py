"""Attention, and the layers around it that torch computes by one operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.frontends.common.padding import simplified
from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.ops.shapes import reshaped
from tilewright.frontends.torch.table import converts
from tilewright.frontends.torch.tensors import element_type
from tilewright.graph import Dim, Value
from tilewright.ir import as_expr
from tilewright.support.errors import UserError


@converts("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu")
def attention(n: Node) -> Any:
    if n.get("dropout_p", 0.0):
        raise UserError("attention with dropout", reason="it is random")
    b, lead = n.builder, n.shape[:-2]
    q, k, v = (_four(n, n.tensor(name), lead) for name in ("query", "key", "value"))
    mask = _mask(n, lead, [q.shape[2], k.shape[2]])
    causal = bool(n.get("is_causal", False))
    made = b.attention(q, k, v, mask, scale=n.get("scale"), causal=causal)
    made = reshaped(n, made, n.shape)
    if len(n.results) == 1:
        return made
    # Derivatives are computed from it; it is dropped if nobody uses it.
    sums = b.log_sum_exp(_scores(n, q, k, mask, causal), axes=[3], keepdims=False)
    meta = n.results[1]
    return [made, n.cast(reshaped(n, sums, n.shape_of(meta)), element_type(meta.dtype))]


def _four(n: Node, x: Value, lead: Sequence[Dim]) -> Value:
    """A tensor as batch×heads×length×width; the dimensions before the last two are broadcast."""
    own = list(lead)
    if n.get("enable_gqa", False) or not n.op.startswith("scaled"):
        # Queries share the heads of keys and values.
        own[-1:] = x.shape[-3:-2]
    x = n.expanded(x, [*own, *x.shape[-2:]])
    if len(own) == 2:
        return x
    if len(own) < 2:
        return n.builder.reshape(x, shape=[*own, *[1] * (2 - len(own)), *x.shape[-2:]])
    return n.builder.reshape(x, shape=[-1, *own[-1:], *x.shape[-2:]])


def _mask(n: Node, lead: Sequence[Dim], sizes: Sequence[Dim]) -> Value | None:
    """The mask, for heads of a batch: truth values, or addends."""
    mask, b = n.maybe("attn_mask"), n.builder
    if mask is None:
        return None
    if not mask.dtype.is_bool:
        mask = n.cast(mask, n.dtype)
    if len(lead) == 1 and mask.ndim == 3:
        return b.unsqueeze(mask, axes=[1])
    if len(lead) > 2:
        mask = n.expanded(mask, [*lead, *sizes])
        return b.reshape(mask, shape=[-1, *lead[-1:], *sizes])
    return mask


def _scores(n: Node, q: Value, k: Value, mask: Value | None, causal: bool) -> Value:
    """The operand of the softmax."""
    b = n.builder
    shared = simplified(as_expr(q.shape[1]) // as_expr(k.shape[1]))
    if shared != 1:
        k = b.repeat_elements(k, repeats=shared, axis=1)
    scale = n.get("scale")
    if scale is None:
        width = n.number(q.shape[3], q.dtype)
        scores = b.div(b.matmul(q, b.transpose(k, axes=[0, 1, 3, 2])), b.sqrt(width))
    else:
        scores = b.matmul(q, b.transpose(k, axes=[0, 1, 3, 2]))
        scores = b.mul(scores, n.like(float(scale), scores))
    lowest = n.like(float("-inf"), scores)
    if causal:
        zero, one = n.constant(0, "int64"), n.constant(1, "int64")
        rows = b.unsqueeze(b.ramp(zero, one, size=q.shape[2]), axes=[1])
        scores = b.where(b.less_equal(b.ramp(zero, one, size=k.shape[2]), rows), scores, lowest)
    if mask is None:
        return scores
    return b.where(mask, scores, lowest) if mask.dtype.is_bool else b.add(scores, mask)


# ---- layers as one operator ---------------------------------------------------------------------


@converts("_native_multi_head_attention")
def multi_head_attention(n: Node) -> list[Any]:
    b = n.builder
    given = [n.tensor(name) for name in ("query", "key", "value")]
    weights = _parts(n, n.tensor("qkv_weight"))
    biases = _parts(n, n.tensor("qkv_bias"))
    projected = [b.dense(x, w, c) for x, w, c in zip(given, weights, biases, strict=True)]
    made, shares = _heads(n, projected, int(n["num_head"]))
    made = b.dense(made, n.tensor("proj_weight"), n.tensor("proj_bias"))
    if not n["need_weights"]:
        return [made, None]
    return [made, b.mean(shares, axes=[1]) if n["average_attn_weights"] else shares]


@converts("_transformer_encoder_layer_fwd")
def encoder_layer(n: Node) -> Value:
    b, x = n.builder, n.tensor("src")

    def normed(x: Value, which: int) -> Value:
        scale, bias = (n.tensor(f"norm_{kind}_{which}") for kind in ("weight", "bias"))
        return b.layer_norm(x, scale, bias, axis=x.ndim - 1, epsilon=float(n["eps"]))

    def attended(x: Value) -> Value:
        joined = b.dense(x, n.tensor("qkv_weight"), n.tensor("qkv_bias"))
        size = joined.shape[2] // 3
        parts = b.emit_all("split", [joined], {"sizes": [size] * 3, "axis": 2})
        made, _ = _heads(n, parts, int(n["num_heads"]))
        return b.dense(made, n.tensor("proj_weight"), n.tensor("proj_bias"))

    def fed(x: Value) -> Value:
        inner = b.dense(x, n.tensor("ffn_weight_1"), n.tensor("ffn_bias_1"))
        inner = b.gelu(inner) if n["use_gelu"] else b.relu(inner)
        return b.dense(inner, n.tensor("ffn_weight_2"), n.tensor("ffn_bias_2"))

    if n["norm_first"]:
        x = b.add(x, attended(normed(x, 1)))
        return b.add(x, fed(normed(x, 2)))
    x = normed(b.add(x, attended(x)), 1)
    return normed(b.add(x, fed(x)), 2)


def _parts(n: Node, joined: Value) -> list[Value]:
    """The weights of queries, keys and values, which are stored one after the other."""
    size = joined.shape[0] // 3
    return list(n.builder.emit_all("split", [joined], {"sizes": [size] * 3, "axis": 0}))


def _heads(n: Node, projected: Sequence[Value], heads: int) -> tuple[Value, Value]:
    """Attention of B×T×E by heads: B×T×E, and the shares of the keys for each query, B×H×T×S."""
    b = n.builder
    q, k, v = (
        b.transpose(
            b.reshape(x, shape=[*x.shape[:2], heads, x.shape[2] // heads]), axes=[0, 2, 1, 3]
        )
        for x in projected
    )
    width = n.number(q.shape[3], q.dtype)
    scores = b.div(b.matmul(q, b.transpose(k, axes=[0, 1, 3, 2])), b.sqrt(width))
    mask = n.maybe("mask")
    if mask is not None:
        hidden = mask if mask.dtype.is_bool else b.not_equal(mask, n.like(0, mask))
        if n.get("mask_type") == 1:
            # One mask for the keys of each batch element.
            hidden = b.unsqueeze(hidden, axes=[1, 2])
        scores = b.where(hidden, n.like(float("-inf"), scores), scores)
    shares = b.softmax(scores, axis=3)
    joined = b.transpose(b.matmul(shares, v), axes=[0, 2, 1, 3])
    return b.reshape(joined, shape=list(projected[0].shape)), shares
