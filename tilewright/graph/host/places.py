"""Where values live while a host program runs.

param, scalar    a buffer of the program
row              a part of one: the half of a pair, the row of a table
constant         at an address that a table holds
block            in a numbered block of the heap, for sizes that are known only on the way
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import Buffer, Expr, Load, address_of, call, cast, const


class Place:
    """Memory that holds a value; `address` is where it begins."""

    @property
    def address(self) -> Expr:
        raise NotImplementedError

    @property
    def block(self) -> int | None:
        """The number of the block that it is, if it is one."""
        return None


@dataclass(frozen=True, eq=False)
class BufferPlace(Place):
    """A buffer, or what lies in it under the first indices `at`."""

    buffer: Buffer
    at: tuple[Expr, ...] = ()

    @property
    def address(self) -> Expr:
        rest = (const(0),) * (self.buffer.ndim - len(self.at))
        return address_of(Load(self.buffer, (*self.at, *rest)))


@dataclass(frozen=True, eq=False)
class AddressPlace(Place):
    """Whatever lies at an address."""

    where: Expr

    @property
    def address(self) -> Expr:
        return self.where


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
