"""Reshapes and broadcasts: composed, dropped, and moved behind maps so that these can be fused."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from tilewright.graph.fusion.definitions import LoopKind
from tilewright.graph.ir import Value
from tilewright.graph.ir.types import known_dim
from tilewright.graph.rules.grouping import pieces_of
from tilewright.graph.rules.site import Site
from tilewright.ir import Expr

_NO_KERNELS: Final = ("reshape", "dims")


def _to_itself(s: Site) -> Value | None:
    """reshape(x, shape of x) = x"""
    return s.x if s.x.type == s.result.type else None


def _of_reshape(s: Site) -> Value | None:
    """reshape(reshape(x)) = reshape(x)"""
    inner = s.made_by(s.x, "reshape")
    return None if inner is None else s.emit("reshape", inner.args[0], shape=s.result.shape)


def _of_slice(s: Site) -> Value | None:
    """reshape(x[…, 768:1536], [12, 64]) = reshape(x, [36, 64])[…, 12:24, :], whose copy fuses"""
    inner = s.private(s.x, "slice")
    source = None if inner is None else inner.args[0]
    if inner is None or source is None or len(inner.attrs["starts"]) != 1:
        return None
    axis = inner.attrs["axes"][0] % source.ndim if inner.attrs["axes"] else 0
    span = [known_dim(d) for d in (inner.attrs["starts"][0], source.shape[axis], s.x.shape[axis])]
    pieces = pieces_of(s.x.shape, s.result.shape)
    own = next((p for p in pieces or () if p.before == (axis,)), None)
    if own is None or len(own.after) < 2 or None in span or (inner.attrs["steps"] or (1,)) != (1,):
        return None
    start, whole, taken = (n or 0 for n in span)
    inside = [known_dim(s.result.shape[k]) or 0 for k in own.after]
    row = taken // inside[0] if inside[0] else 0
    if start < 0 or not row or whole % row or start % row:
        return None
    shape = list(s.result.shape)
    wide = s.emit("reshape", source, shape=[*_put(shape, own.after[0], whole // row)])
    begin = start // row
    return s.emit("slice", wide, starts=[begin], ends=[begin + inside[0]], axes=[own.after[0]])


def _put(shape: Sequence[Expr], axis: int, extent: int) -> list[Expr | int]:
    return [*shape[:axis], extent, *shape[axis + 1 :]]


def _to_whole(s: Site) -> Value | None:
    """expand(x, shape of x) = x"""
    return s.x if s.x.type == s.result.type else None


def _of_expand(s: Site) -> Value | None:
    """expand(expand(x)) = expand(x)"""
    inner = s.made_by(s.x, "expand")
    return None if inner is None else s.emit("expand", inner.args[0], shape=s.result.shape)


# ---- maps ---------------------------------------------------------------------------------------


def _of_expanded(s: Site) -> Value | None:
    """f(expand(x), y) = f(x, y), where y has the shape that x is expanded to"""
    inner = [s.made_by(a, "expand") for a in s.args]
    if not any(inner) or len(s.args) < 2 or len(s.args) != len(s.call.args):
        return None
    if not s.is_map(s.call, s.result):
        return None
    args = [a if e is None else e.args[0] for a, e in zip(s.args, inner, strict=True)]
    return s.again(s.call, args)


def _of_reshaped(s: Site) -> Value | None:
    """f(reshape(x), y) = reshape(f(x, reshape(y))), where f fuses with the producer of x"""
    if len(s.args) != len(s.call.args) or not s.is_map(s.call, s.result):
        return None
    found = [(v, r.args[0]) for v in s.args if (r := s.made_by(v, "reshape")) is not None]
    ranked = [(_rank(s, x), v, x) for v, x in found if x and v.shape == s.result.shape]
    best, value, source = max(ranked, key=lambda r: r[0], default=(0, None, None))
    if not best or value is None or source is None:
        return None
    others = (a for a in s.args if s.made_by(a, "reshape") is None and a.shape == value.shape)
    return (
        _sunk(s, value, source) if best > max(map(partial(_rank, s), others), default=0) else None
    )


def _rank(s: Site, value: Value) -> int:
    """How much a map gains from being fused with the producer of a value; 0 for nothing."""
    call = s.makers.call_of(value)
    if call is None or not s.makers.is_local(value) or call.op.name in _NO_KERNELS:
        return 0
    facts = s.facts(call, value)
    return 0 if facts.kind is LoopKind.OPAQUE or facts.transposes else 1 + facts.kind


def _sunk(s: Site, value: Value, source: Value) -> Value | None:
    args = [source if a is value else _reshaped_operand(s, a, value, source) for a in s.args]
    if None in args:
        return None
    return s.emit("reshape", s.again(s.call, args), shape=s.result.shape)


def _reshaped_operand(s: Site, other: Value, value: Value, source: Value) -> Value | None:
    """Another operand of a map, reshaped for `source` in place of its reshape `value`."""
    if other.tensor.size == 1 and other.ndim <= 1:
        return other
    if other.shape == value.shape:
        return s.emit("reshape", other, shape=source.shape)
    rank = other.ndim
    ends = (value.shape[-rank:], source.shape[-rank:]) if rank else ((), ())
    if rank and other.shape == ends[0] == ends[1]:
        return other
    return _without_ones(s, other, value, source) if rank == value.ndim else None


def _without_ones(s: Site, other: Value, value: Value, source: Value) -> Value | None:
    """An operand that is broadcast, where the reshape only adds and drops axes of one element."""
    pieces = pieces_of(value.shape, source.shape)
    if pieces is None or any(len(p.before) > 1 or len(p.after) > 1 for p in pieces):
        return None
    own = {p.after[0]: p.before[0] for p in pieces if p.before and p.after}
    shape = [other.shape[own[k]] if k in own else 1 for k in range(source.ndim)]
    return s.emit("reshape", other, shape=shape)


RULES = {
    "reshape": (_to_itself, _of_reshape, _of_slice),
    "expand": (_to_whole, _of_expand),
}
#: For every operator of elements.
MAPS = (_of_expanded, _of_reshaped)
