"""Rows of tables: maps of whole tables become maps of the rows that are gathered."""

from __future__ import annotations

from typing import Final

from tilewright.graph.ir import Value
from tilewright.graph.ir.types import is_single, known_dim
from tilewright.graph.rules.site import Site
from tilewright.graph.sizes.axes import axis_of

#: Most maps between the constants of a table and the table.
_DEEP: Final = 8


def _of_map(s: Site) -> Value | None:
    """take(f(table, scales), rows) = f(take(table, rows), take(scales, rows)), for constant tables

    Such tables are too large to be computed at compile time: quantized embeddings, for one.
    """
    inner = s.made_by(s.x)
    axis, rank = axis_of(s.attr("axis"), s.x.ndim), s.arg(1).ndim
    # A table of one row would be used as it is, without checking indices.
    if inner is None or known_dim(s.x.shape[axis]) == 1 or not _is_of_constants(s, s.x, _DEEP):
        return None
    args = [None if a is None else _gathered_rows(s, a, axis, rank) for a in inner.args]
    return s.again(inner, args)


def _of_dequantized(s: Site) -> Value | None:
    """take(dequantize(table, c, z), rows) = dequantize(take(table, rows), c, z), for one scale"""
    inner = s.made_by(s.x, "dequantize")
    table, *scales = (None,) if inner is None else inner.args
    if inner is None or table is None or not _is_of_constants(s, table, _DEEP):
        return None
    if not all(c is None or is_single(c.shape) for c in scales):
        return None
    return s.again(inner, [s.again(s.call, [table, s.arg(1)]), *scales])


def _is_of_constants(s: Site, value: Value, depth: int) -> bool:
    """Whether a value is a constant, or maps of constants."""
    if value.is_constant:
        return True
    call = s.made_by(value) if depth else None
    if call is None or not s.is_map(call, value):
        return False
    return all(a is None or _is_of_constants(s, a, depth - 1) for a in call.args)


def _gathered_rows(s: Site, operand: Value, axis: int, rank: int) -> Value:
    """The rows of an operand of the map; an operand of one row is only reshaped."""
    missing = s.x.ndim - operand.ndim
    full = [*[1] * missing, *operand.shape]
    if known_dim(full[axis]) == 1:
        shape = [*full[:axis], *[1] * rank, *full[axis + 1 :]]
        return s.emit("reshape", operand, shape=shape)
    whole = s.emit("reshape", operand, shape=full) if missing else operand
    return s.again(s.call, [whole, s.arg(1)], axis=axis)


RULES = {"gather": (_of_map, _of_dequantized), "take": (_of_map, _of_dequantized)}
