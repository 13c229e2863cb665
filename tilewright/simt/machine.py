"""Compiles statements to closures over lanes; see `simt.lanes`.

A closure takes the mask of active lanes, of which there is at least one. Inside a launch, a
statement is executed by the first thread along every thread axis that no loop around or inside it
is bound to: statements outside of phases are executed by a single thread, and conditions and
extents around phases by all threads of the phases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.ir import (
    BLOCK_AXES,
    THREAD_AXES,
    WARP_PRODUCTS,
    Alloc,
    Assert,
    Block,
    Buffer,
    Call,
    Evaluate,
    For,
    Function,
    If,
    Let,
    Load,
    Seq,
    Stmt,
    Store,
    While,
    child_stmts,
    is_barrier,
    is_cooperative,
    is_for_all_threads,
    is_grid_barrier,
    is_over_blocks,
    is_over_threads,
    walk,
)
from tilewright.simt.copies import COPIES
from tilewright.simt.group_products import GROUP_EFFECTS, await_group
from tilewright.simt.lanes import NOBODY, Array, Geometry, Lanes, Mask, both, mask_for
from tilewright.simt.launch import block_extents, blocks_together
from tilewright.simt.state import Run, State
from tilewright.simt.unknown import raise_where
from tilewright.simt.warps import multiply
from tilewright.support.errors import UserError

Axes = frozenset[str]
#: A `while` with more iterations is considered endless.
_MAX_ITERATIONS: Final = 1_000_000
#: Intrinsics that only affect performance.
_HINTS: Final = ("prefetch", "keep_order")
_EFFECTS: Final = {**COPIES, **GROUP_EFFECTS}
_ALL_AXES: Final = frozenset(THREAD_AXES)


class Machine(State):
    """Makes closures for statements."""

    def __init__(self, function: Function) -> None:
        super().__init__(function)
        #: Thread axes bound by enclosing loops, and axes along which only the first threads are
        #: active already.
        self._bound: Axes = frozenset()
        self._narrowed: Axes = frozenset()
        self._inside: dict[Stmt, Axes] = {}

    def stmt(self, stmt: Stmt) -> Run:
        """A closure that executes `stmt`."""
        if not self.on_device or isinstance(stmt, Seq | Alloc):
            return _STATEMENTS[type(stmt)](self, stmt)
        first = _ALL_AXES - self._bound - self._axes_inside(stmt)
        if first <= self._narrowed:
            return _STATEMENTS[type(stmt)](self, stmt)
        before, self._narrowed = self._narrowed, first
        run = _STATEMENTS[type(stmt)](self, stmt)
        self._narrowed = before

        def run_first(active: Mask) -> None:
            own = self.lanes.first_along(first)
            active = active if own is None else both(active, own)
            if active is not NOBODY:
                run(active)

        return run_first

    def _axes_inside(self, stmt: Stmt) -> Axes:
        """The thread axes bound by loops in `stmt`; a barrier involves all threads."""
        found = self._inside.get(stmt)
        if found is None:
            found = frozenset[str]().union(*(self._axes_inside(s) for s in child_stmts(stmt)))
            if isinstance(stmt, For) and is_over_threads(stmt):
                found |= {stmt.axis}
            if is_for_all_threads(stmt):
                found = _ALL_AXES
            self._inside[stmt] = found
        return found

    # ---- statements -----------------------------------------------------------------------------

    def seq(self, s: Seq) -> Run:
        runs = [self.stmt(child) for child in s.statements]

        def run(active: Mask) -> None:
            for step in runs:
                step(active)

        return run

    def store(self, s: Store) -> Run:
        if not self.on_device:
            raise self.error(s, "the host does not write elements of buffers")
        masks = () if s.mask is None else (s.mask,)
        tape, count, lanes = self.tape(s, *s.indices, s.value, *masks), len(s.indices), _lanes(s)
        widen = [lanes > 1 and not e.dtype.is_vector for e in (*s.indices, s.value, *masks)]

        def run(active: Mask) -> None:
            found, unknown = tape(active)
            values = [
                np.asarray(v)[..., None] if w else np.asarray(v)
                for v, w in zip(found, widen, strict=True)
            ]
            wanted = mask_for(active, 1, lanes)
            for mask in values[count + 1 :]:
                wanted = mask if wanted is None else wanted & mask
            for each in (*unknown[:count], *unknown[count + 1 :]):
                if each is not None:
                    raise_where(each, mask_for(active, 1, lanes), "where an element lies")
            memory = self.memories[s.buffer]
            index = self.element(memory, values[:count], wanted)
            memory.store(self.lanes, index, values[count], unknown[count], wanted)
            self.forget_loads(s.buffer)

        return self.told(s, run)

    def let(self, s: Let) -> Run:
        tape, body, var = self.told(s, self.tape(s, s.value)), self.stmt(s.body), s.var

        def run(active: Mask) -> None:
            (value,), (unknown,) = tape(active)
            # Copied, as the value may be a view of memory that changes.
            self.bind(var, np.array(value), unknown)
            body(active)

        return run

    def if_(self, s: If) -> Run:
        tape = self.value_of(s, s.condition, "a condition")
        then = self.stmt(s.then)
        otherwise = None if s.otherwise is None else self.stmt(s.otherwise)

        def run(active: Mask) -> None:
            condition = tape(active)
            chosen = both(active, condition)
            others = NOBODY if otherwise is None else both(active, ~condition)
            if chosen is not NOBODY:
                then(chosen)
            if otherwise is not None and others is not NOBODY:
                otherwise(others)

        return run

    def while_(self, s: While) -> Run:
        condition, body = self.value_of(s, s.condition, "a condition"), self.stmt(s.body)

        def run(active: Mask) -> None:
            for _ in range(_MAX_ITERATIONS):
                active = both(active, condition(active))
                if active is NOBODY:
                    return
                body(active)
            raise self.error(s, f"the loop has not ended after {_MAX_ITERATIONS} iterations")

        return run

    def for_(self, s: For) -> Run:
        if is_over_blocks(s) and not self.on_device:
            return self._launch(s)
        if s.kind == "thread":
            return self._threads(s)
        extent, body = self.value_of(s, s.extent, "an extent"), self.stmt(s.body)
        var, dtype = s.var, s.var.dtype.numpy

        def run(active: Mask) -> None:
            extents = extent(active)
            most = int(np.max(extents if active is None else np.where(active, extents, 0)))
            is_uniform = extents.ndim == 0
            for i in range(most):
                own = active if is_uniform else both(active, i < extents)
                if own is not NOBODY:
                    self.bind(var, np.array(i, dtype))
                    body(own)

        return run

    def assert_(self, s: Assert) -> Run:
        condition = self.value_of(s, s.condition, "a condition")
        values = self.told(s, self.tape(s, *s.values))

        def run(active: Mask) -> None:
            holds = condition(active)
            if holds.all():
                return
            failed = np.broadcast_to(
                ~holds if active is None else ~holds & active, self.lanes.shape
            )
            if failed.any():
                at = np.unravel_index(int(np.argmax(failed)), failed.shape)
                only = np.zeros(failed.shape, bool)
                only[at] = True
                told = [int(np.broadcast_to(v, failed.shape)[at]) for v in values(only)[0]]
                message = s.message.format(*told) if told else s.message
                raise UserError(f"{self.function.name} stopped", reason=message)

        return run

    def _first_of(self, lanes: Mask) -> tuple[Array, tuple[Any, ...]]:
        """The first lane of a mask, as a mask and by its indices."""
        only = np.zeros(self.lanes.shape, bool)
        spread = True if lanes is None else np.broadcast_to(lanes, only.shape)
        at = np.unravel_index(int(np.argmax(spread)), only.shape)
        only[at] = True
        return only, at

    def alloc(self, s: Alloc) -> Run:
        for buffer in s.buffers:
            self._require_scope(s, buffer)
        body = self.stmt(s.body)

        def run(active: Mask) -> None:
            for buffer in s.buffers:
                self.memories[buffer] = self.fresh(buffer)
                self.forget_loads(buffer)
            body(active)

        return run

    def _require_scope(self, s: Alloc, buffer: Buffer) -> None:
        allowed, where = {"global"}, "outside of launches"
        if self._bound:
            allowed, where = {"local"}, "in a phase"
        elif self.on_device:
            allowed, where = {"shared", "local"}, "in a launch"
        if buffer.scope not in allowed:
            raise self.error(s, f"{buffer.scope} memory cannot be allocated {where}")

    def evaluate(self, s: Evaluate) -> Run:
        if is_barrier(s) and self.on_device:
            return self._awaiting(s)
        if is_grid_barrier(s) and self.on_device:
            return self._grid_barrier(s)
        if isinstance(s.call, Call) and s.call.name in _HINTS:
            return lambda _active: None
        if isinstance(s.call, Call) and self.on_device:
            if s.call.name in WARP_PRODUCTS:
                return self._warp_product(s, s.call)
            if s.call.name in _EFFECTS:
                return _EFFECTS[s.call.name](self, s, s.call)
        raise self.error(s, f"`{s.call}` cannot be executed here")

    def _warp_product(self, s: Evaluate, call: Call) -> Run:
        elements = [a.operands[0] for a in call.args]
        loads = [e for e in elements if isinstance(e, Load)]
        tape = self.tape(s, *(load.indices[0] for load in loads))

        def run(active: Mask) -> None:
            places, _ = tape(active)
            memories = [self.memories[load.buffer] for load in loads]
            multiply(WARP_PRODUCTS[call.name], self.lanes, memories, places, active)
            self.forget_loads(loads[0].buffer)

        return self.told(s, run)

    def _awaiting(self, s: Evaluate) -> Run:
        """A barrier, possibly that of two groups of warps."""
        barrier = self._barrier(s)
        if not (isinstance(s.call, Call) and s.call.name == "groups_await"):
            return barrier
        awaits = await_group(self, s, s.call)

        def run(active: Mask) -> None:
            awaits(active)
            barrier(active)

        return run

    def _barrier(self, s: Evaluate) -> Run:
        def run(active: Mask) -> None:
            self.forget_loads()
            missing = self.lanes.pass_barrier(active)
            if missing is not None:
                reason = "it does not reach the barrier that others of its block wait at"
                raise self.error(s, reason, missing)

        return run

    def _grid_barrier(self, s: Evaluate) -> Run:
        def run(active: Mask) -> None:
            self.forget_loads()
            if active is not None and not active.all():
                missing = int(np.argmin(np.broadcast_to(active, self.lanes.shape)))
                reason = "it does not reach the barrier that the other blocks wait at"
                raise self.error(s, reason, missing)
            self.lanes.pass_barrier(None)
            for memory in self.memories.values():
                memory.forget_accesses()

        return run

    def block(self, s: Block) -> Run:
        raise self.error(s, f"block {s.name} is not lowered to loops")

    # ---- threads and launches -------------------------------------------------------------------

    def _threads(self, s: For) -> Run:
        if not self.on_device or s.axis in self._bound or is_over_blocks(s):
            raise self.error(s, f"a loop over {s.axis} cannot stand here")
        before, self._bound = self._bound, self._bound | {s.axis}
        body = self.stmt(s.body)
        self._bound = before
        extent, axis, var, dtype = self.number(s.extent), s.axis, s.var, s.var.dtype.numpy

        def run(active: Mask) -> None:
            index = self.lanes.index(axis)
            own = both(active, index < extent)
            if own is not NOBODY:
                self.bind(var, index.astype(dtype))
                body(own)

        return run

    def _launch(self, s: For) -> Run:
        nest = [s]
        while isinstance(inner := nest[-1].body, For) and is_over_blocks(inner):
            nest.append(inner)
        body, block = nest[-1].body, block_extents(self, s)
        tapes = {loop.axis: self.value_of(loop, loop.extent, "an extent") for loop in nest}
        if len(tapes) < len(nest):
            raise self.error(s, "two loops of a launch are bound to the same axis")
        self.on_device = True
        run_body = self.stmt(body)
        self.on_device = False
        stores = {x.buffer for x in walk(body) if isinstance(x, Store)}
        stores = {b for b in stores if b.scope == "global"}
        wait_for_each_other = is_cooperative(body)
        allocs = [b for x in walk(body) if isinstance(x, Alloc) for b in x.buffers]

        def run(active: Mask) -> None:
            grid = tuple(int(tapes[a](active)) if a in tapes else 1 for a in BLOCK_AXES)
            geometry = Geometry(grid, block)
            written = [self.memories[b] for b in stores]
            for memory in written:
                memory.track_races(True)
            together, host = blocks_together(self, geometry, allocs), self.lanes
            if wait_for_each_other:
                together = geometry.blocks
            for first in range(0, geometry.blocks, together):
                self.lanes = Lanes(geometry, first, min(first + together, geometry.blocks))
                for loop in nest:
                    index = self.lanes.index(loop.axis)
                    self.bind(loop.var, index.astype(loop.var.dtype.numpy))
                run_body(None)
            self.lanes = host
            for memory in written:
                memory.track_races(False)

        return run


_STATEMENTS: dict[type[Stmt], Callable[[Machine, Any], Run]] = {
    For: Machine.for_,
    Block: Machine.block,
    Store: Machine.store,
    Alloc: Machine.alloc,
    If: Machine.if_,
    While: Machine.while_,
    Let: Machine.let,
    Assert: Machine.assert_,
    Evaluate: Machine.evaluate,
    Seq: Machine.seq,
}


def _lanes(store: Store) -> int:
    return max((i.dtype.lanes for i in store.indices), default=1)
