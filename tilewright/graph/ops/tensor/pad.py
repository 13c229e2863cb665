"""Tensors extended or cropped at their borders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.ir.attributes import Dim, Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim
from tilewright.graph.layouts.images import Blocking, Form, channels_of, same_on_blocks
from tilewright.graph.ops.elementwise.elementwise import require_same_dtype
from tilewright.graph.sizes.agreement import ask
from tilewright.graph.sizes.axes import axes_of, tidy
from tilewright.ir import Expr, as_expr, maximum
from tilewright.support.errors import UserError, nearest
from tilewright.tensor import te

# ---- pad ----------------------------------------------------------------------------------------


@op
def pad(
    x: Value, value: Value | None = None, *, before: Dims, after: Dims, mode: str = "constant"
) -> Type:
    """So many elements more before and after each dimension; fewer, where a number is negative.

    They are `value` (or zero) for "constant"; the border for "edge"; what is inside, mirrored at
    the border for "reflect"; what comes from the other end for "wrap".
    """
    if not len(before) == len(after) == x.ndim:
        raise UserError(f"{len(before)} and {len(after)} pads are given for {x.ndim} dimensions")
    if mode not in PLACES:
        raise UserError(f"there is no padding {mode!r}", remedy=nearest(mode, PLACES))
    if value is not None:
        require_same_dtype(x, value)
        if value.tensor.size != 1:
            raise UserError(f"the padding is {value}", reason="it must be one element")
    _check_something_to_repeat(x, before, after, mode)
    pads = zip(x.shape, before, after, strict=True)
    return x.tensor.with_shape(tidy(d + b + a, d) for d, b, a in pads)


@pad.reference
def pad_reference(x: Array, value: Array | None, *, before: Ints, after: Ints, mode: str) -> Array:
    # Elements are cut off first, so that they are not repeated.
    cut = tuple(
        slice(max(0, -b), n - max(0, -a)) for n, b, a in zip(x.shape, before, after, strict=True)
    )
    inner = x[cut]
    widths = [(max(0, b), max(0, a)) for b, a in zip(before, after, strict=True)]
    if not widths:
        return inner.copy()
    if mode != "constant":
        how: Any = mode
        padded: Array = np.pad(inner, widths, how)
        return padded
    fill = np.zeros((), x.dtype) if value is None else value.reshape(())
    shape = [n + sum(w) for n, w in zip(inner.shape, widths, strict=True)]
    out = np.full(shape, fill, x.dtype)
    out[tuple(slice(b, b + n) for (b, _), n in zip(widths, inner.shape, strict=True))] = inner
    return out


@pad.layouts
def pad_layouts(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    """Around spatial axes; the padding of the last block must stay zero."""
    before, after = (*call.attrs["before"], 0), (*call.attrs["after"], 0)
    if any(known_dim(p) != 0 for p in (*before[:2], *after[:2])):
        return
    value = call.args[1]
    zero = value is None or (value.constant is not None and not value.constant.any())
    attrs = {**call.attrs, "before": before, "after": after}
    for form in same_on_blocks(blocking, call, out, attrs):
        if zero or (channels_of(out) or 0) % form.result == 0:
            yield form


@pad.compute
def pad_compute(
    x: te.Tensor,
    value: te.Tensor | None,
    *,
    before: Dims,
    after: Dims,
    mode: str,
    out: TensorType,
) -> te.Tensor:
    padded = [n for n in range(x.ndim) if not (_is_zero(before[n]) and _is_zero(after[n]))]
    sides = [(as_expr(before[n]), as_expr(after[n])) for n in range(x.ndim)]

    def element(*i: Expr) -> Any:
        if mode == "constant":
            return _filled(x, value, i, {n: sides[n] for n in padded})
        places = list(i)
        for n in padded:
            places[n] = _outside(i[n], x.shape[n], *sides[n], PLACES[mode])
        return x[tuple(places)]

    return te.compute(out.shape, element, name="pad")


def _filled(
    x: te.Tensor,
    value: te.Tensor | None,
    i: tuple[Expr, ...],
    sides: dict[int, tuple[Expr, Expr]],
) -> Any:
    inside: list[Expr] = []
    places = list(i)
    for n, (before, after) in sides.items():
        places[n] = i[n] - before
        inside += [] if _never_positive(before) else [i[n] >= before]
        inside += [] if _never_positive(after) else [i[n] < x.shape[n] + before]
    source = x[tuple(places)]
    if not inside:
        return source
    fill = te.cast(te.const(0), x.dtype) if value is None else value[(0,) * value.ndim]
    return te.if_then_else(te.all_of(*inside), source, fill)


Place = Callable[[Expr, Expr], Expr]


def _outside(i: Expr, extent: Expr, before: Expr, after: Expr, place: Place) -> Expr:
    """The index to read along one dimension that is not padded with a constant."""
    cut = te.maximum(-before, 0)
    left = tidy(extent - cut - te.maximum(-after, 0), extent)
    position = place(i - te.maximum(before, 0), left)
    # Clamped, so that no check is needed; it is inside, if there is anything at all.
    return te.maximum(te.minimum(position + cut, extent - 1), 0)


def _reflected(i: Expr, n: Expr) -> Expr:
    """0 1 2 3 2 1 | 0 1 2 3 2 1 …: the position in a period of 2(n - 1), from its nearer end."""
    last = n - 1
    phase = i % te.maximum(last * 2, 1)
    return last - te.abs(phase - last)


#: The index that is read for an index outside of n elements.
PLACES: dict[str, Place] = {
    "constant": lambda i, _: i,
    "edge": lambda i, n: te.clip(i, 0, n - 1),
    "reflect": _reflected,
    "wrap": lambda i, n: i % n,
}


def _is_zero(pad: Dim) -> bool:
    return known_dim(pad) == 0


def _never_positive(pad: Expr) -> bool:
    number = known_dim(pad)
    return number is not None and number <= 0


def _check_something_to_repeat(x: Value, before: Dims, after: Dims, mode: str) -> None:
    for extent, b, a in zip(x.shape, before, after, strict=True):
        n, low, high = known_dim(extent), known_dim(b), known_dim(a)
        if n is None or low is None or high is None:
            _ask_for_enough(extent, as_expr(b), as_expr(a), mode)
            continue
        left = n + min(low, 0) + min(high, 0)
        if left < 0:
            raise UserError(f"{-min(low, 0)} and {-min(high, 0)} of {n} elements cannot be cut off")
        if left == 0 and mode != "constant" and max(low, high) > 0:
            raise UserError(f"a dimension of {x} has nothing to fill its border with")


def _ask_for_enough(extent: Expr, before: Expr, after: Expr, mode: str) -> None:
    least = 0 if mode == "constant" or (_is_zero(before) and _is_zero(after)) else 1
    left = extent - maximum(-before, 0) - maximum(-after, 0)
    ask(left >= least, f"{extent} elements cannot be padded by {before} and {after}")


# ---- crop or pad --------------------------------------------------------------------------------


@op
def center_crop_pad(x: Value, *, shape: Dims, axes: Ints | None = None) -> Type:
    """`x` cut, or filled with zeros, to these extents, with its middle in the middle."""
    return x.tensor.with_shape(_wanted(x, shape, axes))


@center_crop_pad.reference
def center_crop_pad_reference(x: Array, *, shape: Ints, axes: Ints | None) -> Array:
    wanted = list(x.shape)
    for axis, extent in zip(axes_of(axes, x.ndim), shape, strict=True):
        wanted[axis] = extent
    out = np.zeros(wanted, x.dtype)
    source, target = list[slice](), list[slice]()
    for n, m in zip(x.shape, wanted, strict=True):
        size, cut, skip = min(n, m), max(0, n - m) // 2, max(0, m - n) // 2
        source.append(slice(cut, cut + size))
        target.append(slice(skip, skip + size))
    out[tuple(target)] = x[tuple(source)]
    return out


@center_crop_pad.decompose
def center_crop_pad_decompose(b: Any, x: Value, *, shape: Dims, axes: Ints | None) -> Value:
    wanted = _wanted(x, shape, axes)
    # Separate borders for cropping and for padding: both are halved, rounding down.
    cut = [_half(maximum(n - m, 0)) for n, m in zip(x.shape, wanted, strict=True)]
    skip = [_half(maximum(m - n, 0)) for n, m in zip(x.shape, wanted, strict=True)]
    before = [tidy(s - c) for s, c in zip(skip, cut, strict=True)]
    after = [tidy(m - n - s) for n, m, s in zip(x.shape, wanted, before, strict=True)]
    return b.pad(x, before=before, after=after)


def _half(extent: Expr) -> Expr:
    return extent // 2


def _wanted(x: Value, shape: Dims, axes: Ints | None) -> list[Expr]:
    chosen = axes_of(axes, x.ndim)
    if len(chosen) != len(shape):
        raise UserError(f"{len(shape)} extents are given for {len(chosen)} axes")
    wanted = list(x.shape)
    for axis, extent in zip(chosen, shape, strict=True):
        wanted[axis] = as_expr(extent)
    return wanted
