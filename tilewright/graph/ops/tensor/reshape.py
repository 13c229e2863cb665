"""The same elements in another shape."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.graph.building.builder import Builder
from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, known_dim, product
from tilewright.graph.layouts.images import Blocking, Form, blocked_type, channels_of
from tilewright.graph.sizes.agreement import ask, is_asked, require_equal
from tilewright.graph.sizes.axes import axes_of
from tilewright.graph.sizes.naturals import simplify_size
from tilewright.ir import Expr, const
from tilewright.support.errors import UserError
from tilewright.tensor import te

# ---- reshape ------------------------------------------------------------------------------------


@op(view=True)
def reshape(x: Value, *, shape: Dims) -> Type:
    """`x` in another shape; one extent may be -1 and takes what is left."""
    wanted = _without_wildcard(x.shape, [d if isinstance(d, Expr) else const(d) for d in shape])
    have, want = known_dim(product(x.shape)), known_dim(product(wanted))
    if have is not None and want is not None and have != want:
        raise _wrong_size(x, shape)
    result = x.tensor.with_shape(wanted)
    if is_asked():
        text = f"{x} cannot have the shape [{', '.join(map(str, result.shape))}]"
        ask(product(x.shape) == product(result.shape), text)
    return result


@reshape.reference
def reshape_reference(x: Array, *, shape: tuple[int, ...]) -> Array:
    if -1 in shape and x.size == 0:
        # NumPy cannot resolve -1 for empty arrays; the other extents can, if none of them is 0.
        return x.reshape([0 if d == -1 else d for d in shape])
    return x.reshape(shape)


@reshape.compute
def reshape_compute(x: te.Tensor, *, shape: Dims, out: TensorType) -> te.Tensor:
    del shape
    if any(known_dim(d) == 0 for d in (*x.shape, *out.shape)):
        # The result is empty: no element needs an index.
        return te.compute(out.shape, lambda *_: x[(0,) * x.ndim], name="reshape")
    groups = _groups(x.shape, out.shape)

    def element(*i: Expr) -> Expr:
        indices: list[Expr] = []
        for group in groups:
            own, i = i[: len(group.result)], i[len(group.result) :]
            indices += group.source_indices(own)
        return x[tuple(indices)]

    return te.compute(out.shape, element, name="reshape")


class _Group(NamedTuple):
    """Dimensions of the operand and of the result that hold the same elements."""

    source: Sequence[Expr]
    result: Sequence[Expr]

    @property
    def fits(self) -> bool:
        """Whether both have equally many elements, as far as is known."""
        return product(self.source) is product(self.result)

    def source_indices(self, indices: Sequence[Expr]) -> list[Expr]:
        """The indices in the operand of the element at `indices` of the result."""
        if len(self.source) == len(self.result) == 1:
            return list(indices)
        position = _row_major(indices, self.result)
        found: list[Expr] = []
        for n, extent in enumerate(self.source):
            below = product(self.source[n + 1 :])
            index = position if known_dim(below) == 1 else position // below
            is_outermost = all(known_dim(d) == 1 for d in self.source[:n])
            index = index if is_outermost else index % extent
            found.append(const(0) if known_dim(extent) == 1 else index)
        return found


def _groups(source: Sequence[Expr], result: Sequence[Expr]) -> list[_Group]:
    """Dimensions matched in groups, so that unchanged extents cost no division: (n, 3, 4) to
    (n, 12) divides only the index of the 12."""
    groups: list[_Group] = []
    while source or result:
        group = _first_group(source, result)
        groups.append(group)
        source, result = source[len(group.source) :], result[len(group.result) :]
    return groups


def _first_group(source: Sequence[Expr], result: Sequence[Expr]) -> _Group:
    """The fewest leading dimensions of both with equally many elements; all where none are."""
    m, n = min(1, len(source)), min(1, len(result))
    while not (group := _Group(source[:m], result[:n])).fits:
        have, want = known_dim(product(group.source)), known_dim(product(group.result))
        if have is None or want is None:
            return _Group(source, result)
        m, n = (m + 1, n) if have < want else (m, n + 1)
        if m > len(source) or n > len(result):
            return _Group(source, result)
    return group


def _row_major(indices: Sequence[Expr], extents: Sequence[Expr]) -> Expr:
    """The position of an element in an array of these extents."""
    position: Expr | None = None
    for index, extent in zip(indices, extents, strict=True):
        if known_dim(extent) != 1:
            position = index if position is None else position * extent + index
    return const(0) if position is None else position


@reshape.layouts
def reshape_layouts(blocking: Blocking, call: Call, out: TensorType) -> Iterator[Form]:
    """Channels that are last stay so, where batch and channels of both images are the same."""
    (x,) = call.args
    assert x is not None
    if not blocking.is_last or x.ndim < 3 or out.ndim < 3 or x.shape[:2] != out.shape[:2]:
        return

    def emit(builder: Builder, args: Sequence[Any]) -> Any:
        shape = blocked_type(out, channels_of(out) or 0).shape
        return builder.emit("reshape", args[0], shape=shape)

    for block in blocking.blocks(out):
        yield Form((block,), block, 0.0, emit)


@reshape.symbolic
def reshape_symbolic(x: Value, *, shape: Dims) -> Array | None:
    sizes = [known_dim(d) for d in shape]
    if x.known is None or None in sizes:
        return None
    return x.known.reshape([d for d in sizes if d is not None])


def _without_wildcard(source: Sequence[Expr], wanted: Sequence[Expr]) -> list[Expr]:
    """-1 replaced by the extent that the others leave."""
    wild = [n for n, d in enumerate(wanted) if known_dim(d) == -1]
    if not wild:
        return list(wanted)
    if len(wild) > 1:
        raise UserError("more than one extent is -1")
    others = [d for n, d in enumerate(wanted) if n != wild[0]]
    result = list(wanted)
    result[wild[0]] = _rest(source, others)
    return result


def _rest(source: Sequence[Expr], others: Sequence[Expr]) -> Expr:
    """The quotient of both products; extents on both sides need no division."""
    left, divisors = list(source), list[Expr]()
    for extent in others:
        if any(extent is e for e in left):
            del left[next(n for n, e in enumerate(left) if e is extent)]
        else:
            divisors.append(extent)
    total, rest = product(left), product(divisors)
    number, by = known_dim(total), known_dim(rest)
    if number is not None and by is not None:
        if (number % by if by else number) != 0:
            raise UserError(f"{number} elements cannot be divided by {by}")
        return const(number // by if by else 0)
    return simplify_size(total // rest)


def _wrong_size(x: Value, shape: Dims) -> UserError:
    return UserError(
        f"{x} cannot have the shape [{', '.join(map(str, shape))}]",
        remedy="keep the number of elements",
    )


# ---- shapes that follow from the tensor ---------------------------------------------------------


@op
def flatten(x: Value, *, axis: int = 1) -> Type:
    """A matrix: the dimensions before `axis` are its rows, the others its columns."""
    at = _border(axis, x.ndim)
    return x.tensor.with_shape([product(x.shape[:at]), product(x.shape[at:])])


@flatten.reference
def flatten_reference(x: Array, *, axis: int) -> Array:
    at = _border(axis, x.ndim)
    return x.reshape(math.prod(x.shape[:at]), math.prod(x.shape[at:]))


def _border(axis: int, rank: int) -> int:
    if not -rank <= axis <= rank:
        raise UserError(f"there is no axis {axis}", reason=f"the tensor has {rank} dimensions")
    return axis + rank if axis < 0 else axis


@op
def squeeze(x: Value, *, axes: Ints | None = None) -> Type:
    """`x` without these dimensions of one element; without all that are known to have one."""
    return x.tensor.with_shape(_squeezed(x.shape, axes))


@squeeze.reference
def squeeze_reference(x: Array, *, axes: Ints | None) -> Array:
    return np.squeeze(x, axes)


def _squeezed(shape: Sequence[Expr], axes: Ints | None) -> list[Expr]:
    if axes is None:
        return [d for d in shape if known_dim(d) != 1]
    dropped = axes_of(axes, len(shape))
    for axis in dropped:
        require_equal(shape[axis], 1, f"dimension {axis}, which is left out, and one element")
    return [d for n, d in enumerate(shape) if n not in dropped]


@op
def unsqueeze(x: Value, *, axes: Ints) -> Type:
    """`x` with dimensions of one element at these places of the result."""
    return x.tensor.with_shape(_unsqueezed(x.shape, axes))


@unsqueeze.reference
def unsqueeze_reference(x: Array, *, axes: Ints) -> Array:
    return np.expand_dims(x, axes)


def _unsqueezed(shape: Sequence[Expr], axes: Ints) -> list[Expr]:
    added = axes_of(axes, len(shape) + len(axes))
    rest = iter(shape)
    return [const(1) if n in added else next(rest) for n in range(len(shape) + len(axes))]


def _to_shape(declared: Any) -> None:
    """Make a declared operator the reshape to the shape that it infers."""

    @declared.decompose
    def decompose(b: Any, x: Value, **attrs: Any) -> Value:
        return b.reshape(x, shape=declared.infer((x,), attrs)[0].shape)

    @declared.symbolic
    def symbolic(x: Value, **attrs: Any) -> Array | None:
        shape = declared.infer((x,), attrs)[0].static_shape if x.known is not None else ()
        return None if x.known is None else x.known.reshape(shape)

    del decompose, symbolic


for _declared in (flatten, squeeze, unsqueeze):
    _to_shape(_declared)
