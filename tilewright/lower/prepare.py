"""Moves work that depends on constants alone out of a scheduled function, to be done once.

    def f(x, w, y):                        def f_prepare(w, p):      def f(x, y, p):
        p = alloc(…)                           p[…] = w[…]               y[…] = x[…] * p[…]
        p[…] = w[…]                -->
        y[…] = x[…] * p[…]

The attribute `constants` of the function lists the parameters that are the same in all calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tilewright.ir import (
    Alloc,
    Buffer,
    Evaluate,
    Function,
    Load,
    Seq,
    Stmt,
    Store,
    Var,
    all_exprs,
    seq,
    walk,
)


@dataclass(frozen=True)
class Prepared:
    """A function split in two: what runs in every call, and what runs once."""

    function: Function
    prepare: Function
    #: The indices of the parameters that `prepare` takes, before the buffers that it fills.
    taken: tuple[int, ...]
    #: The indices of the parameters that the function no longer needs.
    dropped: tuple[int, ...]
    #: The buffers that are filled once; they follow the function's other parameters.
    made: tuple[Buffer, ...]


def split_constant_work(function: Function) -> Prepared | None:
    """The function without its work on constants alone; None if there is no such work."""
    numbers = [int(k) for k in function.attrs.get("constants", ())]
    constants = {p for k in numbers if isinstance(p := function.params[k], Buffer)}
    own, statements = _opened(function.body)
    scalars = (p for p in function.params if isinstance(p, Var))
    once, rest = _sorted(statements, constants, own, frozenset([*function.dims, *scalars]))
    if not once:
        return None
    inside, outside = _touched(once), _touched(rest)
    made = tuple(b for b in own if b in inside and b in outside)
    taken = tuple(k for k in numbers if function.params[k] in inside)
    dropped = tuple(k for k in taken if function.params[k] not in outside)
    prepare = Function(
        f"{function.name}_prepare",
        (*(function.params[k] for k in taken), *made),
        _closed([b for b in own if b in inside and b not in made], once),
    )
    params = (*(p for k, p in enumerate(function.params) if k not in dropped), *made)
    body = _closed([b for b in own if b in outside and b not in made], rest)
    left = {k: v for k, v in function.attrs.items() if k != "constants"}
    kept = replace(function, params=params, body=body, attrs=left)
    return Prepared(kept, prepare, taken, dropped, made)


def _opened(body: Stmt) -> tuple[list[Buffer], Sequence[Stmt]]:
    """The buffers allocated for the whole body, and its statements."""
    own: list[Buffer] = []
    while isinstance(body, Alloc):
        own.extend(body.buffers)
        body = body.body
    return own, body.statements if isinstance(body, Seq) else [body]


def _closed(buffers: Sequence[Buffer], statements: Sequence[Stmt]) -> Stmt:
    body = seq(*statements)
    return Alloc(tuple(buffers), body) if buffers else body


def _sorted(
    statements: Iterable[Stmt],
    constants: set[Buffer],
    own: Sequence[Buffer],
    dims: frozenset[Var],
) -> tuple[list[Stmt], list[Stmt]]:
    """The statements that can run once, and all others."""
    once: list[Stmt] = []
    rest: list[Stmt] = []
    known, fixed = set(constants), {b for b in own if b.static_size() is not None}
    for stmt in statements:
        written = {s.buffer for s in walk(stmt) if isinstance(s, Store)}
        others = _touched([stmt]) - written
        if _is_plain(stmt, dims) and written <= fixed and others <= known:
            once.append(stmt)
            known |= written
        else:
            rest.append(stmt)
    return _without_shared(once, rest)


def _without_shared(once: list[Stmt], rest: list[Stmt]) -> tuple[list[Stmt], list[Stmt]]:
    """Buffers that other statements write cannot be kept from one call to the next."""
    written = {s.buffer for stmt in rest for s in walk(stmt) if isinstance(s, Store)}
    if any(written & _touched([stmt]) for stmt in once):
        return [], [*once, *rest]
    return once, rest


def _is_plain(stmt: Stmt, dims: frozenset[Var]) -> bool:
    """Whether everything that the statement depends on is visible: it calls nothing for side
    effects, and does the same for all sizes."""
    if any(isinstance(s, Evaluate) for s in walk(stmt)):
        return False
    return not any(e in dims for e in all_exprs(stmt) if isinstance(e, Var))


def _touched(statements: Iterable[Stmt]) -> set[Buffer]:
    found: set[Buffer] = set()
    for stmt in statements:
        found.update(s.buffer for s in walk(stmt) if isinstance(s, Store))
        for expr in all_exprs(stmt):
            if isinstance(expr, Load):
                found.add(expr.buffer)
    return found
