"""Split a function for a GPU into the host's part and the kernels that it launches.

    def f(X: f32[n], Y: f32[n]):                       def f(X: f32[n], Y: f32[n]):
        for b in thread(n // 256, "blockIdx.x"):  -->      launch.f_0(n // 256, 1, 1, X, Y, n)
            for t in thread(256, "threadIdx.x"):
                Y[b * 256 + t] = …                     def f_0(X: f32[n], Y: f32[n], n: i64): …

A launch is an outermost nest of loops over blocks. Around launches, the host runs plain loops and
conditions on scalars; it never accesses elements of buffers, which are in device memory. Inside a
launch, nests of loops over threads are phases that all threads of a block execute one after
another; statements between them are executed by one thread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from tilewright.ir import (
    Alloc,
    Assert,
    Buffer,
    Call,
    Const,
    Evaluate,
    Expr,
    For,
    Function,
    Let,
    Load,
    Stmt,
    Store,
    Var,
    address_of,
    all_exprs,
    child_exprs,
    child_stmts,
    const,
    is_over_blocks,
    is_over_threads,
    loads_in,
    map_children,
    symbolic_dims,
    walk,
)
from tilewright.support.dtype import DType
from tilewright.support.errors import UserError

_INT32 = DType.of("int32")


class Launches(NamedTuple):
    """The two parts of a function."""

    host: Function
    #: The kernels by name; `threads_of` gives the size of their blocks.
    kernels: tuple[Function, ...]


#: The attribute of functions whose launches may run concurrently with independent ones, and start
#: while those that they depend on still run.
OVERLAPS: Final = "overlaps"


def overlap_launches(function: Function) -> Function:
    """Let launches wait only for the data they need, rather than run one by one."""
    return function.with_attrs(**{OVERLAPS: True})


def count_launches(stmt: Stmt) -> int:
    """The number of launches by the host; loops of unknown length count once."""
    if is_over_blocks(stmt):
        return 1
    trips = stmt.extent.value if isinstance(stmt, For) and isinstance(stmt.extent, Const) else 1
    return int(trips) * sum(map(count_launches, child_stmts(stmt)))


def split_launches(function: Function) -> Launches:
    """The host's part of a lowered function, and the kernels that it launches, in order."""
    kernels: list[Function] = []

    def cut(stmt: Stmt) -> Stmt | None:
        if not is_over_blocks(stmt):
            return None
        _require_one_launch(function, stmt)
        name = f"{re.sub(r'[^A-Za-z0-9_]', '_', function.name)}_{len(kernels)}"
        kernel = _kernel(name, stmt)
        kernels.append(kernel)
        return Evaluate(_launch(kernel, _grid(stmt)))

    body = _replaced(function.body, cut)
    _require_no_elements(function, body)
    return Launches(function.with_body(body), tuple(kernels))


def single_threaded(function: Function) -> Function:
    """Turn statements between the phases of launches into phases of one thread."""

    def in_launch(stmt: Stmt) -> Stmt | None:
        if is_over_threads(stmt):
            return stmt
        if isinstance(stmt, Store | Assert):
            return For(Var("one", "int64"), const(1), "thread", stmt, axis="threadIdx.x")
        return None

    def at_launch(stmt: Stmt) -> Stmt | None:
        return _replaced(stmt, in_launch) if is_over_blocks(stmt) else None

    return function.with_body(_replaced(function.body, at_launch))


def _replaced(stmt: Stmt, rule: Callable[[Stmt], Stmt | None]) -> Stmt:
    """Replace the outermost statements for which the rule has a replacement."""
    found = rule(stmt)
    return map_children(stmt, lambda s: _replaced(s, rule)) if found is None else found


def _grid(stmt: Stmt) -> tuple[Expr, Expr, Expr]:
    """The extents of the perfectly nested loops over blocks."""
    extents: dict[str, Expr] = {}
    while isinstance(stmt, For) and is_over_blocks(stmt):
        extents[stmt.axis[-1]], stmt = stmt.extent, stmt.body
    one = const(1)
    return extents.get("x", one), extents.get("y", one), extents.get("z", one)


def _kernel(name: str, body: Stmt) -> Function:
    """The kernel of a launch, as a function of everything that it captures."""
    buffers, numbers = _taken(body)
    return Function(name, (*buffers, *numbers), body)


def _taken(body: Stmt) -> tuple[Sequence[Buffer], Sequence[Var]]:
    """The buffers and scalars that a part of a function uses but does not define."""
    buffers, numbers = dict[Buffer, None](), dict[Var, None]()
    own_buffers, own_numbers = set[Buffer](), set[Var]()
    for stmt in walk(body):
        if isinstance(stmt, Alloc):
            own_buffers.update(stmt.buffers)
            numbers.update(dict.fromkeys(symbolic_dims(stmt.buffers)))
        elif isinstance(stmt, For | Let):
            own_numbers.add(stmt.var)
        elif isinstance(stmt, Store):
            buffers.setdefault(stmt.buffer)
    for expr in all_exprs(body):
        if isinstance(expr, Load):
            buffers.setdefault(expr.buffer)
        elif isinstance(expr, Var):
            numbers.setdefault(expr)
    taken = [b for b in buffers if b not in own_buffers]
    numbers.update(dict.fromkeys(symbolic_dims(taken)))
    return taken, [n for n in numbers if n not in own_numbers]


def _launch(kernel: Function, grid: Sequence[Expr]) -> Expr:
    places = [address_of(Load(b, (const(0),))) for b in kernel.buffers]
    numbers = [p for p in kernel.params if isinstance(p, Var)]
    return Call(f"launch.{kernel.name}", (*grid, *places, *numbers), _INT32)


def _require_one_launch(function: Function, launch: Stmt) -> None:
    """Refuse loops over blocks that are not perfectly nested."""
    inner = launch
    while isinstance(inner, For) and is_over_blocks(inner):
        inner = inner.body
    if any(map(is_over_blocks, walk(inner))):
        raise UserError(
            f"cannot build {function.name} for a GPU",
            reason="a loop over blocks stands inside of a launch",
            remedy="let loops over blocks stand directly in each other",
        )


def _require_no_elements(function: Function, body: Stmt) -> None:
    """Refuse a host's part that would access elements of buffers."""
    for stmt in walk(body):
        is_call = isinstance(stmt, Evaluate)
        touches = isinstance(stmt, Store) or (
            not is_call and any(loads_in(e) for e in child_exprs(stmt))
        )
        if touches:
            raise UserError(
                f"cannot build {function.name} for a GPU",
                reason="a statement outside of all loops over blocks touches elements of buffers",
                remedy="bind a loop around it to blockIdx.x",
                listing=f"    {stmt}",
            )
