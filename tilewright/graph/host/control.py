"""Branches and loops in a host program.

Both sides of a branch write their results to the same places. A loop keeps state of fixed size in
pairs of buffers, of which each iteration reads one half and writes the other; state whose size
changes is kept in heap blocks that are swapped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tilewright.arith import simplify
from tilewright.graph.host.lifetimes import unchanged_state
from tilewright.graph.host.memory import Memory, is_read, is_tensor
from tilewright.graph.host.places import BlockPlace, BufferPlace, Place
from tilewright.graph.ir import Binding, Graph, If, Loop, Value
from tilewright.ir import Const, Expr, Load, Var, While, const, free_vars
from tilewright.ir import If as IfStmt

#: Lowers a graph into the current scope, with a place for each result.
LowerGraph = Callable[[Graph, Sequence[Place | None]], None]


def lower_branch(m: Memory, binding: Binding, lower: LowerGraph) -> None:
    node = binding.expr
    assert isinstance(node, If)
    condition = m.number(node.condition)
    fresh = [_fresh_dims(m, v) for v in binding.outputs]
    cells = {dim: m.cell(0) for dims in fresh for dim in dims.values()}
    places = [_room(m, v, dims) for v, dims in zip(binding.outputs, fresh, strict=True)]
    sides: list[Any] = []
    for graph in (node.then, node.otherwise):
        with m.nested() as scope:
            lower(graph, places)
            for result, dims in zip(graph.results, fresh, strict=True):
                for axis, dim in dims.items():
                    m.assign(cells[dim], m.expr(result.shape[axis]))
            m.release(list(scope.slots))
        sides.append(m.finished(scope))
    m.emit(IfStmt(condition, *sides))
    m.dims.update(cells)
    for value, place in zip(binding.outputs, places, strict=True):
        m.put(value, place)


def _room(m: Memory, value: Value, fresh: dict[int, Var]) -> Place:
    """The place where both sides write a result."""
    if value in m.sinks:
        return m.sinks[value]
    return m.temporary_slot(value) if fresh or m.is_late(value) else BufferPlace(m.buffer(value))


def _fresh_dims(m: Memory, value: Value) -> dict[int, Var]:
    """The dimensions that first appear in this value, by axis."""
    if not is_tensor(value):
        return {}
    return {axis: d for axis, d in enumerate(value.shape) if isinstance(d, Var) and not m.knows(d)}


# ---- loops --------------------------------------------------------------------------------------


class _State(NamedTuple):
    """A carried value: where an iteration reads it, and where it writes the next one."""

    now: Place
    next: Place
    #: Cells of dimensions that change from iteration to iteration, by axis.
    dims: dict[int, Load]


def lower_loop(m: Memory, binding: Binding, lower: LowerGraph) -> None:
    _LoopLowering(m, binding, lower).run()


class _LoopLowering:
    def __init__(self, m: Memory, binding: Binding, lower: LowerGraph) -> None:
        assert isinstance(binding.expr, Loop)
        self.m, self.binding, self.node, self.lower = m, binding, binding.expr, lower
        self.body = self.node.body
        self.trip = m.cell(0)
        self.count = len(self.node.initial)
        self.unchanged = unchanged_state(self.node)
        limit = self.node.trip_count
        self.limit = None if limit is None else m.cell(m.number(limit))
        self.going = m.cell(1 if self.node.condition is None else m.number(self.node.condition))

    def run(self) -> None:
        m, body = self.m, self.body
        m.put(body.params[0], BufferPlace(self.trip.buffer, self.trip.indices))
        states = [self._state(k) for k in range(self.count)]
        rows = [self._rows(k) for k in range(self.count + 1, len(body.results))]
        with m.nested() as scope:
            # An iteration may make the next list out of the current one.
            scope.owned.update(body.params[1 + k] for k, s in enumerate(states) if s is not None)
            nexts = [None if s is None else s.next for s in states]
            self.lower(body, [None, *nexts, *(r.sink(self.trip) for r in rows)])
            self._step(states, rows)
            m.release(list(scope.slots))
        m.emit(While(self._condition(), m.finished(scope)))
        self._outputs(states, rows)

    def _condition(self) -> Expr:
        goes_on: Expr = self.going != 0
        return goes_on if self.limit is None else goes_on & (self.trip < self.limit)

    # ---- state ----------------------------------------------------------------------------------

    def _state(self, k: int) -> _State | None:
        m, first, param = self.m, self.node.initial[k], self.body.params[1 + k]
        fresh = _fresh_dims(m, param)
        if k in self.unchanged:
            m.alias(param, first)
            m.dims.update({d: m.expr(first.shape[axis]) for axis, d in fresh.items()})
            return None
        dims = {axis: m.cell(m.expr(first.shape[axis])) for axis in fresh}
        m.dims.update({d: dims[axis] for axis, d in fresh.items()})
        state = self._pair(param, dims) if not m.is_late(param) else self._slots(k, dims)
        m.put(param, state.now)
        m.copy(first, state.now)
        return state

    def _pair(self, param: Value, dims: dict[int, Load]) -> _State:
        pair = self.m.buffer(param, 2)
        half = self.trip % 2
        return _State(BufferPlace(pair, (half,)), BufferPlace(pair, (1 - half,)), dims)

    def _slots(self, k: int, dims: dict[int, Load]) -> _State:
        output = self.binding.outputs[k]
        return _State(self.m.temporary_slot(output), self.m.slot_for(output), dims)

    def _step(self, states: Sequence[_State | None], rows: Sequence[_Rows]) -> None:
        """The end of an iteration: the next state becomes the current one."""
        m, results = self.m, self.body.results
        goes_on = m.number(results[0])
        news: list[tuple[Load, Expr]] = []
        for state, result in zip(states, results[1:], strict=False):
            if state is not None:
                news += [(c, m.expr(result.shape[axis])) for axis, c in state.dims.items()]
        for row in rows:
            row.add(self.trip)
        # All new sizes are computed from the old ones before any of these changes.
        staged = [(cell, m.cell(value)) for cell, value in news]
        for cell, value in staged:
            m.assign(cell, value)
        for state in states:
            if state is not None and state.now.slot is not None and state.next.slot is not None:
                m.swap(state.now.slot, state.next.slot)
                if state.next.slot.kind == "list":
                    # The last iteration's list would count as another reference.
                    m.free(state.next.slot)
        m.assign(self.going, goes_on)
        m.assign(self.trip, self.trip + 1)

    def _outputs(self, states: Sequence[_State | None], rows: Sequence[_Rows]) -> None:
        m = self.m
        for k, state in enumerate(states):
            value, param = self.binding.outputs[k], self.body.params[1 + k]
            fresh = _fresh_dims(m, value)
            m.dims.update({d: m.expr(param.shape[axis]) for axis, d in fresh.items()})
            if state is None:
                m.alias(value, self.node.initial[k])
                continue
            m.put(value, state.now)
            if state.next.slot is not None:
                m.free(state.next.slot)
        for row in rows:
            row.finish(self.trip)

    # ---- scanned outputs ------------------------------------------------------------------------

    def _rows(self, k: int) -> _Rows:
        return _Rows(self.m, self.binding.outputs[k - 1], self.body.results[k], self._known_limit())

    def _known_limit(self) -> Expr | None:
        """The greatest number of iterations, if it is known when the program starts."""
        count = self.node.trip_count
        if count is None or count.known is None:
            return None
        number = count.known.ravel()[0]
        # Passes may have renamed dimensions that are read.
        if not all(self.m.knows(d) for d in free_vars(number)):
            return None
        limit = self.m.expr(number)
        return None if is_read(limit) or _is_no_limit(limit) else limit


class _Rows:
    """A table to which every iteration adds a row."""

    def __init__(self, m: Memory, output: Value, row: Value, limit: Expr | None) -> None:
        self.m, self.output, self.row = m, output, row
        self.fresh = _fresh_dims(m, output)
        self.cells = {axis: m.cell(0) for axis in self.fresh if axis > 0}
        late = bool(self.cells) or any(is_read(m.expr(d)) for d in output.shape[1:])
        self.table: Place
        if late or limit is None:
            self.table = m.temporary_slot(output)
        else:
            shape = [_at_least_0(limit), *output.shape[1:]]
            self.table = BufferPlace(m.buffer(Value(output.name, output.tensor.with_shape(shape))))

    def sink(self, trip: Load) -> Place | None:
        """Where an iteration writes its row; None, where room for it has to be made first."""
        return (
            BufferPlace(self.table.buffer, (trip,)) if isinstance(self.table, BufferPlace) else None
        )

    def add(self, trip: Load) -> None:
        """The end of an iteration: add its row, and keep sizes that only the body knows."""
        m = self.m
        if isinstance(self.table, BlockPlace):
            size = m.bytes_of(self.row)
            m.run("heap_grow", const(self.table.number), simplify((trip + 1) * size))
            here = BlockPlace(self.table.number, trip * size).address
            m.run("copy_memory", here, m.place(self.row).address, size)
        for axis, cell in self.cells.items():
            m.assign(cell, m.expr(self.row.shape[axis - 1]))

    def finish(self, trip: Load) -> None:
        m = self.m
        m.dims.update({d: self.cells[axis] if axis else trip for axis, d in self.fresh.items()})
        m.put(self.output, self.table)


def _is_no_limit(limit: Expr) -> bool:
    """Whether it is the greatest integer of a type: such a loop ends by its condition."""
    return isinstance(limit, Const) and int(limit.value) >= 2**31 - 1


def _at_least_0(limit: Expr) -> Expr:
    return const(max(0, int(limit.value))) if isinstance(limit, Const) else limit
