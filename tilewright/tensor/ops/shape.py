"""Moving elements about without computing anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from tilewright.ir import Expr
from tilewright.support.errors import UserError
from tilewright.tensor import te
from tilewright.tensor.ops.extents import axis_of, minus, plus, require_equal


def pad(
    x: te.Tensor,
    before: Sequence[int],
    after: Sequence[int] | None = None,
    value: float = 0,
    name: str = "pad",
) -> te.Tensor:
    """`x` with `value` around it: `before` and `after` its elements along every dimension."""
    after = before if after is None else after
    if not len(before) == len(after) == x.ndim:
        raise UserError(f"{name} needs a padding for each of the {x.ndim} dimensions of {x.name}")
    if min((*before, *after), default=0) < 0:
        raise UserError(f"{name} cannot take elements away", reason=f"{before} and {after}")
    shape = [plus(e, b + a) for e, b, a in zip(x.shape, before, after, strict=True)]

    def element(*i: Expr) -> Expr:
        inside: list[Expr] = []
        for index, extent, low, high in zip(i, x.shape, before, after, strict=True):
            inside += [index >= low] if low else []
            inside += [index < plus(extent, low)] if high else []
        source = x[tuple(minus(index, low) for index, low in zip(i, before, strict=True))]
        return te.if_then_else(te.all_of(*inside), source, value) if inside else source

    return te.compute(shape, element, name=name)


def transpose(
    x: te.Tensor, axes: Sequence[int] | None = None, name: str = "transpose"
) -> te.Tensor:
    """The dimensions in the order of `axes`; turned around unless given."""
    order = [axis_of(name, a, x.ndim) for a in (reversed(range(x.ndim)) if axes is None else axes)]
    if sorted(order) != list(range(x.ndim)):
        raise UserError(f"{name} cannot order {x!r} by {axes}", reason="it is no permutation")
    place = {axis: n for n, axis in enumerate(order)}
    return te.compute(
        [x.shape[a] for a in order],
        lambda *i: x[tuple(i[place[a]] for a in range(x.ndim))],
        name=name,
    )


def concat(tensors: Sequence[te.Tensor], axis: int = 0, name: str = "concat") -> te.Tensor:
    """Tensors one after the other along `axis`."""
    if not tensors:
        raise UserError(f"{name} needs at least one tensor")
    first = tensors[0]
    axis = axis_of(name, axis, first.ndim)
    starts: list[Any] = [0]
    for tensor in tensors:
        _require_fitting(name, first, tensor, axis)
        starts.append(plus(starts[-1], tensor.shape[axis]))

    def element(*i: Expr) -> Expr:
        def part(n: int) -> Expr:
            return tensors[n][(*i[:axis], minus(i[axis], starts[n]), *i[axis + 1 :])]

        result = part(len(tensors) - 1)
        for n in reversed(range(len(tensors) - 1)):
            result = te.if_then_else(i[axis] < starts[n + 1], part(n), result)
        return result

    shape = (*first.shape[:axis], starts[-1], *first.shape[axis + 1 :])
    return te.compute(shape, element, name=name)


def _require_fitting(name: str, first: te.Tensor, tensor: te.Tensor, axis: int) -> None:
    if tensor.ndim != first.ndim or tensor.dtype is not first.dtype:
        raise UserError(f"{name} cannot join {tensor!r} to {first!r}")
    for n, (a, b) in enumerate(zip(first.shape, tensor.shape, strict=True)):
        if n != axis:
            require_equal(name, f"extents of dimension {n}", a, b)


def take(
    x: te.Tensor,
    indices: te.Tensor,
    axis: int = 0,
    mode: Literal["check", "clip", "wrap"] = "check",
    name: str = "take",
) -> te.Tensor:
    """The slices of `x` along `axis` that `indices` names; negative ones count from the end.

    An index out of range is an error at run time; `clip` takes the nearest, `wrap` goes round.
    """
    axis = axis_of(name, axis, x.ndim)
    if not indices.dtype.is_integer or mode not in _MODES:
        raise UserError(f"{name} cannot index by {indices!r}, mode {mode!r}")
    extent, rank = x.shape[axis], indices.ndim

    def element(*i: Expr) -> Expr:
        index = _MODES[mode](indices[i[axis : axis + rank]].astype("int64"), extent)
        return x[(*i[:axis], index, *i[axis + rank :])]

    return te.compute((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), element, name=name)


_MODES: dict[str, Callable[[Expr, Expr], Expr]] = {
    "check": lambda i, n: te.if_then_else(i < 0, i + n, i),
    "clip": lambda i, n: te.clip(i, 0, minus(n, 1)),
    "wrap": lambda i, n: i % n,
}
