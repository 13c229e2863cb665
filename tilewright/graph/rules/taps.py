"""Convolutions of images that are no larger than the window: without weights that are only applied
to padding, or as products."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.graph.ir import Value
from tilewright.graph.ir.types import known_dim, product
from tilewright.graph.ops.neural.windows import Window
from tilewright.graph.rules.site import Site


class _Reached(NamedTuple):
    """The taps along one axis that reach the image, and the padding they need."""

    first: int
    end: int
    before: int
    after: int


def _that_reach(s: Site) -> Value | None:
    """conv(x: 1×1, w: 3×3, pads=1) = conv(x, w[1:2, 1:2]), for constant weights

    Such layers take as long as it takes to read their weights.
    """
    weight = s.arg(1)
    if not weight.is_constant or s.attr("fill"):
        return None
    window = Window.of(weight.shape[2:], s.attr("strides"), s.attr("pads"), s.attr("dilations"))
    axes = [_along(s, window, n) for n in range(window.rank)]
    found = [a for a in axes if a is not None]
    if len(found) < len(axes) or all(
        a.end - a.first == known_dim(k) for a, k in zip(found, window.kernel, strict=True)
    ):
        return None
    first, end, before, after = (list(numbers) for numbers in zip(*found, strict=True))
    spatial = list(range(2, 2 + window.rank))
    kept = s.emit("slice", weight, starts=first, ends=end, axes=spatial)
    return s.again(s.call, [s.x, kept, *s.call.args[2:]], pads=[*before, *after])


def _along(s: Site, window: Window, n: int) -> _Reached | None:
    """The taps that reach the image along one axis; None where these are not known or simple."""
    sizes = (s.x.shape[2 + n], s.result.shape[2 + n], window.kernel[n], window.before[n])
    extent, places, taps, before = (known_dim(d) for d in sizes)
    if extent is None or places is None or taps is None or before is None:
        return None
    step, gap = window.strides[n], window.dilations[n]
    if extent >= (taps - 1) * gap + 1 or not places:
        after = known_dim(window.after[n])
        return None if after is None else _Reached(0, taps, before, after)
    starts = [p * step - before for p in range(places)]
    reached = [k for k in range(taps) if any(0 <= at + k * gap < extent for at in starts)]
    if not reached:
        return None
    first, end = reached[0], reached[-1] + 1
    before -= first * gap
    after = (places - 1) * step + (end - first - 1) * gap + 1 - extent - before
    return _Reached(first, end, before, after) if before >= 0 and after >= 0 else None


def _as_product(s: Site) -> Value | None:
    """conv(x: n×c×7×7, w: o×c×7×7) = x as n×(c·49) @ transposed w as o×(c·49), for constant weights

    Such layers are products with few rows and long sums, which have kernels of their own.
    """
    weight, bias = s.arg(1), s.call.args[2] if len(s.call.args) > 2 else None
    is_plain = s.attr("groups") == 1 and s.attr("dtype") is None and not s.attr("fill")
    if not is_plain or not weight.is_constant or not s.x.dtype.is_float:
        return None
    window = Window.of(weight.shape[2:], s.attr("strides"), s.attr("pads"), s.attr("dilations"))
    kernel = [known_dim(d) for d in window.kernel]
    padding = [known_dim(d) for d in (*window.before, *window.after)]
    if kernel != [known_dim(d) for d in s.x.shape[2:]] or None in kernel or any(padding):
        return None
    if None in padding or set(kernel) == {1} or set(window.dilations) != {1}:
        return None
    outputs, length = known_dim(weight.shape[0]), known_dim(product(weight.shape[1:]))
    if outputs is None or length is None:
        return None
    rows = s.emit("reshape", s.x, shape=[s.x.shape[0], length])
    columns = s.emit("reshape", weight, shape=[outputs, length])
    made = s.emit("matmul", rows, columns, transpose_b=True)
    if bias is not None:
        made = s.emit("add", made, bias)
    return s.emit("reshape", made, shape=list(s.result.shape))


RULES = {"conv": (_that_reach, _as_product)}
