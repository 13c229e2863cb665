"""Operators on strings; they run on the host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Strings
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import STRING, TensorType, Type, fresh_dim
from tilewright.graph.ops.elementwise.elementwise import broadcast_type
from tilewright.support.errors import UserError


def _require_strings(*values: Value) -> None:
    for value in values:
        if value.dtype is not STRING:
            raise UserError(f"{value} is no tensor of strings")


def _texts(values: Sequence[Any], shape: Sequence[int]) -> Array:
    """An array of strings, whatever their lengths."""
    result = np.empty(len(values), object)
    result[:] = values
    return result.reshape(shape)


@op(host=True)
def string_concat(a: Value, b: Value) -> Type:
    """Every string of `a` followed by that of `b`, broadcast."""
    _require_strings(a, b)
    return broadcast_type(STRING, a, b)


@string_concat.reference
def string_concat_reference(a: Array, b: Array) -> Array:
    pairs = np.broadcast_arrays(a, b)
    joined = [str(x) + str(y) for x, y in zip(*(p.ravel() for p in pairs), strict=True)]
    return _texts(joined, pairs[0].shape)


@op(host=True)
def string_split(x: Value, *, separator: str = "", most: int | None = None) -> tuple[Type, Type]:
    """The parts of every string along a new last axis, filled up with "", and how many there are.

    Without a separator strings are split at white space; `most` limits the number of splits.
    """
    _require_strings(x)
    return TensorType(STRING, [*x.shape, fresh_dim("parts")]), TensorType("int64", x.shape)


@string_split.reference
def string_split_reference(x: Array, *, separator: str, most: int | None) -> tuple[Array, Array]:
    limit = -1 if most is None else most
    parts = [str(s).split(separator or None, limit) for s in x.ravel()]
    width = max(map(len, parts), default=0)
    filled = [t for p in parts for t in [*p, *[""] * (width - len(p))]]
    counts = np.array([len(p) for p in parts], np.int64).reshape(x.shape)
    return _texts(filled, [*x.shape, width]), counts


@op(host=True)
def string_normalize(
    x: Value, *, case: str = "none", stopwords: Strings = (), case_sensitive: bool = False
) -> Type:
    """The words of a list, or of a single row, without stop words, in upper or lower `case`.

    Where nothing is left there is one empty string.
    """
    _require_strings(x)
    if case not in _CASES:
        raise UserError(f"case is {case!r}", remedy="use none, lower or upper")
    if x.ndim not in (1, 2):
        raise UserError(f"{x} is neither a list of words nor one row of them")
    return TensorType(STRING, [*x.shape[:-1], fresh_dim("words")])


_CASES = {"none": str, "lower": str.lower, "upper": str.upper}


@string_normalize.reference
def string_normalize_reference(
    x: Array, *, case: str, stopwords: Strings, case_sensitive: bool
) -> Array:
    if x.ndim == 2 and x.shape[0] != 1:
        raise UserError(f"words come in one row, not in {x.shape[0]}")
    compared = str if case_sensitive else str.lower
    stops = {compared(s) for s in stopwords}
    kept = [_CASES[case](str(w)) for w in x.ravel() if compared(str(w)) not in stops]
    return _texts(kept or [""], [*x.shape[:-1], len(kept) or 1])


@op(host=True)
def regex_match(x: Value, *, pattern: str) -> Type:
    """Whether each string as a whole matches a regular expression."""
    _require_strings(x)
    try:
        re.compile(pattern)
    except re.error as error:
        raise UserError(f"{pattern!r} is no regular expression", reason=str(error)) from None
    return TensorType("bool", x.shape)


@regex_match.reference
def regex_match_reference(x: Array, *, pattern: str) -> Array:
    compiled = re.compile(pattern)
    found = [compiled.fullmatch(str(s)) is not None for s in x.ravel()]
    return np.array(found, np.bool_).reshape(x.shape)
