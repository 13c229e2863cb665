"""Convolutions of images that are smaller than the window: weights that meet padding alone."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.graph.ir import Value
from tilewright.graph.ir.types import known_dim
from tilewright.graph.ops.neural.windows import Window
from tilewright.graph.rules.site import Site


class _Reached(NamedTuple):
    """The taps along one axis that meet the image, and the padding around them."""

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
    """What is reached along one axis; None where that is not known, or not so simple."""
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


RULES = {"conv": (_that_reach,)}
