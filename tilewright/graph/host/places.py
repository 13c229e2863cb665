"""Where values live while a host program runs.

param, scalar    a buffer of the program
row              a part of one: half of a pair, or a row of a table
constant         at an address that a table holds
block            in a numbered block of the heap, for sizes that are known only at run time
list             a numbered list of tensors: a sequence, or an optional
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from tilewright.arith import simplify
from tilewright.ir import Buffer, Const, DType, Expr, Load, address_of, call, cast, const
from tilewright.support.errors import InternalError

_ZERO: Final = const(0)


class Slot(NamedTuple):
    """A block of the heap or a list, by its number; two of a kind can be exchanged."""

    kind: Literal["heap", "list"]
    number: int


class Place:
    """Memory that holds a value; `address` is where it begins."""

    @property
    def address(self) -> Expr:
        raise NotImplementedError

    @property
    def slot(self) -> Slot | None:
        """The heap block or list that it is, if it is a whole one."""
        return None

    def part(self, start: Expr) -> Place:
        """The place from a byte offset on."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class BufferPlace(Place):
    """A buffer, or its part under the first indices `at`, from an element on."""

    buffer: Buffer
    at: tuple[Expr, ...] = ()
    start: Expr = _ZERO

    @property
    def address(self) -> Expr:
        rest = [const(0)] * (self.buffer.ndim - len(self.at))
        # Buffers are contiguous, so that any element can be counted along the last axis.
        return address_of(Load(self.buffer, (*self.at, *rest[:-1], *[self.start][: len(rest)])))

    def part(self, start: Expr) -> Place:
        elements = simplify(self.start + start // self.buffer.dtype.itemsize)
        return BufferPlace(self.buffer, self.at, elements)

    def is_plain(self, dtype: DType, count: int) -> bool:
        """Whether it holds exactly this many elements of this type, from its beginning."""
        shape = self.buffer.shape[len(self.at) :]
        extents = [int(d.value) for d in shape if isinstance(d, Const)]
        is_whole = self.start is _ZERO and len(extents) == len(shape)
        return is_whole and self.buffer.dtype is dtype and math.prod(extents) == count

    def element(self, number: int) -> Load:
        """An element of a plain place, by its number in row-major order."""
        indices: list[Expr] = []
        for extent in reversed(self.buffer.shape[len(self.at) :]):
            assert isinstance(extent, Const)
            indices.append(const(number % int(extent.value)))
            number //= int(extent.value)
        return Load(self.buffer, (*self.at, *reversed(indices)))


@dataclass(frozen=True, eq=False)
class AddressPlace(Place):
    """Memory at an address."""

    where: Expr

    @property
    def address(self) -> Expr:
        return self.where

    def part(self, start: Expr) -> Place:
        return AddressPlace(self.where + cast(start, "uint64"))


@dataclass(frozen=True, eq=False)
class BlockPlace(Place):
    """A block of the heap, from some byte on."""

    number: int
    offset: Expr | None = None

    @property
    def address(self) -> Expr:
        start = call("heap_block", const(self.number))
        return start if self.offset is None else start + cast(self.offset, "uint64")

    @property
    def slot(self) -> Slot | None:
        return Slot("heap", self.number) if self.offset is None else None

    def part(self, start: Expr) -> Place:
        return BlockPlace(self.number, start if self.offset is None else self.offset + start)


@dataclass(frozen=True, eq=False)
class ListPlace(Place):
    """A list of tensors."""

    number: int

    @property
    def address(self) -> Expr:
        raise InternalError("a list has no elements of its own")

    @property
    def slot(self) -> Slot | None:
        return Slot("list", self.number)

    @property
    def length(self) -> Expr:
        return call("list_length", const(self.number))

    def item(self, position: Expr) -> Expr:
        """Where the elements of an item begin."""
        return call("list_item", const(self.number), position)

    def rank(self, position: Expr) -> Expr:
        """How many dimensions an item has."""
        return call("list_rank", const(self.number), position)

    def extent(self, position: Expr, axis: int) -> Expr:
        """A dimension of an item."""
        return call("list_extent", const(self.number), position, const(axis))
