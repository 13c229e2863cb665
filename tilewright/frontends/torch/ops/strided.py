"""Elements of a tensor's memory, by strides given explicitly."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.ops.indexing import back_of
from tilewright.frontends.torch.ops.shapes import reshaped
from tilewright.frontends.torch.table import converts
from tilewright.graph import Dim, Value
from tilewright.support.errors import UserError


@converts("as_strided", "as_strided_copy")
def as_strided(n: Node) -> Value:
    x, b = n.tensor("self"), n.builder
    flat = b.reshape(_transposed(n, x, _memory_order(n)), shape=[-1])
    return b.gather(flat, _places(n), axis=0)


@converts("as_strided_scatter")
def as_strided_scatter(n: Node) -> Value:
    x, b, order = n.tensor("self"), n.builder, _memory_order(n)
    ordered = _transposed(n, x, order)
    flat, source, places = (
        b.reshape(v, shape=[-1]) for v in (ordered, n.tensor("src", x.dtype), _places(n))
    )
    made = b.scatter_elements(flat, places, source, axis=0)
    return _transposed(n, reshaped(n, made, ordered.shape), back_of(order))


def _transposed(n: Node, x: Value, order: list[int]) -> Value:
    return x if order == sorted(order) else n.builder.transpose(x, axes=order)


def _memory_order(n: Node) -> list[int]:
    """The order of a tensor's dimensions in memory, which must have no gaps."""
    meta = n.meta("self")
    rank = len(meta.shape)
    order = sorted(range(rank), key=lambda k: -int(meta.stride(k)))
    expected = 1
    for k in reversed(order):
        if int(meta.shape[k]) != 1 and int(meta.stride(k)) != expected:
            raise looks_around()
        expected *= int(meta.shape[k])
    return order


def _places(n: Node) -> Value:
    """The positions of the elements, counted from the first one of the tensor."""
    b, sizes, strides = n.builder, n.dims("size"), n.dims("stride")
    first = _first_element(n)
    _require_inside(n, first, sizes, strides)
    place = n.number(first, "int64")
    for k, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        row = b.ramp(n.constant(0, "int64"), n.number(stride, "int64"), size=size)
        behind = list(range(1, len(sizes) - k))
        place = b.add(place, b.unsqueeze(row, axes=behind) if behind else row)
    return n.expanded(place, sizes)


def _first_element(n: Node) -> Dim:
    """The first element of the result; torch counts from the start of the tensor's memory."""
    if n.get("storage_offset") is None:
        return 0
    start = n.meta("self").storage_offset()
    if not isinstance(start, int):
        raise looks_around()
    return n.dim("storage_offset") - start


def _require_inside(n: Node, first: Dim, sizes: Sequence[Dim], strides: Sequence[Dim]) -> None:
    """Refuse reads outside the tensor; `gather` checks those that depend on symbols."""
    if isinstance(first, int) and first < 0:
        raise looks_around()
    numbers = [d for d in (first, *sizes, *strides) if isinstance(d, int)]
    if 0 in sizes or len(numbers) < 1 + len(sizes) + len(strides):
        return
    steps = zip(numbers[1 : 1 + len(sizes)], numbers[1 + len(sizes) :], strict=True)
    last = numbers[0] + sum((size - 1) * stride for size, stride in steps)
    count = n.tensor("self").tensor.size
    if count is not None and last >= count:
        raise looks_around()


def looks_around() -> UserError:
    """The error for reads beyond the elements of a tensor."""
    return UserError(
        "as_strided of a tensor that is part of a larger one",
        reason="it looks at memory around the tensor",
        remedy="call .contiguous() on it first",
    )
