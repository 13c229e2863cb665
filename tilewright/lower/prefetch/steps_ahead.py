"""Prefetch what a loop reads some iterations later, where its schedule says so.

    for k in range(512, note={"prefetch": 16}):
        acc[…] += A[ramp(k * 8, 1, 4)] * …
    -->
    for k in range(512):
        prefetch(address_of(A[k * 8 + 128]))
        acc[…] += A[ramp(k * 8, 1, 4)] * …

Accesses with a constant stride, unless it is short, are prefetched line by line. Prefetches past
the end of a buffer are harmless, and in packed operands the next tile begins there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from tilewright.arith import Linear, linear
from tilewright.ir import (
    Buffer,
    Evaluate,
    Expr,
    For,
    Function,
    Let,
    Load,
    Ramp,
    Stmt,
    Var,
    address_of,
    all_exprs,
    call,
    free_vars,
    map_function,
    seq,
    walk,
)
from tilewright.target import Target

_NOTE: Final = "prefetch"


def place_prefetches(function: Function, target: Target) -> Function:
    """Let annotated loops prefetch what they read that many iterations later."""

    def rule(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, For) or _NOTE not in stmt.annotations:
            return None
        notes = {key: note for key, note in stmt.annotations.items() if key != _NOTE}
        asked = _requests(stmt, int(stmt.annotations[_NOTE]), target)
        return replace(stmt, body=seq(*asked, stmt.body), annotations=notes)

    return map_function(function, rule)


class _Stream(NamedTuple):
    """Loads of a buffer with the same stride between iterations, at constant offsets."""

    buffer: Buffer
    step: int
    terms: frozenset[tuple[Expr, int]]

    @property
    def bytes(self) -> int:
        """Bytes per iteration."""
        return self.step * self.buffer.dtype.itemsize


class _Piece(NamedTuple):
    """Contiguous elements of a stream that one iteration reads."""

    start: Linear
    size: int


def _requests(loop: For, ahead: int, target: Target) -> list[Stmt]:
    """A prefetch for each line that is first read `ahead` iterations later."""
    line, slow = target.caches.line, target.timing.prefetched_iterations
    pieces: dict[_Stream, list[_Piece]] = {}
    for stream, piece in _streams(loop.var, loop.body):
        if stream.bytes * slow > line:
            pieces.setdefault(stream, []).append(piece)
    return [
        Evaluate(call("prefetch", address_of(Load(stream.buffer, (row.start.shifted(by).expr(),)))))
        for stream, found in pieces.items()
        for row in _rows(stream, found, line)
        for by in _lines(stream, row, ahead, line)
    ]


def _rows(stream: _Stream, pieces: list[_Piece], line: int) -> list[_Piece]:
    """The rows of which one iteration reads pieces; if they are short only the first, since the
    others would be prefetched repeatedly."""
    first, *others = sorted(pieces, key=lambda piece: piece.start.constant)
    rows = [first]
    for piece in others:
        after = piece.start.constant - rows[-1].start.constant
        if after < stream.step:
            rows[-1] = rows[-1]._replace(size=max(rows[-1].size, after + piece.size))
        elif stream.bytes >= line:
            rows.append(piece)
    return rows


def _streams(var: Var, body: Stmt) -> Iterator[tuple[_Stream, _Piece]]:
    """The streams that `body` reads from memory, and what each load takes of them; without loads
    whose place depends on inner loops."""
    inner = {s.var for s in walk(body) if isinstance(s, For | Let)}
    for node in all_exprs(body):
        if not isinstance(node, Load) or node.buffer.scope != "global":
            continue
        (index,) = node.indices
        start = linear(index.base if isinstance(index, Ramp) else index)
        step = start.terms.get(var, 0)
        if step > 0 and start.dtype.lanes == 1 and inner.isdisjoint(free_vars(start.expr())):
            stream = _Stream(node.buffer, step, frozenset(start.terms.items()))
            yield stream, _Piece(start, node.dtype.lanes)


def _lines(stream: _Stream, row: _Piece, ahead: int, line: int) -> range:
    """The distances from the first element of the lines that one iteration prefetches."""
    first, size = ahead * stream.step, min(row.size, stream.step)
    return range(first, first + size, max(1, line // stream.buffer.dtype.itemsize))
