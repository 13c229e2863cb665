"""The state of lowering a host program: statements, buffers, blocks and lists, numbers.

Symbolic dimensions of the inputs are dimensions of the program. Others (read from tensors, or
results of branches and loops) are kept in cells: the elements of one buffer of integers.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from tilewright.arith import simplify
from tilewright.graph.host.places import (
    AddressPlace,
    BlockPlace,
    BufferPlace,
    ListPlace,
    Place,
    Slot,
)
from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.types import TensorType, product
from tilewright.ir import (
    Alloc,
    Buffer,
    Evaluate,
    Expr,
    Load,
    Stmt,
    Store,
    Var,
    call,
    cast,
    const,
    free_vars,
    loads_in,
    replace_buffers,
    seq,
    substitute,
)

#: More elements than any program needs; the buffers get their true sizes at the end.
_MANY: Final = 1 << 40


@dataclass
class HostScope:
    """One graph while it is lowered."""

    statements: list[Stmt] = field(default_factory=list[Stmt])
    buffers: list[Buffer] = field(default_factory=list[Buffer])
    #: Heap blocks and lists that were taken here, by the value that each holds.
    slots: dict[Value, Slot] = field(default_factory=dict[Value, Slot])
    #: Values that have a buffer or list to themselves.
    owned: set[Value] = field(default_factory=set[Value])
    #: Conditions on dimensions that hold from here on, because they were checked.
    checked: set[Expr] = field(default_factory=set[Expr])


class Memory:
    """The places of all values, while statements are added to the innermost scope."""

    def __init__(self, dims: Iterable[Var]) -> None:
        self._start = frozenset(dims)
        self._scopes: list[HostScope] = []
        self._places: dict[Value, Place] = {}
        #: The value whose memory a view refers to.
        self.roots: dict[Value, Value] = {}
        #: Where values that are yet to be computed have to be.
        self.sinks: dict[Value, Place] = {}
        #: Expressions for dimensions that are not known when the program starts.
        self.dims: dict[Var, Expr] = {}
        self._arrays: dict[int, tuple[int, Array]] = {}
        self._table = Buffer("constants", "uint64", (_MANY,))
        self._cells = Buffer("cells", "int64", (_MANY,), scope="local")
        self._cell_count = self._block_count = self._list_count = 0

    # ---- statements -----------------------------------------------------------------------------

    @property
    def scope(self) -> HostScope:
        return self._scopes[-1]

    def emit(self, *statements: Stmt) -> None:
        self.scope.statements.extend(statements)

    def run(self, name: str, *args: Any) -> None:
        """Emit a call for its effect."""
        self.emit(Evaluate(call(name, *args)))

    @contextmanager
    def nested(self) -> Generator[HostScope]:
        """A scope inside the current one."""
        self._scopes.append(HostScope())
        yield self.scope
        self._scopes.pop()

    def finished(self, scope: HostScope) -> Stmt:
        """All of a scope as one statement."""
        body = seq(*scope.statements)
        return Alloc(tuple(scope.buffers), body) if scope.buffers else body

    def program(self, scope: HostScope) -> tuple[Stmt, Buffer, list[Array]]:
        """All of the outermost scope; the table of constants, and these in order."""
        arrays = [array for _, array in self._arrays.values()]
        table = Buffer("constants", "uint64", (len(arrays),))
        cells = Buffer("cells", "int64", (self._cell_count,), scope="local")
        body = replace_buffers(self.finished(scope), {self._table: table, self._cells: cells})
        return (Alloc((cells,), body) if self._cell_count else body), table, arrays

    # ---- numbers --------------------------------------------------------------------------------

    def expr(self, e: Expr) -> Expr:
        """An expression over dimensions as the program computes it."""
        return substitute(e, self.dims)

    def knows(self, dim: Var) -> bool:
        return dim in self._start or dim in self.dims

    def asks(self, condition: Expr) -> bool:
        """Whether a condition on dimensions is new to this scope and to those around it."""
        if any(condition in s.checked for s in self._scopes):
            return False
        self.scope.checked.add(condition)
        return True

    def bytes_of(self, value: Value) -> Expr:
        return simplify(self.expr(product(value.shape)) * value.dtype.itemsize)

    def cell(self, start: Any = None) -> Load:
        """An integer variable of the program."""
        self._cell_count += 1
        made = Load(self._cells, (const(self._cell_count - 1),))
        if start is not None:
            self.assign(made, start)
        return made

    def assign(self, cell: Load, value: Any) -> None:
        self.emit(Store(cell.buffer, cell.indices, cast(value, "int64")))

    def number(self, value: Value) -> Expr:
        """The only element of a tensor, read at this point of the program."""
        return self.numbers(value)[0]

    def numbers(self, value: Value) -> list[Expr]:
        """The elements of a small tensor, read at this point of the program."""
        count = value.tensor.size or 0
        if value.constant is not None:
            return [const(e.item(), value.dtype) for e in value.constant.ravel()]
        known = [] if value.known is None else list(value.known.ravel())
        if known and all(self.knows(d) for e in known for d in free_vars(e)):
            return [self.expr(e) for e in known]
        place = self.place(value)
        if not isinstance(place, BufferPlace) or not place.is_plain(value.dtype, count):
            copy = self.buffer(value)
            self.run("copy_memory", BufferPlace(copy).address, place.address, self.bytes_of(value))
            place = BufferPlace(copy)
        return [place.element(k) for k in range(count)]

    # ---- places ---------------------------------------------------------------------------------

    def place(self, value: Value) -> Place:
        """Where a value is."""
        if value.constant is None:
            return self._places[value]
        # By identity: several values may be the same array.
        number, _ = self._arrays.setdefault(id(value.constant), (len(self._arrays), value.constant))
        return AddressPlace(Load(self._table, (const(number),)))

    def has_place(self, value: Value) -> bool:
        return value in self._places

    def put(self, value: Value, place: Place) -> None:
        self._places[value] = place

    def alias(self, value: Value, source: Value) -> None:
        """Let `value` share the memory of `source`."""
        self._places[value] = self.place(source)
        self.roots[value] = self.roots.get(source, source)

    def alias_part(self, value: Value, source: Value, offset: Expr) -> None:
        """Let `value` share the memory of `source` from an element on."""
        start = simplify(self.expr(offset) * value.dtype.itemsize)
        self._places[value] = part_of(self.place(source), start)
        self.roots[value] = self.roots.get(source, source)

    def list_of(self, value: Value) -> ListPlace:
        """Where a sequence or an optional is."""
        place = self.place(value)
        assert isinstance(place, ListPlace)
        return place

    def is_late(self, value: Value) -> bool:
        """Whether the size is not known when the program starts."""
        return not is_tensor(value) or any(is_read(self.expr(d)) for d in value.shape)

    def allocate(self, value: Value) -> Place:
        """Room for a value that is about to be computed."""
        place = self.sinks.get(value)
        if place is None:
            late = self.is_late(value)
            place = self.temporary_slot(value) if late else BufferPlace(self.buffer(value))
            self.scope.owned.add(value)
        if isinstance(place, BlockPlace) and place.slot is not None:
            self.run("heap_take", const(place.number), self.bytes_of(value))
        self._places[value] = place
        return place

    def reuse_memory(self, value: Value, old: Value) -> None:
        """Compute a value in the memory of another that is not needed any more."""
        self._places[value] = self.place(old)
        self.scope.owned.discard(old)
        self.scope.owned.add(value)

    def may_reuse_memory(self, value: Value, old: Value) -> bool:
        """Whether `old` has memory of its own in this graph, and `value` may be anywhere."""
        owned = old in self.scope.owned and isinstance(self.place(old), BufferPlace)
        return owned and value not in self.sinks

    def buffer(self, value: Value, *leading: int) -> Buffer:
        """A buffer in the current scope for a value, or for an array of such values."""
        shape = (*leading, *(self.expr(d) for d in value.shape))
        return self.own_buffer(Buffer(value.name, value.dtype, shape))

    def own_buffer(self, buffer: Buffer) -> Buffer:
        self.scope.buffers.append(buffer)
        return buffer

    def block(self) -> BlockPlace:
        """A block of the heap."""
        self._block_count += 1
        return BlockPlace(self._block_count - 1)

    def slot_for(self, value: Value) -> BlockPlace | ListPlace:
        """A block that can hold a value of any size, or a list."""
        if is_tensor(value):
            return self.block()
        self._list_count += 1
        return ListPlace(self._list_count - 1)

    def temporary_slot(self, value: Value) -> BlockPlace | ListPlace:
        """The same; it is released after the last use of the value in this graph."""
        place = self.slot_for(value)
        assert place.slot is not None
        self.scope.slots[value] = place.slot
        return place

    def free(self, slot: Slot) -> None:
        self.run(f"{slot.kind}_release", const(slot.number))

    def swap(self, a: Slot, b: Slot) -> None:
        self.run(f"{a.kind}_swap", const(a.number), const(b.number))

    def release(self, values: Sequence[Value]) -> None:
        """Give back the blocks and lists of values that are not used any more."""
        for value in values:
            slot = self.scope.slots.pop(value, None)
            if slot is not None:
                self.free(slot)

    # ---- results --------------------------------------------------------------------------------

    def deliver(self, value: Value, sink: Place) -> None:
        """Let a result be in `sink`, which may be a block of any size."""
        place, root = self.place(value), self.roots.get(value, value)
        if place is sink:
            return
        own = self.scope.slots.get(root)
        if sink.slot is not None and own is not None and place.slot == own:
            # The blocks are swapped; later uses find the value in the sink.
            self.swap(sink.slot, own)
            self._moved(own, sink)
            return
        self.copy(value, sink)

    def _moved(self, slot: Slot, to: Place) -> None:
        """Update the places of all values in a block or list that was moved."""
        for value, place in self._places.items():
            if place.slot == slot:
                self._places[value] = to
            elif isinstance(place, BlockPlace) and slot == ("heap", place.number):
                assert place.offset is not None
                self._places[value] = to.part(place.offset)

    def copy(self, value: Value, sink: Place) -> None:
        """Copy a value to `sink`, which may be a block of any size; lists are shared."""
        source = self.place(value)
        if isinstance(sink, ListPlace):
            assert isinstance(source, ListPlace)
            self.run("list_share", const(sink.number), const(source.number))
            return
        if isinstance(sink, BlockPlace) and sink.slot is not None:
            self.run("heap_take", const(sink.number), self.bytes_of(value))
        self.run("copy_memory", sink.address, source.address, self.bytes_of(value))


def is_tensor(value: Value) -> bool:
    """Whether a value is one tensor; others are lists."""
    return isinstance(value.type, TensorType)


def part_of(place: Place, start: Expr) -> Place:
    """The place from a byte offset on."""
    return place if start is const(0) else place.part(start)


def is_read(e: Expr) -> bool:
    """Whether a number is read from memory, and so not known from the start."""
    return bool(loads_in(e))
