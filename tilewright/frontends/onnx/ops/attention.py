"""Attention and rotary embeddings."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.frontends.common.padding import dim_number
from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Dim, Value
from tilewright.support.errors import UserError

#: The stage of the scores in the fourth output, by the number of the mode.
_STAGES: Final = ("scaled", "capped", "masked", "softmax")


@converts("Attention")
def attention(n: Node) -> list[Value | None]:
    b, flat = n.builder, n[0].ndim == 3
    query, key, value = n[0], n[1], n[2]
    if flat:
        heads, shared = n.integer("q_num_heads"), n.integer("kv_num_heads")
        query, key, value = (
            heads_apart(n, x, h) for x, h in ((query, heads), (key, shared), (value, shared))
        )
    if not query.ndim == key.ndim == value.ndim == 4:
        raise UserError(f"attention of {query}, {key} and {value}")
    past: Dim = 0
    if n.get(4) is not None:
        past = n[4].shape[2]
        key, value = (b.concat(old, x, axis=2) for old, x in ((n[4], key), (n[5], value)))
    result, scores = _attended(n, query, key, value, past)
    return [heads_together(n, result) if flat else result, key, value, scores]


def _attended(
    n: Node, query: Value, key: Value, value: Value, past: Dim
) -> tuple[Value, Value | None]:
    mode = n.integer("qk_matmul_output_mode", 0)
    if not 0 <= mode < len(_STAGES):
        raise UserError(f"qk_matmul_output_mode is {mode}")
    found: Any = n.builder.attention(
        query,
        key,
        value,
        _whole_mask(n, n.get(3), key.shape[2]),
        n.get(6),
        scale=n.real("scale", None),
        causal=n.flag("is_causal"),
        past_length=past,
        left_window=n.integer("left_window_size", -1),
        right_window=n.integer("right_window_size", -1),
        softcap=n.real("softcap", 0.0),
        scores=_STAGES[mode] if n.wants(3) else "none",
    )
    return found if n.wants(3) else (found, None)


def _whole_mask(n: Node, mask: Value | None, keys: Dim) -> Value | None:
    """A mask for all keys; those beyond it are hidden."""
    if mask is None or mask.ndim == 0:
        return mask
    have, want = dim_number(mask.shape[-1]), dim_number(keys)
    if not (isinstance(have, int) and isinstance(want, int) and 1 < have < want):
        return mask
    after = [*[0] * (mask.ndim - 1), want - have]
    hidden = n.scalar(False if mask.dtype.is_bool else -np.inf, mask)
    return n.builder.pad(mask, hidden, before=[0] * mask.ndim, after=after)


def heads_apart(n: Node, x: Value, heads: int) -> Value:
    """B×L×(H·D) as B×H×L×D."""
    if heads < 1 or x.ndim != 3:
        raise UserError(f"{x} has no {heads} heads", reason="it must be batch × tokens × width")
    batch, length, width = x.shape
    parts = n.builder.reshape(x, shape=[batch, length, heads, width // heads])
    return n.builder.transpose(parts, axes=[0, 2, 1, 3])


def heads_together(n: Node, x: Value) -> Value:
    """B×H×L×D as B×L×(H·D)."""
    batch, heads, length, depth = x.shape
    transposed = n.builder.transpose(x, axes=[0, 2, 1, 3])
    return n.builder.reshape(transposed, shape=[batch, length, heads * depth])


@converts("RotaryEmbedding", since=23)
def rotary_embedding(n: Node) -> Value:
    flat = n[0].ndim == 3
    x = heads_apart(n, n[0], n.integer("num_heads")) if flat else n[0]
    result = n.builder.rotary_embedding(
        x,
        n[1],
        n[2],
        n.get(3),
        interleaved=n.flag("interleaved"),
        rotary_dim=n.integer("rotary_embedding_dim", 0),
    )
    return heads_together(n, result) if flat else result
