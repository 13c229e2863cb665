"""Attention."""

from __future__ import annotations

import math
from typing import Any

from tilewright.frontends.keras.config import as_list
from tilewright.frontends.keras.layer import Layer, tensors
from tilewright.frontends.keras.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError


def _inputs(n: Layer) -> tuple[Value, Value, Value]:
    """Query, value and key; the value is the key where none is given."""
    found = list(tensors(n.args[0] if n.args else n.kwargs.get("inputs")))
    if len(found) not in (2, 3):
        raise UserError(f"attention gets {len(found)} inputs", reason="it takes two or three")
    query, value = (n.computed(v) for v in found[:2])
    return query, value, n.computed(found[2]) if len(found) == 3 else value


def _least(n: Layer, x: Value) -> Value:
    return n.scalar(-65504.0 if x.dtype.name == "float16" else -1e9, x)


def _causal(n: Layer, scores: Value) -> Value:
    """True where a query attends to a key: not later than itself."""
    b = n.builder
    rows, columns = scores.shape[-2:]
    ones = b.full(n.constant(1, "int32"), shape=[rows, columns])
    return b.cast(b.trilu(ones, k=0, upper=False), dtype="bool")


def _hidden(n: Layer, scores: Value, mask: Value | None) -> Value:
    if mask is None:
        return scores
    return n.builder.where(mask, scores, _least(n, scores))


def _attended(n: Layer, scores: Value, value: Value) -> Any:
    b = n.builder
    given = n.argument(1, "mask")
    masks = as_list(given) or [None, None]
    query_mask, value_mask = [
        m if isinstance(m, Value) else n.mask_of(x)
        for m, x in zip([*masks, None, None], n.inputs[:2], strict=False)
    ]
    if value_mask is not None:
        scores = _hidden(n, scores, b.unsqueeze(value_mask, axes=[1]))
    if n.kwargs.get("use_causal_mask"):
        scores = _hidden(n, scores, _causal(n, scores))
    weights = b.softmax(scores, axis=-1)
    result = b.matmul(weights, value)
    if query_mask is not None:
        result = result * b.cast(b.unsqueeze(query_mask, axes=[2]), dtype=result.dtype)
        n.masked(result, query_mask)
    return [result, weights] if n.kwargs.get("return_attention_scores") else result


@converts("Attention")
def attention(n: Layer) -> Any:
    query, value, key = _inputs(n)
    b = n.builder
    concat = n.config.text("score_mode", "dot") == "concat"
    uses_scale = n.config.flag("use_scale")
    found = n.weights("scale" if uses_scale else None, "concat_score_weight" if concat else None)
    if not concat:
        scores = b.matmul(query, key, transpose_b=True)
        scores = scores * n.weight(found[0]) if uses_scale else scores
    else:
        pair = b.unsqueeze(query, axes=[2]) + b.unsqueeze(key, axes=[1])
        pair = b.tanh(pair * n.weight(found[0]) if uses_scale else pair)
        scores = b.sum(pair, axes=[-1]) * n.weight(found[-1])
    return _attended(n, scores, value)


@converts("AdditiveAttention")
def additive_attention(n: Layer) -> Any:
    query, value, key = _inputs(n)
    b = n.builder
    pair = b.tanh(b.unsqueeze(query, axes=[2]) + b.unsqueeze(key, axes=[1]))
    if n.config.flag("use_scale", True):
        (scale,) = n.weights("scale")
        pair = pair * n.weight(scale)
    return _attended(n, b.sum(pair, axes=[-1]), value)


# ---- several heads ------------------------------------------------------------------------------


def _projected(n: Layer, x: Value, part: str) -> Value:
    """N×…×D by D×heads×size as N×…×heads×size."""
    names = ("kernel", "bias") if n.config.flag("use_bias", True) else ("kernel",)
    stored = n.stored.child(f"{part}_dense", f"_{part}_dense", part)
    kernel, *bias = stored.arrays(names)
    if kernel.ndim != 3:
        raise UserError(f"the kernel of {part} has the shape {list(kernel.shape)}")
    depth, heads, size = kernel.shape
    flat = n.builder.matmul(x, n.weight(kernel.reshape(depth, heads * size)))
    if bias:
        flat = flat + n.weight(bias[0].reshape(-1))
    return n.builder.reshape(flat, shape=[*x.shape[:-1], heads, size])


