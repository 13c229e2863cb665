"""What users hold: loops, blocks and sampled numbers.

Loop variables are unique objects, so a loop is identified by its variable; a block by its name. A
handle is valid as long as the loop or block exists, in the schedule and in copies of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import Expr, Var


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of a schedule."""

    var: Var

    @property
    def name(self) -> str:
        return self.var.name

    def as_expr(self) -> Expr:
        return self.var

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Loop) and other.var is self.var

    def __hash__(self) -> int:
        return hash(self.var)

    def __repr__(self) -> str:
        return f"Loop({self.name})"


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A block of a schedule."""

    name: str

    def __repr__(self) -> str:
        return f"Block({self.name})"


class Sampled(int):
    """A sampled number; traces keep a reference to it, so that it can be sampled again."""

    id: int

    def __new__(cls, value: int, number: int) -> Sampled:
        self = super().__new__(cls, value)
        self.id = number
        return self


#: What a primitive returns to the user: loop variables, names of blocks, sampled numbers.
Result = Loop | BlockRef | int
LoopLike = Loop | Var | str
BlockLike = BlockRef | str
