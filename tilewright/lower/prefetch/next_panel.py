"""Prefetch what the next iteration of a loop reads, a little in each iteration of the inner loops.

    for j in range(16, note={"prefetch_next": 1}):
        for i in range(24):
            for k in range(512):
                acc[…] += A[…] * B[ramp(j * 24576 + k * 48, 1, 48)]
    -->
    for j in range(16):
        for i in range(24):
            for k in range(512):
                prefetch(address_of(B[j * 24576 + i * 1024 + k * 2 + 24576]))
                acc[…] += A[…] * B[ramp(j * 24576 + k * 48, 1, 48)]

A panel that many rows use comes from memory for the first row, and from a cache for the others:
while they use one panel, the next one is fetched. A panel is what the inner loops read sequentially
and without gaps. Prefetches past the end of a buffer are harmless.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Final, NamedTuple

from tilewright.arith import Linear, linear
from tilewright.ir import (
    Buffer,
    Const,
    Evaluate,
    Expr,
    For,
    Function,
    Load,
    Ramp,
    Stmt,
    Var,
    address_of,
    all_exprs,
    call,
    child_stmts,
    const,
    map_function,
    map_stmt,
    seq,
)
from tilewright.target import Target

_NOTE: Final = "prefetch_next"
#: The most cache lines that one iteration of the innermost loop prefetches.
_LINES: Final = 2


def prefetch_next(function: Function, target: Target) -> Function:
    """Let annotated loops prefetch, during an iteration, what the next one reads."""

    def rule(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, For) or _NOTE not in stmt.annotations:
            return None
        notes = {key: note for key, note in stmt.annotations.items() if key != _NOTE}
        asking: dict[Stmt, Stmt] = {
            nest[-1]: _asking(stmt.var, nest, target) for nest in _nests(stmt.body, ())
        }
        return replace(stmt, body=map_stmt(stmt.body, lambda s: asking.get(s)), annotations=notes)

    return map_function(function, rule)


def _nests(stmt: Stmt, around: tuple[For, ...]) -> Iterator[tuple[For, ...]]:
    """Each innermost loop, preceded by those around it."""
    inside = (*around, stmt) if isinstance(stmt, For) else around
    deeper = [nest for child in child_stmts(stmt) for nest in _nests(child, inside)]
    yield from deeper
    if not deeper and isinstance(stmt, For):
        yield inside


def _asking(var: Var, nest: Sequence[For], target: Target) -> For:
    """The innermost loop of a nest, with its part of the prefetches for the next iteration of the
    loop over `var`."""
    asked = [r for panel in _panels(var, nest) for r in _requests(panel, var, nest, target)]
    return replace(nest[-1], body=seq(*asked, nest[-1].body))


class _Panel(NamedTuple):
    """Elements of a buffer that an iteration of a loop reads, from `start` on. The innermost loop
    advances by `step`, and reads `width` elements."""

    buffer: Buffer
    start: Linear
    size: int
    step: int
    width: int

    def covers(self, other: _Panel) -> bool:
        """Whether one step of this panel contains the start of another one."""
        after = other.start.constant - self.start.constant
        is_same = self.buffer is other.buffer and self.start.terms == other.start.terms
        return is_same and 0 <= after < self.step

    def joined(self, other: _Panel) -> _Panel:
        after = other.start.constant - self.start.constant
        return self._replace(width=max(self.width, after + other.width))


def _panels(var: Var, nest: Sequence[For]) -> list[_Panel]:
    """What the innermost loop of a nest reads without gaps, at places that depend on `var`."""
    found: list[_Panel] = []
    for panel in sorted(_runs(var, nest), key=lambda p: p.start.constant):
        k = next((k for k, other in enumerate(found) if other.covers(panel)), None)
        if k is None:
            found.append(panel)
        else:
            found[k] = found[k].joined(panel)
    return [panel for panel in found if panel.width >= panel.step]


def _runs(var: Var, nest: Sequence[For]) -> Iterator[_Panel]:
    """Loads at places that depend on `var`, which the loops of a nest walk sequentially."""
    for node in all_exprs(nest[-1].body):
        if not isinstance(node, Load) or node.buffer.scope != "global":
            continue
        (index,) = node.indices
        start = linear(index.base if isinstance(index, Ramp) else index)
        moving = [loop for loop in nest if loop.var in start.terms]
        if start.dtype.lanes > 1 or var not in start.terms or nest[-1] not in moving:
            continue
        steps = [start.terms[loop.var] for loop in moving]
        sizes = [step * _extent(loop) for loop, step in zip(moving, steps, strict=True)]
        if sizes[0] > 0 and steps[:-1] == sizes[1:]:
            own = start.without(*(loop.var for loop in moving))
            yield _Panel(node.buffer, own, sizes[0], steps[-1], node.dtype.lanes)


def _extent(loop: For) -> int:
    """The number of iterations; 0 if it is unknown."""
    return int(loop.extent.value) if isinstance(loop.extent, Const) else 0


def _requests(panel: _Panel, var: Var, nest: Sequence[For], target: Target) -> Iterator[Stmt]:
    """The lines of a panel that an iteration of the innermost loop prefetches."""
    outer, inner = nest[0], nest[1:]
    inside = prod(map(_extent, inner))
    # If very many rows use a panel, the wait for it is a small part of the time.
    if not 0 < inside * max(1, _extent(outer)) <= panel.size:
        return
    line = max(1, target.caches.line // panel.buffer.dtype.itemsize)
    each = _share(-(-panel.size // inside), outer)
    most = int(each.value) if isinstance(each, Const) else line
    if most > line * _LINES:
        return
    iteration = Linear.of_atom(outer.var).scaled(inside)
    for k, loop in enumerate(inner):
        iteration = iteration.plus(Linear.of_atom(loop.var), prod(map(_extent, inner[k + 1 :])))
    place = panel.start.shifted(panel.start.terms[var])
    asked = linear(place.expr() + iteration.expr() * each)
    for by in range(0, most, line):
        address = address_of(Load(panel.buffer, (asked.shifted(by).expr(),)))
        yield Evaluate(call("prefetch", address))


def _share(elements: int, loop: For) -> Expr:
    """The share of `elements` that each iteration of a loop prefetches; if the number of iterations
    is known only at run time, at most that, and nothing if there are very many."""
    count = _extent(loop)
    return const(-(-elements // count)) if count else const(elements) // loop.extent
