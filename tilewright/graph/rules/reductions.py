"""Reductions over axes of one element, and reductions of reductions."""

from __future__ import annotations

from typing import Final

from tilewright.graph.ir import Call, Value
from tilewright.graph.ir.types import known_dim
from tilewright.graph.rules.site import Site
from tilewright.graph.sizes.axes import axes_of

#: Reductions that leave a single element as it is.
_PLAIN: Final = ("sum", "prod", "max", "min", "mean", "any", "all")
#: Reductions that can be computed over some axes first, and then over others.
_STEPWISE: Final = ("sum", "prod", "max", "min", "any", "all")


def _axes(call: Call, rank: int) -> tuple[int, ...]:
    return axes_of(call.attrs["axes"], rank)


def _of_ones(s: Site) -> Value | None:
    """sum(x) over axes of one element = reshape(x)"""
    if any(known_dim(s.x.shape[a]) != 1 for a in _axes(s.call, s.x.ndim)):
        return None
    return s.emit("reshape", s.x, shape=s.result.shape)


def _of_reduced(s: Site) -> Value | None:
    """sum(sum(x, [2]), [1]) = sum(x, [1, 2])"""
    inner = s.private(s.x, s.call.op.name)
    source = None if inner is None else inner.args[0]
    if inner is None or source is None or inner.attrs["keepdims"] != s.attr("keepdims"):
        return None
    first = _axes(inner, source.ndim)
    second = _axes(s.call, s.x.ndim)
    if not s.attr("keepdims"):
        left = [k for k in range(source.ndim) if k not in first]
        second = tuple(left[k] for k in second)
    return s.again(s.call, [source], axes=sorted({*first, *second}))


RULES = {name: (_of_ones, _of_reduced) if name in _STEPWISE else (_of_ones,) for name in _PLAIN}
