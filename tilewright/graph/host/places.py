"""Where values live while a host program runs.

param, scalar    a buffer of the program
row              a part of one: the half of a pair, the row of a table
constant         at an address that a table holds
block            in a numbered block of the heap, for sizes that are known only on the way
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.arith import simplify
from tilewright.ir import Buffer, Expr, Load, address_of, call, cast, const

_ZERO: Final = const(0)


class Place:
    """Memory that holds a value; `address` is where it begins."""

    @property
    def address(self) -> Expr:
        raise NotImplementedError

    @property
    def block(self) -> int | None:
        """The number of the block that it is, if it is one."""
        return None

    def part(self, start: Expr) -> Place:
        """What lies in it from some byte on."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class BufferPlace(Place):
    """A buffer, or what lies in it under the first indices `at`, from an element on."""

    buffer: Buffer
    at: tuple[Expr, ...] = ()
    start: Expr = _ZERO

    @property
    def address(self) -> Expr:
        rest = [const(0)] * (self.buffer.ndim - len(self.at))
        # Elements follow each other, so that any can be counted along the last axis.
        return address_of(Load(self.buffer, (*self.at, *rest[:-1], *[self.start][: len(rest)])))

    def part(self, start: Expr) -> Place:
        elements = simplify(self.start + start // self.buffer.dtype.itemsize)
        return BufferPlace(self.buffer, self.at, elements)


@dataclass(frozen=True, eq=False)
class AddressPlace(Place):
    """Whatever lies at an address."""

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
    def block(self) -> int | None:
        return self.number if self.offset is None else None

    def part(self, start: Expr) -> Place:
        return BlockPlace(self.number, start if self.offset is None else self.offset + start)
