"""Attention of com.microsoft: packed projections, padding masks, caches."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.ops.attention import heads_apart, heads_together
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Dim, Value
from tilewright.ir import as_expr, maximum
from tilewright.support.errors import UserError

_MS: Final = "com.microsoft"


# ---- Attention ----------------------------------------------------------------------------------


@converts("Attention", domain=_MS)
def attention(n: Node) -> list[Value | None]:
    """(input, weights, bias?, mask?, past?, added?) with one matrix for queries, keys, values."""
    b, heads = n.builder, n.integer("num_heads")
    if n.flag("do_rotary") or n.flag("past_present_share_buffer"):
        raise UserError("Attention with rotary embeddings or a shared buffer")
    product = b.matmul(n[0], n[1])
    product = product if n.get(2) is None else b.add(product, n[2])
    query, key, value = (heads_apart(n, x, heads) for x in _three_parts(n, product))
    past = n.get(4)
    if past is not None:
        olds = [b.squeeze(p, axes=[0]) for p in b.split(past, sizes=[1, 1], axis=0)]
        key, value = (b.concat(old, x, axis=2) for old, x in zip(olds, (key, value), strict=True))
    mask = _combined(n, _padding_mask(n, n.get(3), query, key), n.get(5))
    result = _attended(n, query, key, value, mask)
    present = None
    if n.wants(1):
        present = b.concat(*(b.unsqueeze(x, axes=[0]) for x in (key, value)), axis=0)
    return [heads_together(n, result), present]


def _three_parts(n: Node, product: Value) -> list[Value]:
    sizes: list[Dim] = n.integers("qkv_hidden_sizes", None) or [product.shape[-1] // 3] * 3
    return list(n.builder.split(product, sizes=sizes, axis=-1))


def _attended(n: Node, query: Value, key: Value, value: Value, mask: Value | None) -> Value:
    past = as_expr(key.shape[2]) - query.shape[2]
    return n.builder.attention(
        query,
        key,
        value,
        mask,
        scale=n.real("scale", None) or None,
        causal=n.flag("unidirectional"),
        past_length=past if n.flag("unidirectional") else 0,
    )


def _padding_mask(n: Node, mask: Value | None, query: Value, key: Value) -> Value | None:
    """A mask of any allowed shape, as an addend of the scores."""
    if mask is None:
        return None
    b = n.builder
    if mask.ndim == 1:
        return _added(n, _below(n, mask, query, key), query)
    axes = {2: [1, 2], 3: [1]}.get(mask.ndim, [])
    shaped = b.unsqueeze(mask, axes=axes) if axes else mask
    return _added(n, b.not_equal(shaped, n.scalar(0, shaped)), query)


def _below(n: Node, lengths: Value, query: Value, key: Value) -> Value:
    """Which keys are before the end of each sequence, and after its start where that is given."""
    b = n.builder
    places = b.ramp(n.scalar(0, lengths), n.scalar(1, lengths), size=key.shape[2])
    batch = query.shape[0]
    ends = b.slice(lengths, starts=[0], ends=[batch], axes=[0])
    visible = b.less(places, b.reshape(ends, shape=[batch, 1, 1, 1]))
    if lengths.shape[0] is batch or n.is_equal(lengths.shape[0], batch):
        return visible
    starts = b.slice(lengths, starts=[batch], ends=[batch * 2], axes=[0])
    after = b.greater_equal(places, b.reshape(starts, shape=[batch, 1, 1, 1]))
    return b.logical_and(visible, after)


def _added(n: Node, visible: Value, like: Value) -> Value:
    """The addends for the scores of hidden keys: large, but not infinite."""
    hidden = n.scalar(n.real("mask_filter_value", -10000.0), like)
    return n.builder.where(visible, n.scalar(0.0, like), hidden)


def _combined(n: Node, first: Value | None, second: Value | None) -> Value | None:
    if first is None or second is None:
        return first if second is None else second
    return n.builder.add(first, second)


# ---- MultiHeadAttention -------------------------------------------------------------------------


@converts("MultiHeadAttention", domain=_MS)
def multi_head_attention(n: Node) -> list[Value | None]:
    """(query, key?, value?, bias?, padding mask?, added?, past key?, past value?)."""
    b = n.builder
    query, key, value = _operands(n)
    if n.get(6) is not None and n.get(7) is not None:
        key, value = b.concat(n[6], key, axis=2), b.concat(n[7], value, axis=2)
    mask = _combined(n, _padding_mask(n, n.get(4), query, key), n.get(5))
    result = _attended(n, query, key, value, mask)
    return [heads_together(n, result), key, value]


def _operands(n: Node) -> list[Value]:
    """Queries, keys and values, B×H×L×D each, however they are packed."""
    heads = n.integer("num_heads")
    if n.get(1) is None:
        if n.get(3) is not None:
            raise UserError("MultiHeadAttention with packed operands and a bias")
        return _unpacked(n, n[0], 3)
    query = n[0]
    if n[1].ndim == 5:
        return [heads_apart(n, query, heads), *_unpacked(n, n[1], 2)]
    parts = [query, n[1], n[2]]
    if n.get(3) is not None:
        parts = _biased(n, parts, n[3])
    return [x if x.ndim == 4 else heads_apart(n, x, heads) for x in parts]


def _unpacked(n: Node, x: Value, count: int) -> list[Value]:
    """B×L×H×count×D as `count` tensors B×H×L×D."""
    b = n.builder
    parts = b.split(x, sizes=[1] * count, axis=3)
    return [b.transpose(b.squeeze(p, axes=[3]), axes=[0, 2, 1, 3]) for p in parts]


def _biased(n: Node, parts: list[Value], bias: Value) -> list[Value]:
    b = n.builder
    # Keys and values with separate heads need no bias.
    sizes: list[Dim] = [x.shape[-1] if x.ndim == 3 else bias.shape[0] // 3 for x in parts]
    biases = b.split(bias, sizes=sizes, axis=0)
    pairs = zip(parts, biases, strict=True)
    return [b.add(x, v) if x.ndim == 3 else x for x, v in pairs]


# ---- GroupQueryAttention ------------------------------------------------------------------------


@converts("GroupQueryAttention", domain=_MS)
def group_query_attention(n: Node) -> list[Value | None]:
    """(query, key?, value?, past key?, past value?, last places, total length, cos?, sin?, …).

    New keys are written behind the old ones, at the end of each sequence of the batch.
    """
    b, heads, shared = n.builder, n.integer("num_heads"), n.integer("kv_num_heads")
    if n.flag("smooth_softmax") or n.get(11) is not None:
        raise UserError("GroupQueryAttention with attention sinks")
    query, key, value = _grouped(n, heads, shared)
    ends = b.add(b.cast(n[5], dtype="int64"), n.constant(1, "int64"))
    starts = _starts(n, ends)
    if n.flag("do_rotary"):
        places = _query_places(n, starts, query.shape[2])
        query, key = (_rotated(n, x, places) for x in (query, key))
    total = n.dim(6)
    key = _written(n, n.get(3), key, starts, total)
    value = _written(n, n.get(4), value, starts, total)
    result = b.attention(
        query,
        key,
        value,
        _causal_mask(n, query, key, starts, ends),
        scale=n.real("scale", None) or None,
        softcap=n.real("softcap", 0.0),
    )
    return [heads_together(n, result), key, value]


def _grouped(n: Node, heads: int, shared: int) -> list[Value]:
    b, query = n.builder, n[0]
    if n.get(1) is not None:
        return [heads_apart(n, x, h) for x, h in ((query, heads), (n[1], shared), (n[2], shared))]
    depth = query.shape[-1] // (heads + 2 * shared)
    sizes: list[Dim] = [depth * heads, depth * shared, depth * shared]
    parts = b.split(query, sizes=sizes, axis=-1)
    counts = (heads, shared, shared)
    return [heads_apart(n, x, h) for x, h in zip(parts, counts, strict=True)]


def _starts(n: Node, ends: Value) -> Value:
    """The positions of the new keys of each sequence: from 0 if there are no old ones."""
    b = n.builder
    count = b.shape_of(n[0], start=1, end=2)
    total = b.cast(b.reshape(n[6], shape=[1]), dtype="int64")
    behind = b.sub(ends, count)
    flat = b.reshape(behind, shape=[-1])
    return b.where(b.equal(total, count), n.constant(0, "int64"), flat)


def _query_places(n: Node, starts: Value, length: Dim) -> Value:
    """The position of each new token: batch × token."""
    b = n.builder
    steps = b.ramp(n.constant(0, "int64"), n.constant(1, "int64"), size=length)
    return b.add(b.unsqueeze(starts, axes=[1]), steps)


def _rotated(n: Node, x: Value, places: Value) -> Value:
    given = n.get(9)
    return n.builder.rotary_embedding(
        x,
        n[7],
        n[8],
        places if given is None else given,
        interleaved=n.flag("rotary_interleaved"),
        rotary_dim=_rotary_size(n[7]),
    )


def _rotary_size(cos: Value) -> int:
    return 2 * cos.tensor.static_shape[-1] if cos.tensor.is_static else 0


def _written(n: Node, past: Value | None, new: Value, starts: Value, total: Dim) -> Value:
    """The cache with the new keys in it, extended if it is too short."""
    if past is None:
        return new
    b, have = n.builder, past.shape[2]
    size = maximum(as_expr(total), have)
    after: list[Any] = [0, 0, size - have, 0]
    room = b.pad(past, before=[0, 0, 0, 0], after=after)
    return b.tensor_scatter(room, new, starts, axis=2)


def _causal_mask(n: Node, query: Value, key: Value, starts: Value, ends: Value) -> Value:
    """The mask of the keys that each token attends to, as an addend of the scores."""
    b = n.builder
    places = b.unsqueeze(_query_places(n, starts, query.shape[2]), axes=[1, 3])
    keys = b.ramp(n.constant(0, "int64"), n.constant(1, "int64"), size=key.shape[2])
    visible = b.less_equal(keys, places)
    counted = b.less(keys, b.reshape(ends, shape=[-1, 1, 1, 1]))
    visible = b.logical_and(visible, counted)
    window = n.integer("local_window_size", -1)
    if window > 0:
        near = b.less(b.sub(places, keys), n.constant(window, "int64"))
        visible = b.logical_and(visible, near)
    hidden = n.scalar(-np.inf, query)
    mask = b.where(visible, n.scalar(0.0, query), hidden)
    return mask if n.get(10) is None else b.add(mask, n[10])


# ---- RotaryEmbedding ----------------------------------------------------------------------------


@converts("RotaryEmbedding", domain=_MS)
def rotary_embedding(n: Node) -> Value:
    """(input, position ids, cos, sin); one position is that of the first token."""
    b, x, size = n.builder, n[0], n.integer("rotary_embedding_dim", 0)
    cos, sin = n[2], n[3]
    flat = x.ndim == 3
    if flat:
        heads = n.integer("num_heads", 0) or _count_heads(x, cos)
        x = heads_apart(n, x, heads)
    places = n[1]
    if places.ndim < 2:
        first = b.reshape(places, shape=[1])
        starts = b.expand(first, shape=[x.shape[0]])
        places = _query_places(n, starts, x.shape[2])
    scale = n.real("scale", 1.0)
    if scale != 1.0:
        raise UserError(f"RotaryEmbedding with the scale {scale}")
    result = b.rotary_embedding(
        x, cos, sin, places, interleaved=n.flag("interleaved"), rotary_dim=size
    )
    return heads_together(n, result) if flat else result


def _count_heads(x: Value, cos: Value) -> int:
    depth = 2 * cos.tensor.static_shape[-1]
    return x.tensor.with_shape(x.shape[-1:]).static_shape[0] // depth
