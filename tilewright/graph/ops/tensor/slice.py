"""Parts of a tensor: slices with any steps, splits, and concats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.arith import simplify
from tilewright.graph.ir import KNOWN_LIMIT, Array, Call, Value
from tilewright.graph.ir.attributes import Dim, Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim, product
from tilewright.graph.layouts.images import (
    Blocking,
    Form,
    channels_of,
    last_layouts,
    same_on_blocks,
)
from tilewright.graph.ops.elementwise.elementwise import require_same_dtype
from tilewright.graph.sizes.agreement import ask, is_asked, require_equal
from tilewright.graph.sizes.axes import axes_of, axis_of, clamped, counted_from_front, tidy
from tilewright.graph.sizes.naturals import is_signed
from tilewright.ir import Expr, as_expr, const, free_vars, maximum, minimum
from tilewright.support.errors import UserError
from tilewright.tensor import te

#: Ends at least this far out mean "to the end", whatever the extent is.
_FAR = 2**31 - 1
#: Numbers are clamped to these bounds, so that their differences do not overflow.
_FARTHEST = 2**61
#: More elements than any tensor has: a step this long takes one element at most.
_LONGEST_STEP = 2**48

# ---- slice --------------------------------------------------------------------------------------


class SliceRange(NamedTuple):
    """The elements taken along one axis: `size` of them from `start` on, `step` apart."""

    start: Expr
    size: Expr
    step: int


@op
def slice_(
    x: Value, *, starts: Dims, ends: Dims, axes: Ints | None = None, steps: Ints | None = None
) -> Type:
    """`x[start:end:step]` along each of the axes; negative starts and ends count from the end."""
    spans = spans_of(x, starts, ends, axes, steps)
    return x.tensor.with_shape(spans[n].size if n in spans else d for n, d in enumerate(x.shape))


@slice_.reference
def slice_reference(
    x: Array, *, starts: Ints, ends: Ints, axes: Ints | None, steps: Ints | None
) -> Array:
    index = [slice(None)] * x.ndim
    for n, axis in enumerate(axes_of(axes, len(starts) if axes is None else x.ndim)):
        step = 1 if steps is None else steps[n]
        # NumPy counts an end of -1 from the back; far below everything means "to the front".
        index[axis] = slice(starts[n], None if step < 0 and ends[n] <= -_FAR else ends[n], step)
    return x[tuple(index)].copy()


@slice_.compute
def slice_compute(
    x: te.Tensor,
    *,
    starts: Dims,
    ends: Dims,
    axes: Ints | None,
    steps: Ints | None,
    out: TensorType,
) -> te.Tensor:
    spans = spans_of(x, starts, ends, axes, steps)

    def element(*i: Expr) -> Expr:
        return x[tuple(_within(spans.get(n), index) for n, index in enumerate(i))]

    return te.compute(out.shape, element, name="slice")


@slice_.part
def slice_part(result: Value, x: Value, **bounds: Any) -> Expr | None:
    """A slice is contiguous where all axes before the last one that is cut have one element."""
    if x.is_constant or x.dtype.bits < 8:
        return None
    spans = spans_of(x, **bounds)
    if any(s.step != 1 and known_dim(result.shape[k]) != 1 for k, s in spans.items()):
        return None
    cut = [k for k in range(x.ndim) if x.shape[k] is not result.shape[k]]
    if any(known_dim(d) != 1 for d in result.shape[: max(cut, default=0)]):
        return None
    offset: Expr = const(0)
    for axis, span in spans.items():
        offset = offset + span.start * product(x.shape[axis + 1 :])
    return simplify(offset)


@slice_.layouts
def slice_layouts(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    """Channels are taken by whole blocks, other axes as they are."""
    (x,) = call.args
    assert x is not None
    attrs = dict(call.attrs)
    axes = axes_of(attrs["axes"], len(attrs["starts"]) if attrs["axes"] is None else x.ndim)
    attrs["axes"] = axes
    if 1 not in axes:
        yield from same_on_blocks(blocking, call, out, attrs)
        return
    span = spans_of(x, **call.attrs)[1]
    start, size, count = known_dim(span.start), known_dim(span.size), channels_of(x.type)
    if blocking.is_last:
        yield from last_layouts(blocking, call, out, axes=[x.ndim if a == 1 else a for a in axes])
        return
    if start is None or size is None or count is None or span.step != 1:
        return
    for form in same_on_blocks(blocking, call, out, attrs):
        block = form.result
        if start % block == 0 and size % block == 0 and count % block == 0:
            ends = (start // block, (start + size) // block)
            yield from _block_slices(blocking, call, out, attrs, axes, ends, block)


def _block_slices(
    blocking: Blocking,
    call: Call,
    out: TensorType,
    attrs: dict[str, Any],
    axes: Sequence[int],
    ends: tuple[int, int],
    block: int,
) -> Iterator[Form]:
    at = list(axes).index(1)
    own = dict(attrs)
    for name, end in zip(("starts", "ends"), ends, strict=True):
        own[name] = tuple(end if n == at else d for n, d in enumerate(attrs[name]))
    yield from (f for f in same_on_blocks(blocking, call, out, own) if f.result == block)


@slice_.symbolic
def slice_symbolic(
    x: Value, *, starts: Dims, ends: Dims, axes: Ints | None, steps: Ints | None
) -> Array | None:
    bounds = [known_dim(d) for d in (*starts, *ends)]
    if x.known is None or None in bounds:
        return None
    numbers = tuple(b for b in bounds if b is not None)
    half = len(starts)
    return slice_reference(
        x.known, starts=numbers[:half], ends=numbers[half:], axes=axes, steps=steps
    )


def _within(span: SliceRange | None, index: Expr) -> Any:
    if span is None:
        return index
    scaled = index if span.step == 1 else index * span.step
    return scaled if known_dim(span.start) == 0 else scaled + span.start


def spans_of(
    x: Value | te.Tensor, starts: Dims, ends: Dims, axes: Ints | None, steps: Ints | None
) -> dict[int, SliceRange]:
    """The elements that a slice takes along each of its axes."""
    steps = (1,) * len(starts) if steps is None else steps
    given = axes_of(axes, len(starts) if axes is None else x.ndim)
    if not len(starts) == len(ends) == len(steps) == len(given) <= x.ndim:
        raise UserError(
            f"a slice of {x.ndim} dimensions has {len(starts)} starts, {len(ends)} ends, "
            f"{len(steps)} steps and {len(given)} axes"
        )
    if 0 in steps:
        raise UserError("a slice cannot go in steps of 0")
    bounds = zip(given, starts, ends, steps, strict=True)
    return {a: span_of(x.shape[a], s, e, step) for a, s, e, step in bounds}


def span_of(extent: Expr, start: Dim, end: Dim, step: int = 1) -> SliceRange:
    """The elements of `extent` ones that `start:end:step` takes."""
    start, end = _held(start), _held(end)
    step = min(max(step, -_LONGEST_STEP), _LONGEST_STEP)
    begin, length = (_forwards if step > 0 else _backwards)(extent, start, end)
    size = abs(step)
    count = length if size == 1 else (length + (size - 1)) // size
    return SliceRange(begin, tidy(maximum(count, 0), extent), step)


def _held(bound: Dim) -> Dim:
    """A start or an end, clamped so that it can be computed with."""
    number = known_dim(bound)
    if number is not None:
        return min(max(number, -_FARTHEST), _FARTHEST)
    if any(map(is_signed, free_vars(as_expr(bound)))):
        return clamped(bound, -_FARTHEST, _FARTHEST)
    return bound


def _forwards(extent: Expr, start: Dim, end: Dim) -> tuple[Expr, Expr]:
    """The beginning and the length, which is negative where nothing is taken.

    Where something is taken, the start is before the end, so that only the end is clamped.
    """
    a, b = known_dim(start), known_dim(end)
    begin = counted_from_front(start, extent)
    if a is None or a < 0:
        begin = tidy(maximum(begin, 0), extent)
    if b is not None and b >= _FAR:
        # The last `-a` elements, or all there are.
        return begin, minimum(extent, -a) if a is not None and a < 0 else extent - begin
    stop = counted_from_front(end, extent)
    inside = b is not None and b < 0
    return begin, (stop if inside else minimum(stop, extent)) - begin


def _backwards(extent: Expr, start: Dim, end: Dim) -> tuple[Expr, Expr]:
    """The beginning and the length, of positions -1 … n - 1."""
    a, b = known_dim(start), known_dim(end)
    begin = counted_from_front(start, extent)
    if a is None or a >= 0:
        begin = tidy(minimum(begin, extent - 1), extent)
    if b is not None and b <= -_FAR:
        return begin, begin + 1
    stop = counted_from_front(end, extent)
    inside = b is not None and b >= 0
    return begin, begin - (stop if inside else maximum(stop, -1))


# ---- split and concat ---------------------------------------------------------------------------


@op
def split(x: Value, *, sizes: Dims, axis: int = 0) -> tuple[Type, ...]:
    """Parts of these extents along `axis`, one after the other."""
    axis = axis_of(axis, x.ndim)
    numbers = [known_dim(s) for s in (*sizes, x.shape[axis])]
    if all(n is not None for n in numbers):
        *parts, extent = (n for n in numbers if n is not None)
        if sum(parts) != extent or min(parts, default=0) < 0:
            raise UserError(f"parts of {parts} do not make up {extent} elements")
    elif is_asked():
        total = as_expr(sum(sizes[1:], sizes[0]) if sizes else 0)
        text = f"parts of {tidy(total)} elements do not make up {x.shape[axis]}"
        ask(total == x.shape[axis], text)
    return tuple(
        x.tensor.with_shape([*x.shape[:axis], size, *x.shape[axis + 1 :]]) for size in sizes
    )


@split.reference
def split_reference(x: Array, *, sizes: Ints, axis: int) -> list[Array]:
    return [p.copy() for p in np.split(x, np.cumsum(sizes)[:-1].tolist(), axis)]


@split.decompose
def split_decompose(b: Any, x: Value, *, sizes: Dims, axis: int) -> list[Value]:
    parts: list[Value] = []
    start: Dim = 0
    for size in sizes:
        end = start + size
        parts.append(b.slice(x, starts=[start], ends=[end], axes=[axis]))
        start = end
    return parts


@split.symbolic
def split_symbolic(x: Value, *, sizes: Dims, axis: int) -> list[Array] | None:
    numbers = [known_dim(s) for s in sizes]
    if x.known is None or None in numbers:
        return None
    return split_reference(x.known, sizes=tuple(n for n in numbers if n is not None), axis=axis)


@op
def concat(*xs: Value, axis: int) -> Type:
    """Tensors one after the other along `axis`."""
    if not xs:
        raise UserError("there is nothing to put together")
    require_same_dtype(*xs)
    axis = axis_of(axis, xs[0].ndim)
    total: Expr = const(0)
    shape = list(xs[0].shape)
    for x in xs:
        _join_shape(shape, x, axis)
        total = total + x.shape[axis]
    shape[axis] = tidy(total)
    return xs[0].tensor.with_shape(shape)


@concat.reference
def concat_reference(*xs: Array, axis: int) -> Array:
    return np.concatenate(xs, axis)


@concat.compute
def concat_compute(*xs: te.Tensor, axis: int, out: TensorType) -> te.Tensor:
    axis = axis_of(axis, out.ndim)
    parts = [x for x in xs if known_dim(x.shape[axis]) != 0] or list(xs[:1])
    starts: list[Expr] = [const(0)]
    for x in parts:
        starts.append(tidy(starts[-1] + x.shape[axis]))

    def part(n: int, i: tuple[Expr, ...]) -> Expr:
        index = i[axis] - starts[n] if n else i[axis]
        return parts[n][(*i[:axis], index, *i[axis + 1 :])]

    def element(*i: Expr) -> Expr:
        result = part(len(parts) - 1, i)
        for n in reversed(range(len(parts) - 1)):
            result = te.if_then_else(i[axis] < starts[n + 1], part(n, i), result)
        return result

    return te.compute(out.shape, element, name="concat")


@concat.symbolic
def concat_symbolic(*xs: Value, axis: int) -> Array | None:
    known = [x.known for x in xs]
    arrays = [k for k in known if k is not None]
    if len(arrays) < len(xs) or sum(a.size for a in arrays) > KNOWN_LIMIT:
        return None
    return np.concatenate(arrays, axis)


@concat.join
def concat_join(result: Value, *xs: Value, axis: int) -> bool:
    """Of known sizes, where all axes before that of the concat have one element."""
    axis = axis_of(axis, result.ndim)
    return (
        result.tensor.is_static
        and result.dtype.bits >= 8
        and all(known_dim(d) == 1 for d in result.shape[:axis])
        and all(x.tensor.is_static for x in xs)
    )


@concat.layouts
def concat_layouts(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    """Blocks of channels stay whole."""
    axis = axis_of(call.attrs["axis"], out.ndim)
    channels = [channels_of(x.type) for x in call.args if x is not None]
    if axis == 1 and blocking.is_last:
        yield from last_layouts(blocking, call, out, axis=out.ndim)
        return
    for form in same_on_blocks(blocking, call, out, {"axis": axis}):
        if axis != 1 or all(c is not None and c % form.result == 0 for c in channels):
            yield form


def _join_shape(shape: list[Expr], x: Value, axis: int) -> None:
    """Require `shape` to agree with one more tensor; numbers replace symbols."""
    if x.ndim != len(shape):
        raise UserError(f"{x} cannot be put beside a tensor of {len(shape)} dimensions")
    for n, dim in enumerate(x.shape):
        if n != axis:
            shape[n] = require_equal(shape[n], dim, f"dimension {n} of what is put together")
