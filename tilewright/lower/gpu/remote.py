"""Host programs whose values are in the memory of a device.

    n = count[0]                    fetch(address_of(count_here[0]), address_of(count[0]), 8)
    size[0] = n * 2          -->    n = count_here[0]
                                    store_number(address_of(size[0]), n * 2, 8)

The processor cannot access that memory: numbers that the program reads are fetched right before
they are read, which waits for the device; numbers that it writes are sent. The program's own
buffers (the table of constants, the record of results, assignable numbers) stay in host memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tilewright.ir import (
    Alloc,
    Buffer,
    Call,
    Evaluate,
    Expr,
    Function,
    Load,
    Stmt,
    Store,
    While,
    address_of,
    call,
    cast,
    child_exprs,
    const,
    map_children,
    map_expr,
    reinterpret,
    seq,
    walk,
)
from tilewright.support.dtype import DType
from tilewright.support.errors import InternalError, UserError


def reach_device(function: Function) -> Function:
    """A host program whose values are in the memory of a device."""
    _require_no_lists(function)
    numbers: Sequence[int] = function.attrs["own_buffers"]
    own = {function.buffers[k] for k in numbers}
    own |= {b for b in _allocated(function) if b.scope == "local"}
    read = {b for s in walk(function.body) for b in _read(s) if b not in own}
    here = {b: _here(b) for b in read}
    body = _reached(function.body, own, here)
    body = Alloc(tuple(here.values()), body) if here else body
    return function.with_body(body).with_attrs(device=True)


def _reached(stmt: Stmt, own: set[Buffer], here: dict[Buffer, Buffer]) -> Stmt:
    """A statement that reads copies of numbers, fetched right before, and sends what it writes."""
    read = [b for b in _read(stmt) if b not in own]
    rebuilt = map_children(stmt, lambda s: _reached(s, own, here), _redirected(here))
    if isinstance(rebuilt, While):
        # The condition is evaluated again after each iteration.
        rebuilt = replace(rebuilt, body=seq(rebuilt.body, *(_fetch(b, here[b]) for b in read)))
    if isinstance(rebuilt, Store) and rebuilt.buffer not in own:
        rebuilt = _sent(rebuilt)
    elif isinstance(rebuilt, Evaluate):
        rebuilt = _passing_numbers(rebuilt, own)
    return seq(*(_fetch(b, here[b]) for b in read), rebuilt)


def _passing_numbers(stmt: Evaluate, own: set[Buffer]) -> Stmt:
    """A call that gets addresses of the program's own numbers: these are sent before it."""
    assert isinstance(stmt.call, Call)
    there: list[Buffer] = []
    before: list[Stmt] = []
    args: list[Expr] = []
    for arg in stmt.call.args:
        element = arg.args[0] if isinstance(arg, Call) and arg.name == "address_of" else None
        if isinstance(element, Load) and element.buffer in own:
            there.append(Buffer("number", element.dtype, (1,)))
            before.append(_sent(Store(there[-1], (const(0),), element)))
            arg = _first(there[-1])
        args.append(arg)
    if not there:
        return stmt
    call_ = Call(stmt.call.name, tuple(args), stmt.call.dtype)
    return Alloc(tuple(there), seq(*before, replace(stmt, call=call_)))


def _redirected(here: dict[Buffer, Buffer]) -> Callable[[Expr], Expr]:
    """Loads from copies; addresses stay those of device memory."""
    there = {copy: buffer for buffer, copy in here.items()}
    memo: dict[Expr, Expr] = {}

    def on_node(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer in here:
            return Load(here[e.buffer], e.indices, e.mask)
        if isinstance(e, Call) and e.name == "address_of":
            (element,) = e.args
            if isinstance(element, Load) and element.buffer in there:
                return address_of(Load(there[element.buffer], element.indices))
        return None

    return lambda e: map_expr(e, on_node, memo)


def _read(stmt: Stmt) -> list[Buffer]:
    """The buffers whose elements a statement itself loads; addresses of elements load nothing."""
    found: dict[Buffer, None] = {}
    pending = list(child_exprs(stmt))
    while pending:
        node = pending.pop()
        if isinstance(node, Call) and node.name == "address_of":
            (element,) = node.args
            assert isinstance(element, Load)
            pending += element.indices
            continue
        if isinstance(node, Load):
            found.setdefault(node.buffer)
        pending += node.operands
    return list(found)


def _allocated(function: Function) -> Iterable[Buffer]:
    for stmt in walk(function.body):
        if isinstance(stmt, Alloc):
            yield from stmt.buffers


def _here(buffer: Buffer) -> Buffer:
    """Host memory for a copy of a small buffer."""
    if buffer.static_size() is None:
        raise InternalError(f"the host program reads {buffer.name}, whose size is not known")
    return Buffer(f"{buffer.name}_here", buffer.dtype, buffer.shape, scope="local")


def _first(buffer: Buffer) -> Expr:
    return address_of(Load(buffer, tuple(const(0) for _ in buffer.shape)))


def _fetch(buffer: Buffer, here: Buffer) -> Stmt:
    size = (buffer.static_size() or 0) * buffer.dtype.itemsize
    return Evaluate(call("fetch", _first(here), _first(buffer), const(size)))


def _sent(store: Store) -> Stmt:
    """A store to device memory: the bits of a number, and its size in bytes."""
    dtype = store.buffer.dtype
    place = address_of(Load(store.buffer, store.indices))
    bits = store.value
    if dtype.is_float:
        bits = reinterpret(bits, DType.of(f"uint{dtype.bits}"))
    return Evaluate(call("store_number", place, cast(bits, "uint64"), const(dtype.itemsize)))


def _require_no_lists(function: Function) -> None:
    for stmt in walk(function.body):
        made = stmt.call if isinstance(stmt, Evaluate) else None
        if isinstance(made, Call) and made.name.startswith("list_"):
            raise UserError(
                f"{function.name} cannot be compiled for a GPU",
                reason="it holds sequences or optionals, which are lists of the processor's",
                remedy="compile it for target 'llvm'",
            )
