"""Lists of tensors in a host program: sequences and optionals.

An optional tensor is a list of one item, an optional sequence is that sequence, and an optional
that holds nothing is no list at all (`codegen.llvm.lists`). Values are copied into lists; items
taken out are used in place, for as long as the list lives (`lifetimes`). A list whose last use is
the operator that changes it is changed in place.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import contextmanager

from tilewright.arith import simplify
from tilewright.graph.host.memory import Memory
from tilewright.graph.host.places import AddressPlace, ListPlace
from tilewright.graph.ir import Value
from tilewright.ir import Assert, Expr, For, Load, Var, call, cast, const, select


def adopt(m: Memory, value: Value, address: Expr) -> None:
    """Let a value be the list that the caller of the program passes."""
    place = m.temporary_slot(value)
    m.run("list_adopt", const(place.number), address)
    m.put(value, place)


def empty_list(m: Memory, value: Value) -> ListPlace:
    place = m.allocate(value)
    assert isinstance(place, ListPlace)
    m.run("list_empty", const(place.number))
    return place


def insert(m: Memory, place: ListPlace, at: Expr, value: Value) -> None:
    make_room(m, place, at, value, [m.expr(d) for d in value.shape])
    m.run("copy_memory", place.item(at), m.place(value).address, m.bytes_of(value))


def make_room(m: Memory, place: ListPlace, at: Expr, like: Value, dims: Sequence[Expr]) -> None:
    """Insert an item with room for a tensor of these dimensions."""
    size: Expr = const(like.dtype.itemsize)
    for dim in dims:
        size = size * dim
    m.run("list_insert", const(place.number), at, simplify(size), *dims)


def list_from(m: Memory, value: Value, items: Value, ending: Collection[Value]) -> ListPlace:
    """A list for `value` that begins as `items`, which is reused if this is its last use."""
    source, root = m.list_of(items), m.roots.get(items, items)
    place = m.allocate(value)
    assert isinstance(place, ListPlace)
    own = root in m.scope.slots or root in m.scope.owned
    if root in ending and own:
        m.run("list_swap", const(place.number), const(source.number))
    else:
        m.run("list_share", const(place.number), const(source.number))
    return place


def position_in(m: Memory, name: str, place: ListPlace, position: Value | None, past: int) -> Load:
    """A position counted from the front, less than the length plus `past`; -1 unless given."""
    given = const(-1) if position is None else cast(m.number(position), "int64")
    number, length = m.cell(given), m.cell(place.length)
    at = m.cell(select(number < 0, number + length, number))
    message = f"{name}: a sequence of {{}} has no position {{}}"
    m.emit(Assert((at >= 0) & (at < length + past), message, (length, number)))
    return at


# ---- reading ------------------------------------------------------------------------------------


def look_at(m: Memory, name: str, value: Value, items: Value, at: Expr) -> None:
    """Let a value be an item of a list; dimensions that only the item has become known."""
    place = m.list_of(items)
    agree(m, name, place, at, dict(enumerate(value.shape)), value.ndim)
    m.put(value, AddressPlace(cast(m.cell(place.item(at)), "uint64")))


def agree(
    m: Memory, name: str, place: ListPlace, at: Expr, dims: Mapping[int, Expr], rank: int
) -> None:
    """Take dimensions that are new from an item, and check the others against it."""
    found = place.rank(at)
    m.emit(Assert(found == rank, f"{name}: an item has {{}} dimensions, not {rank}", (found,)))
    for axis, dim in dims.items():
        if know(m, dim, place.extent(at, axis)):
            continue
        found, size = place.extent(at, axis), m.expr(dim)
        message = f"{name}: dimension {axis} of item {{}} is {{}}, not {{}}"
        m.emit(Assert(found == size, message, (at, found, size)))


def know(m: Memory, dim: Expr, size: Expr) -> bool:
    """Bind a dimension to this size if it is new; returns whether it is."""
    if not isinstance(dim, Var) or m.knows(dim):
        return False
    m.dims[dim] = size if isinstance(size, Load) else m.cell(size)
    return True


def exists(m: Memory, value: Value) -> Expr:
    return call("list_exists", const(m.list_of(value).number))


@contextmanager
def each(m: Memory, count: Expr) -> Generator[Expr]:
    """The statements emitted within run for 0 … count - 1."""
    if count is const(1):
        yield const(0)
        return
    var = Var("k")
    with m.nested() as scope:
        yield var
    m.emit(For(var, count, "serial", m.finished(scope)))