def _output(n: Layer, x: Value) -> Value:
    """N×T×heads×size by heads×size×D."""
    names = ("kernel", "bias") if n.config.flag("use_bias", True) else ("kernel",)
    stored = n.stored.child("output_dense", "_output_dense", "attention_output")
    kernel, *bias = stored.arrays(names)
    if kernel.ndim < 3:
        raise UserError(f"the output kernel has the shape {list(kernel.shape)}")
    heads, size, *rest = kernel.shape
    flat = n.builder.reshape(x, shape=[*x.shape[:-2], heads * size])
    result = n.builder.matmul(flat, n.weight(kernel.reshape(heads * size, -1)))
    result = n.builder.reshape(result, shape=[*x.shape[:-2], *rest]) if len(rest) > 1 else result
    return result + n.weight(bias[0]) if bias else result


@converts("MultiHeadAttention")
def multi_head_attention(n: Layer) -> Any:
    query, value = n.required_argument(0, "query"), n.required_argument(1, "value")
    key = n.tensor_argument(2, "key")
    key = value if key is None else key
    size = n.config.integer("key_dim")
    q, k, v = (n.computed(x) for x in (query, key, value))
    if not q.ndim == k.ndim == v.ndim == 3:
        return _over_axes(n, q, k, v)
    heads = [
        n.builder.transpose(_projected(n, x, part), axes=[0, 2, 1, 3])
        for x, part in ((q, "query"), (k, "key"), (v, "value"))
    ]
    return _attend_heads(n, (query, value, key), heads, size)


@converts("GroupedQueryAttention", "GroupQueryAttention")
def grouped_query_attention(n: Layer) -> Any:
    query, value = n.required_argument(0, "query"), n.required_argument(1, "value")
    key = n.tensor_argument(2, "key")
    key = value if key is None else key
    b, size = n.builder, n.config.integer("head_dim")
    heads = [
        b.transpose(_projected(n, n.computed(x), part), axes=[0, 2, 1, 3])
        for x, part in ((query, "query"), (key, "key"), (value, "value"))
    ]
    repeats = n.config.integer("num_query_heads") // n.config.integer("num_key_value_heads")
    shared = [b.repeat_elements(x, repeats=repeats, axis=1) for x in heads[1:]]
    return _attend_heads(n, (query, value, key), [heads[0], *shared], size)


def _attend_heads(n: Layer, given: tuple[Any, Any, Any], heads: list[Value], size: int) -> Any:
    b = n.builder
    if n.config.flag("use_gate"):
        raise UserError(f"{n.spec.text} has a gate", reason="use_gate is not supported")
    q, k, v = heads
    scores = b.matmul(q * (1.0 / math.sqrt(size)), k, transpose_b=True)
    scores = _hidden(n, scores, _mask(n, given, scores))
    weights = b.softmax(scores, axis=-1)
    joined = b.transpose(b.matmul(weights, v), axes=[0, 2, 1, 3])
    result = _output(n, joined)
    query_mask = n.mask_of(given[0])
    if query_mask is not None:
        n.masked(result, query_mask)
    return [result, weights] if n.argument(9, "return_attention_scores") else result


def _mask(n: Layer, given: tuple[Any, Any, Any], scores: Value) -> Value | None:
    """The conjunction of the given mask, those of the inputs, and the causal one."""
    b = n.builder
    found: list[Value] = []
    attention = n.argument(6, "attention_mask")
    if isinstance(attention, Value):
        flags = attention if attention.dtype.name == "bool" else b.cast(attention, dtype="bool")
        found.append(b.unsqueeze(flags, axes=[1]) if flags.ndim == 3 else flags)
    for index, name, axes in (
        (0, "query_mask", [1, 3]),
        (1, "value_mask", [1, 2]),
        (2, "key_mask", [1, 2]),
    ):
        own = n.kwargs.get(name)
        own = own if isinstance(own, Value) else n.mask_of(given[index])
        if own is not None:
            found.append(b.unsqueeze(own, axes=axes))
    if n.kwargs.get("use_causal_mask"):
        found.append(_causal(n, scores))
    result: Value | None = None
    for flags in found:
        result = flags if result is None else b.logical_and(result, flags)
    return result


def _over_axes(n: Layer, q: Value, k: Value, v: Value) -> Value:
    """Attention over axes of images: those and the heads are moved to where sequences have them."""
    axes = n.config.raw("attention_axes")
    rank = q.ndim
    wanted = [axes] if isinstance(axes, int) else axes or list(range(1, rank - 1))
    if [a % rank for a in wanted] != list(range(1, rank - 1)):
        raise UserError(f"{n.spec.text} attends along the axes {axes} of {q}")
    b = n.builder
    flat = [b.reshape(x, shape=[x.shape[0], -1, x.shape[-1]]) for x in (q, k, v)]
    heads = [
        b.transpose(_projected(n, x, part), axes=[0, 2, 1, 3])
        for x, part in zip(flat, ("query", "key", "value"), strict=True)
    ]
    result = _attend_heads(n, (None, None, None), heads, n.config.integer("key_dim"))
    return b.reshape(result, shape=[*q.shape[:-1], result.shape[-1]])
