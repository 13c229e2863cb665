"""Windows that slide over the two spatial axes of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te
from tilewright.tensor.ops.extents import known, minus, plus, static, times
from tilewright.tensor.ops.shape import pad

Pair = int | Sequence[int]


@dataclass(frozen=True)
class Window:
    """Kernel extents, strides, dilations, and padding before and after, each for both axes."""

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    before: tuple[int, int]
    after: tuple[int, int]

    @staticmethod
    def of(
        op: str,
        kernel: Sequence[Any],
        strides: Pair = 1,
        pads: Pair = 0,
        dilations: Pair = 1,
    ) -> Window:
        """Numbers stand for both axes; `pads` may be (top, left, bottom, right) too."""
        height, width = (static(k, f"the kernel of {op}") for k in kernel)
        top, left, bottom, right = _pads(op, pads)
        steps, gaps = _pair(op, "strides", strides), _pair(op, "dilations", dilations)
        if min(*steps, *gaps, height, width) < 1 or min(top, left, bottom, right) < 0:
            raise UserError(
                f"{op} cannot slide its window",
                reason=f"kernel {height}×{width}, strides {steps}, dilations {gaps}, pads {pads}",
                remedy="use a kernel, strides and dilations from 1 up, and pads from 0 up",
            )
        return Window((height, width), steps, gaps, (top, left), (bottom, right))

    @property
    def is_padded(self) -> bool:
        return any(self.before + self.after)

    def output(self, op: str, extents: Sequence[Expr]) -> list[Any]:
        """How many places the window has along each axis of an image of these extents."""
        return [self._places(op, n, extent) for n, extent in enumerate(extents)]

    def _places(self, op: str, n: int, extent: Expr) -> Any:
        reach = (self.kernel[n] - 1) * self.dilations[n] + 1
        slack = plus(extent, self.before[n] + self.after[n] - reach)
        if isinstance(slack, int) and slack < 0:
            raise UserError(
                f"{op} has no place for its window",
                reason=f"it spans {reach} of {known(extent)} elements plus padding",
            )
        step = self.strides[n]
        return plus(slack if step == 1 else slack // step, 1)

    def axes(self) -> list[Any]:
        """Reduce axes over the kernel."""
        names = ("ry", "rx")
        return [te.reduce_axis(k, name=n) for k, n in zip(self.kernel, names, strict=True)]

    def index(self, n: int, place: Any, inside: Any, padded: bool = True) -> Any:
        """The index in the image (in the padded one, unless told otherwise)."""
        index = plus(times(place, self.strides[n]), times(inside, self.dilations[n]))
        return index if padded else minus(index, self.before[n])

    def padded(self, x: te.Tensor, axes: tuple[int, int]) -> te.Tensor:
        """`x` with zeros around its spatial axes, where there is any padding."""
        if not self.is_padded:
            return x
        before, after = [0] * x.ndim, [0] * x.ndim
        for n, axis in enumerate(axes):
            before[axis], after[axis] = self.before[n], self.after[n]
        return pad(x, before, after, name=f"{x.name}_pad")


def _pair(op: str, what: str, value: Pair) -> tuple[int, int]:
    values = (value, value) if isinstance(value, int) else tuple(value)
    if len(values) != 2:
        raise UserError(f"{op} takes one or two {what}, not {len(values)}")
    return values[0], values[1]


def _pads(op: str, pads: Pair) -> tuple[int, int, int, int]:
    if isinstance(pads, int) or len(pads) == 2:
        vertical, horizontal = _pair(op, "pads", pads)
        return vertical, horizontal, vertical, horizontal
    if len(pads) != 4:
        raise UserError(f"{op} takes one, two or four pads, not {len(pads)}")
    return pads[0], pads[1], pads[2], pads[3]
