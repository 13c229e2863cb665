"""What executes statements works on: values of variables, memory, and the lanes of the moment."""

from __future__ import annotations

from collections.abc import Callable

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
from tilewright.simt.error import LaneError, SimtError
from tilewright.simt.lanes import ALONE, Array, Lanes, Mask
from tilewright.simt.memory import Memory
from tilewright.simt.tape import Tape, make_tape

#: Executes a statement for the lanes of a mask, of which there is at least one.
Run = Callable[[Mask], None]


class State:
    """The state of one function that is executed."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.env: dict[Var, Array] = {}
        self.memories: dict[Buffer, Memory] = {}
        self.lanes = Lanes(ALONE, 0, 1)
        #: Whether what is compiled stands in a launch.
        self.on_device = False

    def tape(self, stmt: Stmt, *exprs: Expr) -> Tape:
        """The values of a statement's expressions."""
        if not self.on_device and any(loads_in(e) for e in exprs):
            raise self.error(stmt, "the host does not read elements of buffers")
        return make_tape(exprs, self.env, self._load)

    def _load(self, node: Load, indices: list[Array], wanted: Mask) -> Array:
        memory = self.memories[node.buffer]
        return memory.load(self.lanes, self._element(memory, indices, wanted), wanted)

    def _element(self, memory: Memory, indices: list[Array], wanted: Mask) -> Array:
        """The position of an element: what its one index says, or one for each dimension."""
        if len(indices) == 1:
            return indices[0]
        buffer = memory.buffer
        position = np.asarray(self.number(buffer.offset), np.int64)
        for index, extent, stride in zip(indices, buffer.shape, buffer.stride_exprs(), strict=True):
            index = memory.inside(index, self.number(extent), wanted, self.lanes)
            position = position + index * self.number(stride)
        return position

    def number(self, expr: Expr) -> int:
        """The value of an expression that is the same for all lanes."""
        return int(expr.value) if isinstance(expr, Const) else int(evaluate(expr, self.env))

    def size(self, buffer: Buffer) -> int:
        """How many elements a buffer's memory has, gaps between them included."""
        shape = [self.number(d) for d in buffer.shape]
        if buffer.is_compact or 0 in shape:
            return int(np.prod(shape, dtype=np.int64))
        strides = [self.number(s) for s in buffer.stride_exprs()]
        steps = sum((d - 1) * s for d, s in zip(shape, strides, strict=True))
        return self.number(buffer.offset) + steps + 1

    def error(self, stmt: Stmt, reason: str, lane: int | None = None) -> SimtError:
        """An error that shows the statement, and the thread of a lane."""
        place = None if lane is None else self.lanes.place(lane)
        shown = listing(self.function, {stmt: reason})
        return SimtError(self.function.name, place, reason, shown)

    def told(self, stmt: Stmt, run: Run) -> Run:
        """Faults of lanes show the statement."""

        def guarded(active: Mask) -> None:
            try:
                run(active)
            except LaneError as fault:
                raise self.error(stmt, fault.reason, fault.lane) from None

        return guarded

    def value_of(self, stmt: Stmt, expr: Expr) -> Callable[[Mask], Array]:
        """The value of one expression."""
        tape = self.tape(stmt, expr)

        def value(active: Mask) -> Array:
            try:
                return np.asarray(tape(active)[0])
            except LaneError as fault:
                raise self.error(stmt, fault.reason, fault.lane) from None

        return value

    def fresh(self, buffer: Buffer) -> Memory:
        """Memory for a buffer that is allocated, as often as its scope asks for."""
        lanes, size = self.lanes, self.size(buffer)
        if buffer.scope == "shared":
            return Memory(buffer, size, row=lanes.rows_of_blocks(), copies=lanes.blocks)
        if buffer.scope == "local":
            copies = lanes.blocks * lanes.threads
            return Memory(buffer, size, row=lanes.rows_of_threads(), copies=copies)
        return Memory(buffer, size)
