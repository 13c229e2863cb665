"""Windows of pooling over images of known or symbolic extents: which taps are visited.

A window may be far larger than its image, if padding makes room for it. Elements outside the image
do not count, so that only taps that can be inside are visited: from the first one that is, as many
as fit in the image.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from tilewright.graph.ir import Array
from tilewright.graph.ir.attributes import Dim, Dims
from tilewright.graph.ir.types import known_dim
from tilewright.graph.ops.neural.windows import Window
from tilewright.ir import Expr, as_expr, maximum, minimum
from tilewright.tensor import te

#: Up to this many taps, visiting all costs less than finding those inside a symbolic image.
_FEW_TAPS = 64


@dataclass(frozen=True)
class PooledWindow:
    """A window, the spatial extents of its image, and the number of taps visited on each axis."""

    window: Window
    extents: Sequence[Expr]
    taps: Dims

    @staticmethod
    def over(window: Window, extents: Sequence[Dim]) -> PooledWindow:
        sizes = [as_expr(e) for e in extents]
        return PooledWindow(
            window, sizes, tuple(_taps(window, n, size) for n, size in enumerate(sizes))
        )

    @property
    def is_clipped(self) -> bool:
        """Whether not all taps are visited."""
        return any(self._clips(n) for n in range(self.window.rank))

    def _clips(self, n: int) -> bool:
        return self.taps[n] is not self.window.kernel[n]

    # ---- for compute definitions ----------------------------------------------------------------

    def axes(self) -> list[te.ReduceAxis]:
        """Reduce axes over the taps that are visited."""
        pairs = zip(self.taps, self.window.names, strict=True)
        return [te.reduce_axis(k, name=f"r{n}") for k, n in pairs]

    def at(self, places: Sequence[Any], taps: Sequence[Any]) -> list[Expr]:
        """Spatial indices in the image, which may be outside."""
        plain = self.window.at(places, taps)
        return [self._at(n, places[n], taps[n], plain[n]) for n in range(self.window.rank)]

    def _at(self, n: int, place: Any, tap: Any, plain: Expr) -> Expr:
        before = self.window.before[n]
        if not self._clips(n):
            return plain if known_dim(before) == 0 else plain - before
        start, step = self._start(n, place), self.window.dilations[n]
        # The window's first element in the image, if it begins before the image.
        return maximum(start, te.floormod(start, step)) + tap * step

    def _start(self, n: int, place: Any) -> Expr:
        return place * self.window.strides[n] - self.window.before[n]

    def inside(self, x: te.Tensor, i: Sequence[Any], k: Sequence[Any]) -> tuple[Any, Expr]:
        """The element of an N×C×spatial image under a window, and the condition that it exists."""
        at = self.at(i[2:], k)
        conditions: list[Expr] = []
        for n, index in enumerate(at):
            if self._clips(n):
                conditions += [index < self._start(n, i[n + 2]) + self.window.reach(n)]
            else:
                conditions += [index >= 0]
            conditions += [index < self.extents[n]]
        return x[(*i[:2], *at)], te.all_of(*conditions)

    # ---- for references --------------------------------------------------------------------------

    def patches(
        self, x: Array, places: Sequence[int], outside: Any
    ) -> Iterator[tuple[Array, Array]]:
        """For each tap, its elements at all positions, and which of these are in the image."""
        if 0 in x.shape[-self.window.rank :]:
            return
        axes = [self._looks(n, x.shape[n - self.window.rank], p) for n, p in enumerate(places)]
        for looks in itertools.product(*axes):
            index = np.ix_(*(np.where(seen, at, 0) for at, seen in looks))
            inside = reduce(np.logical_and, np.meshgrid(*(s for _, s in looks), indexing="ij"))
            yield np.where(inside, x[(..., *index)], np.asarray(outside, x.dtype)), inside

    def _looks(self, n: int, extent: int, places: int) -> list[tuple[Array, Array]]:
        """For each tap of an axis, its index at all positions, and whether it is in the image and
        in the window."""
        window, step = self.window.numbers(), self.window.dilations[n]
        start = np.arange(places) * window.strides[n] - window.cut[n][0]
        first = np.maximum(start, start % step) if self._clips(n) else start
        looks = [first + tap * step for tap in range(known_dim(self.taps[n]) or 0)]
        ends = np.minimum(start + window.reaches[n], extent)
        return [(at, (at >= 0) & (at < ends)) for at in looks]


def _taps(window: Window, n: int, extent: Expr) -> Dim:
    """The number of taps visited along one axis: all, or as many as fit in the image."""
    kernel, size, step = window.kernel[n], known_dim(extent), window.dilations[n]
    taps = known_dim(kernel)
    if taps is None:
        return kernel
    if size is not None:
        room = max(-(-size // step), 1)
        # If more than half are inside, plain indices are better.
        return room if 2 * room <= taps else kernel
    if taps <= _FEW_TAPS:
        return kernel
    return minimum(te.floordiv(extent + (step - 1), step), taps)
