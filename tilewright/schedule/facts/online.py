"""Powers relative to a maximum, e^(x - m), and sums of them: how they change when m grows.

Everything proportional to such a power then has to be scaled by e^(before - after).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tilewright.ir import (
    Binary,
    Block,
    Buffer,
    Call,
    Expr,
    If,
    Load,
    Select,
    Stmt,
    Store,
    Var,
    free_vars,
    is_const,
    loads_in,
    substitute,
)
from tilewright.schedule.error import Fault
from tilewright.schedule.facts.inverse import Solution, solved
from tilewright.schedule.facts.proportion import is_proportional
from tilewright.schedule.writing import Written, stores_of

_POWERS: Final = ("exp", "coarse_exp")


@dataclass(frozen=True, slots=True)
class Power:
    """e^(exponent - maximum), and the call that computes it."""

    call: Call
    exponent: Expr
    maximum: Load

    def of(self, difference: Expr) -> Expr:
        return self.call.with_operands((difference,))


@dataclass(frozen=True, slots=True)
class Sum:
    """A block that adds to a buffer something proportional to a power, and the indices of the
    maximum in terms of its iterators."""

    block: Block
    state: Load
    maximum: tuple[Expr, ...]


class Following:
    """Follows what consecutive blocks compute from a maximum."""

    def __init__(self, maximum: Buffer) -> None:
        self._maximum = maximum
        #: Buffers proportional to powers: indices of the maximum in terms of theirs.
        self._known: dict[Buffer, tuple[Solution, tuple[Expr, ...]]] = {}
        self.powers: dict[Block, Power] = {}
        self.sums: list[Sum] = []

    @property
    def buffers(self) -> Iterable[Buffer]:
        """Buffers, other than sums, whose values depend on the current maximum."""
        return self._known

    def follow(self, block: Block) -> Fault | None:
        read = {r.buffer for r in block.reads}
        sums = {s.state.buffer: s.block for s in self.sums}
        if early := read & sums.keys():
            name = next(iter(early)).name
            return Fault(f"block {block.name} reads sums of {name} too early", "", block)
        if self._maximum in read:
            return self._power(block)
        return self._proportional(block) if read & self._known.keys() else None

    def _power(self, block: Block) -> Fault | None:
        written, found = _written(block), None
        if written is not None:
            found = power_of(written.value, self._maximum)
        if written is None or found is None:
            reason = f"block {block.name} does not compute e^(x - {self._maximum.name}[…])"
            return Fault(reason, "", block)
        self.powers[block] = found
        return self._take(block, written, found.maximum.indices)

    def _proportional(self, block: Block) -> Fault | None:
        unknown = Fault(f"block {block.name} is not proportional to the powers", "", block)
        state, value = _added(block.body)
        written = _written(block) if state is None else None
        value = value if written is None else written.value
        loads = [] if value is None else [e for e in loads_in(value) if e.buffer in self._known]
        if value is None or len(loads) != 1 or not is_proportional(value, loads[0]):
            return unknown
        solution, indices = self._known[loads[0].buffer]
        values = solution.at(loads[0].indices)
        maximum = tuple(substitute(index, values) for index in indices)
        if written is not None:
            return self._take(block, written, maximum)
        assert state is not None
        own = frozenset[Var]().union(*(free_vars(index) for index in maximum))
        if block.init is not None or any(
            it.kind == "reduce" and it.var in own for it in block.iters
        ):
            return unknown
        self.sums.append(Sum(block, state, maximum))
        return None

    def _take(self, block: Block, written: Written, maximum: tuple[Expr, ...]) -> Fault | None:
        solution = solved(written.indices, block.iters)
        if solution is None:
            reason = f"elements of {written.buffer.name} do not tell where they were computed"
            return Fault(reason, "", block)
        self._known[written.buffer] = solution, maximum
        return None


def power_of(value: Expr, maximum: Buffer) -> Power | None:
    """x and m of e^(x - m) or e^min(x - m, 0), where m may be replaced by 0 if it is -inf."""
    if not isinstance(value, Call) or value.name not in _POWERS:
        return None
    (given,) = value.args
    if isinstance(given, Binary) and given.op == "min" and is_const(given.b, 0):
        given = given.a
    if not isinstance(given, Binary) or given.op != "sub":
        return None
    m = given.b
    if isinstance(m, Select) and _is_lowest(m.condition, m.b) and is_const(m.a, 0):
        m = m.b
    if not isinstance(m, Load) or m.buffer is not maximum:
        return None
    is_free = all(e.buffer is not maximum for e in loads_in(given.a))
    return Power(value, given.a, m) if is_free else None


def _is_lowest(condition: Expr, of: Expr) -> bool:
    if not isinstance(condition, Binary) or condition.op != "eq" or condition.a is not of:
        return False
    return is_const(condition.b, float("-inf"))


def _written(block: Block) -> Written | None:
    stores = stores_of(block)
    if isinstance(stores, Fault) or len(stores) != 1:
        return None
    return stores[0] if all(it.kind == "spatial" for it in block.iters) else None


def _added(body: Stmt) -> tuple[Load, Expr] | tuple[None, None]:
    """The element that a statement adds to, and what it adds, under a condition or not."""
    if isinstance(body, If) and body.otherwise is None:
        body = body.then
    if isinstance(body, Store) and isinstance(body.value, Binary) and body.value.op == "add":
        state = Load(body.buffer, body.indices)
        sides = [side for side in (body.value.a, body.value.b) if side is not state]
        if len(sides) == 1:
            return state, sides[0]
    return None, None
