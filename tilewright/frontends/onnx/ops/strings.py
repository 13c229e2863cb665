"""Strings, and counts of words."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError


@converts("StringConcat")
def string_concat(n: Node) -> Value:
    return n.builder.string_concat(n[0], n[1])


@converts("StringSplit")
def string_split(n: Node) -> list[Value]:
    return list(
        n.builder.string_split(
            n[0], separator=n.text("delimiter", ""), most=n.integer("maxsplit", None)
        )
    )


@converts("StringNormalizer")
def string_normalizer(n: Node) -> Value:
    return n.builder.string_normalize(
        n[0],
        case=n.text("case_change_action", "NONE").lower(),
        stopwords=n.texts("stopwords", []),
        case_sensitive=n.flag("is_case_sensitive"),
    )


@converts("RegexFullMatch")
def regex_full_match(n: Node) -> Value:
    return n.builder.regex_match(n[0], pattern=n.text("pattern"))


# ---- n-grams ------------------------------------------------------------------------------------


@converts("TfIdfVectorizer")
def tfidf(n: Node) -> Value:
    """How often each n-gram of a pool occurs, weighted."""
    x, b = n[0], n.builder
    if x.ndim not in (1, 2):
        raise UserError(f"{x} is neither a list of words nor rows of them")
    rows = b.unsqueeze(x, axes=[0]) if x.ndim == 1 else x
    counts = b.concat(*_counts_by_length(n, rows), axis=1)
    result = _placed(n, _weighted(n, counts))
    return b.squeeze(result, axes=[0]) if x.ndim == 1 else result


def _counts_by_length(n: Node, rows: Value) -> list[Value]:
    """For 1-grams, 2-grams, …: a matrix of the counts in each row."""
    starts = n.integers("ngram_counts")
    pool = _pool(n)
    shortest, longest = n.integer("min_gram_length"), n.integer("max_gram_length")
    counts: list[Value] = []
    for length, (start, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        if not 0 <= start <= end <= len(pool) or (end - start) % length:
            raise UserError(f"ngram_counts is {starts} for a pool of {len(pool)}")
        grams = pool[start:end].reshape(-1, length)
        used = shortest <= length <= longest
        counts.append(_count(n, rows, grams) if used else _nothing(n, rows, len(grams)))
    return counts


def _pool(n: Node) -> Any:
    if n.has("pool_int64s") == n.has("pool_strings"):
        raise UserError("one of pool_int64s and pool_strings must be given")
    if n.has("pool_int64s"):
        return np.array(n.integers("pool_int64s"), np.int64)
    return np.array([*n.texts("pool_strings"), None], object)[:-1]


def _nothing(n: Node, rows: Value, count: int) -> Value:
    return n.builder.full(n.constant(0.0, "float32"), shape=[rows.shape[0], count])


def _count(n: Node, rows: Value, grams: Any) -> Value:
    """How often each n-gram occurs in each row, with up to `max_skip_count` words between."""
    b, length = n.builder, grams.shape[1]
    # A single word has no words between.
    skips = 1 if length == 1 else n.integer("max_skip_count") + 1
    total = _nothing(n, rows, len(grams))
    for step in range(1, skips + 1):
        reach = (length - 1) * step
        size = rows.tensor.static_shape[1]
        if reach >= size:
            break
        found = _matches(n, rows, grams, step, size - reach)
        total = b.add(total, b.sum(b.cast(found, dtype="float32"), axes=[1]))
    return total


def _matches(n: Node, rows: Value, grams: Any, step: int, places: int) -> Value:
    """Whether an n-gram is at a position of a row: row × position × n-gram."""
    b, parts = n.builder, list[Value]()
    for k in range(grams.shape[1]):
        word = b.slice(rows, starts=[k * step], ends=[k * step + places], axes=[1])
        wanted = n.constant(grams[:, k], rows.dtype)
        parts.append(b.equal(b.unsqueeze(word, axes=[2]), wanted))
    found = parts[0]
    for part in parts[1:]:
        found = b.logical_and(found, part)
    return found


def _weighted(n: Node, counts: Value) -> Value:
    b, mode = n.builder, n.text("mode")
    weights = n.constant(n.reals("weights", None) or [1.0], "float32")
    if mode == "TF":
        return counts
    if mode == "TFIDF":
        return b.mul(counts, weights)
    if mode != "IDF":
        raise UserError(f"mode is {mode!r}", remedy="use TF, IDF or TFIDF")
    return b.mul(b.minimum(counts, n.constant(1.0, "float32")), weights)


def _placed(n: Node, counts: Value) -> Value:
    """The columns at the model's positions; columns without an n-gram are zero."""
    indexes = n.integers("ngram_indexes")
    if len(indexes) != counts.tensor.static_shape[1] or min(indexes, default=0) < 0:
        raise UserError(f"ngram_indexes has {len(indexes)} entries for {counts}")
    if len(set(indexes)) != len(indexes):
        raise UserError("two n-grams have one place in ngram_indexes")
    width = max(indexes, default=-1) + 1
    if width > 1 << 24:
        raise UserError(f"the result would have {width} columns")
    source = np.full(width, len(indexes), np.int64)
    source[indexes] = np.arange(len(indexes))
    spare = n.builder.pad(counts, before=[0, 0], after=[0, 1])
    return n.builder.gather(spare, n.constant(source), axis=1)
