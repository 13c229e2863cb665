"""The state of an execution: variables, memory, and active lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from tilewright.ir import (
    Buffer,
    Const,
    Expr,
    Function,
    Load,
    Stmt,
    Var,
    evaluate,
    listing,
    loads_in,
)
from tilewright.simt.error import LaneError, SimtError, UnknownError
from tilewright.simt.lanes import ALONE, Array, Lanes, Mask
from tilewright.simt.memory import Memory
from tilewright.simt.tape import Tape, make_tape
from tilewright.simt.unknown import raise_where

#: Executes a statement for the lanes of a mask, at least one of which is active.
Run = Callable[[Mask], None]
T = TypeVar("T")


class Copy(NamedTuple):
    """A pending asynchronous copy: its values, destination, and lanes."""

    memory: Memory
    place: Array
    values: Array
    wanted: Mask


class State:
    """The state of a function's execution."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.env: dict[Var, Array] = {}
        #: The lanes in which variables are unknown (`simt.unknown`).
        self.unknown: dict[Var, Array] = {}
        self.memories: dict[Buffer, Memory] = {}
        #: Loads since their variables or memory last changed, with their masks: unrolled code
        #: repeats the same loads.
        self._held: dict[Buffer, dict[Load, tuple[Mask, tuple[Array, Mask]]]] = {}
        self.lanes = Lanes(ALONE, 0, 1)
        #: Copies since the last commit, and the committed groups that have not completed.
        self.copies: list[Copy] = []
        self.groups: list[list[Copy]] = []
        #: Group products since the last commit, and the committed ones that have not completed.
        self.products: list[Run] = []
        self.product_groups: list[list[Run]] = []
        #: Whether the code being compiled is inside a launch.
        self.on_device = False

    def tape(self, stmt: Stmt, *exprs: Expr) -> Tape:
        """The values of a statement's expressions."""
        if not self.on_device and any(loads_in(e) for e in exprs):
            raise self.error(stmt, "the host does not read elements of buffers")
        return make_tape(exprs, self.env, self.unknown, self._load)

    def _load(self, node: Load, indices: list[Array], wanted: Mask) -> tuple[Array, Mask]:
        held = self._held.setdefault(node.buffer, {})
        found = held.get(node)
        if found is not None and found[0] is wanted:
            return found[1]
        memory = self.memories[node.buffer]
        value = memory.load(self.lanes, self.element(memory, indices, wanted), wanted)
        held[node] = wanted, value
        return value

    def bind(self, var: Var, value: Array, unknown: Mask = None) -> None:
        """Set a variable, and the lanes where it is unknown."""
        self._held.clear()
        self.env[var] = value
        self.unknown.pop(var, None)
        if unknown is not None:
            self.unknown[var] = unknown

    def forget_loads(self, buffer: Buffer | None = None) -> None:
        """Forget cached loads of one buffer, or of all."""
        if buffer is None:
            self._held.clear()
        else:
            self._held.pop(buffer, None)

    def element(self, memory: Memory, indices: list[Array], wanted: Mask) -> Array:
        """The flat index of an element: its only index, or computed from one per dimension."""
        if len(indices) == 1:
            return indices[0]
        buffer = memory.buffer
        position = np.asarray(self.number(buffer.offset), np.int64)
        for index, extent, stride in zip(indices, buffer.shape, buffer.stride_exprs(), strict=True):
            index = memory.inside(index, self.number(extent), wanted, self.lanes)
            position = position + index * self.number(stride)
        return position

    def number(self, expr: Expr) -> int:
        """The value of a uniform expression."""
        return int(expr.value) if isinstance(expr, Const) else int(evaluate(expr, self.env))

    def size(self, buffer: Buffer) -> int:
        """The number of elements of a buffer's memory, including gaps."""
        shape = [self.number(d) for d in buffer.shape]
        if buffer.is_compact or 0 in shape:
            return int(np.prod(shape, dtype=np.int64))
        strides = [self.number(s) for s in buffer.stride_exprs()]
        steps = sum((d - 1) * s for d, s in zip(shape, strides, strict=True))
        return self.number(buffer.offset) + steps + 1

    def error(self, stmt: Stmt, reason: str, lane: int | None = None) -> SimtError:
        """An error that shows the statement, and a lane's thread."""
        place = None if lane is None else self.lanes.place(lane)
        shown = listing(self.function, {stmt: reason})
        return SimtError(self.function.name, place, reason, shown)

    def told(self, stmt: Stmt, run: Callable[[Mask], T]) -> Callable[[Mask], T]:
        """`run`, with the statement shown in its errors."""

        def guarded(active: Mask) -> T:
            try:
                return run(active)
            except LaneError as fault:
                raise self.error(stmt, fault.reason, fault.lane) from None
            except UnknownError as fault:
                lane, _ = self.lanes.first_of(fault.lanes, np.zeros((), np.int64))
                raise self.error(stmt, self._why_unknown(fault.what), lane) from None

        return guarded

    def _why_unknown(self, what: str) -> str:
        reason = f"{what} is unknown: it comes from memory that nobody has written"
        last = self.lanes.last_unwritten
        return f"{reason} (last {last})" if last else reason

    def value_of(self, stmt: Stmt, expr: Expr, what: str) -> Callable[[Mask], Array]:
        """The value of an expression, which must be known; `what` describes it in messages."""
        tape = self.tape(stmt, expr)

        def value(active: Mask) -> Array:
            (found,), (unknown,) = tape(active)
            if unknown is not None:
                raise_where(unknown, active, what)
            return np.asarray(found)

        return self.told(stmt, value)

    def fresh(self, buffer: Buffer) -> Memory:
        """New memory for a buffer, with as many copies as its scope needs."""
        lanes, size = self.lanes, self.size(buffer)
        if buffer.scope == "shared":
            return Memory(buffer, size, row=lanes.rows_of_blocks(), copies=lanes.blocks)
        if buffer.scope == "local":
            copies = lanes.blocks * lanes.threads
            return Memory(buffer, size, row=lanes.rows_of_threads(), copies=copies)
        return Memory(buffer, size)
