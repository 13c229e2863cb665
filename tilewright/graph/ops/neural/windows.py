"""Windows that slide over the spatial axes of images: convolutions and pooling in any dimensions.

Images are N×C×spatial. Attributes that all such operators share: `strides` and `dilations` have one
number per spatial axis (or none: 1), `pads` those before all axes, then those after (or none: 0).
Kernels, pads and extents may be symbolic.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.ir import Array
from tilewright.graph.ir.attributes import Dim, Dims, Ints
from tilewright.graph.ir.types import known_dim
from tilewright.graph.sizes.agreement import ask, is_asked
from tilewright.graph.sizes.naturals import simplify_size
from tilewright.ir import Expr, as_expr, const, minimum
from tilewright.support.errors import UserError
from tilewright.tensor import te

#: Names of the spatial axes in loops, the last ones first.
_NAMES = "xyzwvu"


@dataclass(frozen=True)
class Window:
    """A window: kernel extents, strides, dilations and padding, one of each per spatial axis."""

    kernel: Dims
    strides: Ints
    dilations: Ints
    before: Dims
    after: Dims

    @staticmethod
    def of(kernel: Sequence[Dim], strides: Ints, pads: Dims, dilations: Ints) -> Window:
        rank = len(kernel)
        steps, gaps = _each("strides", strides, rank), _each("dilations", dilations, rank)
        padding = pads or (0,) * (2 * rank)
        if len(padding) != 2 * rank:
            raise UserError(f"there are {len(pads)} pads for {rank} spatial axes, not {2 * rank}")
        sizes = tuple(_number(k) for k in kernel)
        known = [known_dim(k) for k in sizes]
        if any(s < 1 for s in (*steps, *gaps)) or any(k is not None and k < 1 for k in known):
            raise UserError(
                "the window cannot slide",
                reason=f"kernel {list(sizes)}, strides {list(steps)}, dilations {list(gaps)}",
                remedy="use numbers from 1 up",
            )
        _require_natural(padding)
        return Window(sizes, steps, gaps, tuple(padding[:rank]), tuple(padding[rank:]))

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def is_padded(self) -> bool:
        return any(known_dim(p) != 0 for p in (*self.before, *self.after))

    @property
    def names(self) -> list[str]:
        """Names of loops over the spatial axes."""
        return list(reversed(_NAMES[: self.rank]))

    def stays_inside(self, ceil: bool) -> bool:
        """Whether no window reaches beyond the image."""
        return not self.is_padded and (not ceil or all(s == 1 for s in self.strides))

    def reach(self, n: int) -> Dim:
        """How many elements a window spans along one axis."""
        return (self.kernel[n] - 1) * self.dilations[n] + 1

    def places(self, extents: Sequence[Expr], ceil: bool = False) -> list[Expr]:
        """The number of positions along each axis; `ceil` counts windows that overhang."""
        return [self._places(n, e, ceil) for n, e in enumerate(extents)]

    def slack(self, n: int, extent: Dim) -> Expr:
        """How far the window can move along one axis."""
        return simplify_size(as_expr(extent) + self.before[n] + self.after[n] - self.reach(n))

    def _places(self, n: int, extent: Expr, ceil: bool) -> Expr:
        slack, step = self.slack(n, extent), self.strides[n]
        room = known_dim(slack)
        if room is not None and room < 0:
            raise UserError(
                "there is no place for the window",
                reason=f"it spans {self.reach(n)} of {extent} elements plus padding",
            )
        if room is None and is_asked():
            ask(slack >= 0, f"there is no place for a window over {extent} elements plus padding")
        if not ceil or step == 1:
            return simplify_size(te.floordiv(slack, step) + 1)
        # A window that starts in the padding after the image does not count.
        started = te.floordiv(as_expr(extent) + self.before[n] - 1, step) + 1
        return simplify_size(minimum(te.floordiv(slack + (step - 1), step) + 1, started))

    # ---- for compute definitions ----------------------------------------------------------------

    def axes(self) -> list[te.ReduceAxis]:
        """Reduce axes over the kernel."""
        pairs = zip(self.kernel, self.names, strict=True)
        return [te.reduce_axis(k, name=f"r{n}") for k, n in pairs]

    def taps(self) -> tuple[list[Any], list[te.ReduceAxis]]:
        """The indices in the kernel, and the reduce axes among them: none for an extent of 1, so
        that a 1×1 kernel is seen to be a product by the pixels as rows."""
        taps = [const(0) if known_dim(axis.extent) == 1 else axis for axis in self.axes()]
        return taps, [tap for tap in taps if isinstance(tap, te.ReduceAxis)]

    def at(self, places: Sequence[Any], inside: Sequence[Any]) -> tuple[Any, ...]:
        """Indices in the padded image."""
        parts = zip(places, inside, self.strides, self.dilations, strict=True)
        return tuple(
            _times(p, s) if known_dim(k) == 0 else _times(p, s) + _times(k, d)
            for p, k, s, d in parts
        )

    def padded(self, x: te.Tensor, value: Any = 0, axis: int = 2) -> te.Tensor:
        """`x` with `value` around its axes from `axis` on, where there is any padding."""
        if not self.is_padded:
            return x
        spatial = range(axis, axis + self.rank)
        shape = list(x.shape)
        for n, a in enumerate(spatial):
            shape[a] = simplify_size(x.shape[a] + self.before[n] + self.after[n])

        def element(*i: Expr) -> Expr:
            index, inside = list(i), list[Expr]()
            for n, a in enumerate(spatial):
                before, after = self.before[n], self.after[n]
                index[a] = i[a] if known_dim(before) == 0 else i[a] - before
                inside += [i[a] >= before] if known_dim(before) != 0 else []
                inside += [i[a] < x.shape[a] + before] if known_dim(after) != 0 else []
            outside = value if isinstance(value, Expr) else te.const(value, x.dtype)
            return te.if_then_else(te.all_of(*inside), x[tuple(index)], outside)

        return te.compute(shape, element, name="image_pad")

    # ---- for references --------------------------------------------------------------------------

    @property
    def cut(self) -> list[tuple[int, int]]:
        """The padding before and after each axis, as numbers."""
        return list(zip(_numbers(self.before), _numbers(self.after), strict=True))

    @property
    def reaches(self) -> Ints:
        """How many elements a window spans along each axis, as numbers."""
        return _numbers(tuple(self.reach(n) for n in range(self.rank)))

    def numbers(self) -> Window:
        """The same window with plain numbers."""
        kernel, before, after = map(_numbers, (self.kernel, self.before, self.after))
        return Window(kernel, self.strides, self.dilations, before, after)

    def patches(
        self, image: Array, places: Sequence[int]
    ) -> Iterator[tuple[tuple[int, ...], Array]]:
        """For each element of the kernel, its elements of a padded image at all positions."""
        for k in itertools.product(*map(range, _numbers(self.kernel))):
            parts = zip(k, places, self.strides, self.dilations, strict=True)
            index = [slice(i * d, i * d + (p - 1) * s + 1, s) for i, p, s, d in parts]
            empty = any(p == 0 for p in places)
            yield k, image[(..., *([slice(0, 0)] * self.rank if empty else index))]

    def with_padding(self, x: Array, value: Any, places: Sequence[int]) -> Array:
        """An image, padded by NumPy, and long enough for the last of the positions."""
        pads = [(0, 0)] * (x.ndim - self.rank)
        for n, (extent, count) in enumerate(zip(x.shape[-self.rank :], places, strict=True)):
            before, after, reach = _numbers((self.before[n], self.after[n], self.reach(n)))
            end = (count - 1) * self.strides[n] + reach
            pads.append((before, max(after, end - extent - before)))
        return np.pad(x, pads, constant_values=value)


def spatial_rank(ndim: int, what: str) -> int:
    """How many spatial axes an image of `ndim` dimensions has."""
    if ndim < 3:
        raise UserError(f"{what} has {ndim} dimensions", reason="images have at least three")
    return ndim - 2


def _each(what: str, values: Ints, rank: int) -> Ints:
    if values and len(values) != rank:
        raise UserError(f"there are {len(values)} {what} for {rank} spatial axes")
    return values or (1,) * rank


def _require_natural(pads: Dims) -> None:
    numbers = [known_dim(p) for p in pads]
    if any(n is not None and n < 0 for n in numbers):
        raise UserError(f"pads {list(pads)} are negative", remedy="slice the image first")


def _number(dim: Dim) -> Dim:
    number = known_dim(dim)
    return dim if number is None else number


def _numbers(dims: Dims) -> Ints:
    """Dimensions in a reference, where all are known."""
    return tuple(d for d in dims if isinstance(d, int))


def _times(a: Any, factor: int) -> Any:
    return a if factor == 1 else a * factor
