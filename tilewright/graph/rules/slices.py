"""Slices, concats, and padding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tilewright.graph.ir import Call, Value
from tilewright.graph.ir.types import known_dim
from tilewright.graph.rules.site import Site
from tilewright.graph.sizes.axes import axes_of, axis_of

#: (start, size) of a slice in steps of 1, by axis.
Spans = dict[int, tuple[int, int]]


def spans_of(call: Call, result: Value) -> Spans | None:
    """The span of a slice along each axis, where these are numbers, in steps of 1."""
    source = call.args[0]
    assert source is not None
    starts, axes, steps = (call.attrs[k] for k in ("starts", "axes", "steps"))
    found: Spans = {}
    for n, axis in enumerate(axes_of(axes, len(starts) if axes is None else source.ndim)):
        start, extent, size = (known_dim(d) for d in _along(starts[n], source, result, axis))
        if start is None or extent is None or size is None or (steps and steps[n] != 1):
            return None
        found[axis] = (min(max(start + extent if start < 0 else start, 0), extent), size)
    return found


def _along(start: Any, source: Value, result: Value, axis: int) -> tuple[Any, ...]:
    return start, source.shape[axis], result.shape[axis]


def _of_everything(s: Site) -> Value | None:
    """x[0:n] = x"""
    steps = s.attr("steps") or ()
    same = s.x.type == s.result.type and all(n == 1 for n in steps)
    return s.x if same else None


def _of_slice(s: Site) -> Value | None:
    """x[a:][b:c] = x[a + b:a + c]"""
    inner = s.made_by(s.x, "slice")
    if inner is None or inner.args[0] is None:
        return None
    first, second = spans_of(inner, s.x), spans_of(s.call, s.result)
    if first is None or second is None:
        return None
    joined = dict(first)
    for axis, (start, size) in second.items():
        joined[axis] = (first.get(axis, (0, 0))[0] + start, size)
    return _sliced(s, inner.args[0], joined)


def _sliced(s: Site, value: Value, spans: Spans) -> Value:
    starts, sizes = [a for a, _ in spans.values()], [n for _, n in spans.values()]
    ends = [a + n for a, n in zip(starts, sizes, strict=True)]
    return s.emit("slice", value, starts=starts, ends=ends, axes=list(spans))


def _of_concat(s: Site) -> Value | None:
    """concat(x, y)[part of y] = y[part]"""
    inner, spans = s.made_by(s.x, "concat"), spans_of(s.call, s.result)
    if inner is None or not spans:
        return None
    axis = axis_of(inner.attrs["axis"], s.x.ndim)
    if axis not in spans:
        return None
    start, size = spans[axis]
    for part in inner.args:
        extent = None if part is None else known_dim(part.shape[axis])
        if part is None or extent is None:
            return None
        if start < extent:
            fits = start >= 0 and start + size <= extent
            return _sliced(s, part, spans | {axis: (start, size)}) if fits else None
        start -= extent
    return None


# ---- concat -------------------------------------------------------------------------------------


def _of_one(s: Site) -> Value | None:
    """concat(x) = x"""
    return s.x if len(s.args) == 1 else None


def _of_nothing(s: Site) -> Value | None:
    """concat(x, nothing, y) = concat(x, y)"""
    axis = axis_of(s.attr("axis"), s.x.ndim)
    left = [a for a in s.args if known_dim(a.shape[axis]) != 0]
    return s.emit("concat", *left, axis=axis) if 0 < len(left) < len(s.args) else None


def _of_concats(s: Site) -> Value | None:
    """concat(concat(x, y), z) = concat(x, y, z)"""
    axis = axis_of(s.attr("axis"), s.x.ndim)
    parts: list[Value] = []
    for value in s.args:
        inner = s.private(value, "concat")
        same = inner is not None and axis_of(inner.attrs["axis"], value.ndim) == axis
        parts += [a for a in inner.args if a is not None] if inner is not None and same else [value]
    return s.emit("concat", *parts, axis=axis) if len(parts) > len(s.args) else None


def _of_parts(s: Site) -> Value | None:
    """concat(x[0:a], x[a:b], …) = x[0:…]"""
    axis = axis_of(s.attr("axis"), s.x.ndim)
    calls = [s.made_by(a, "slice") for a in s.args]
    spans = [None if c is None else spans_of(c, a) for c, a in zip(calls, s.args, strict=True)]
    sources = {c.args[0] for c in calls if c is not None}
    if len(sources) != 1 or len(s.args) < 2 or not all(_is_along(x, axis) for x in spans):
        return None
    rows = [x[axis] for x in spans if x]
    if any(a[0] + a[1] != b[0] for a, b in pairwise(rows)):
        return None
    source = sources.pop()
    assert source is not None
    return _sliced(s, source, {axis: (rows[0][0], sum(n for _, n in rows))})


def _is_along(spans: Spans | None, axis: int) -> bool:
    return spans is not None and list(spans) == [axis]


# ---- pad ----------------------------------------------------------------------------------------


def _by_nothing(s: Site) -> Value | None:
    """pad(x, 0, 0) = x"""
    pads: Sequence[Any] = (*s.attr("before"), *s.attr("after"))
    return s.x if all(known_dim(p) == 0 for p in pads) else None


def _into_conv(s: Site) -> Value | None:
    """conv(pad(x, c)) = conv(x, pads=…, fill=c), for one number c around the image"""
    inner = s.private(s.x, "pad")
    fill = None if inner is None or inner.attrs["mode"] != "constant" else _filled_with(inner)
    if inner is None or fill is None:
        return None
    before, after = inner.attrs["before"], inner.attrs["after"]
    if any(known_dim(p) != 0 for p in (*before[:2], *after[:2])):
        return None
    own = s.attr("pads") or (0,) * (2 * (s.x.ndim - 2))
    added = (*before[2:], *after[2:])
    if any((known_dim(p) or -1) < 0 and known_dim(p) != 0 for p in added):
        return None
    if fill != s.attr("fill") and any(known_dim(p) != 0 for p in own):
        return None
    pads = [a + b for a, b in zip(own, added, strict=True)]
    return s.again(s.call, [inner.args[0], *s.call.args[1:]], pads=pads, fill=fill)


def _filled_with(pad: Call) -> int | None:
    """The number that pads a tensor, where a convolution can pad by it: floats only by zero."""
    value = pad.args[1]
    if value is None:
        return 0
    if value.constant is None:
        return None
    if value.dtype.is_integer:
        return int(value.constant.reshape(()))
    return None if value.constant.any() else 0


RULES = {
    "slice": (_of_everything, _of_slice, _of_concat),
    "concat": (_of_one, _of_nothing, _of_concats, _of_parts),
    "pad": (_by_nothing,),
    "conv": (_into_conv,),
}
