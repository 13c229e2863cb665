"""Transposing a tile in registers, by interleaving vectors.

With n rows in n vectors, log2(n) rounds of interleaving the first half with the second give the n
columns. Rows that are shorter than a vector become vectors in the first rounds.

Where instructions move lanes only within 16 bytes of a vector, as x86-64's do, rows of 16 bytes are
joined into vectors, and each part of 16 bytes is transposed separately:

    row 0 | row 4        columns 0 to 3, of rows 0 to 3 | of rows 4 to 7
    row 1 | row 5   -->
    row 2 | row 6
    row 3 | row 7
"""

from __future__ import annotations

import re
from functools import cache

from tilewright.ir import (
    Buffer,
    DType,
    Evaluate,
    Expr,
    For,
    Function,
    Iter,
    Let,
    Load,
    Ramp,
    Stmt,
    Store,
    Var,
    call,
    const,
    make_block,
    seq,
)
from tilewright.schedule.tensor_intrin import TensorIntrin, register_family

#: Bytes of the parts of a vector within which lanes move.
PART_BYTES = 16


@cache
def transpose_tile(
    dtype: DType, lanes: int, vectors: int, columns: int, *, by_parts: bool
) -> TensorIntrin:
    """D[j, i] = S[i, j] for `columns` rows of D, each of `vectors` vectors.

    Each row of D is stored completely before the next: some processors write a cache line without
    reading it first, if all of it is stored at once. More columns than lanes are transposed side by
    side. With `by_parts`, lanes only move within 16 bytes of a vector.
    """
    height = lanes * vectors
    name = f"transpose.{dtype.short}x{height}x{columns}"
    name += f".by_{lanes}" if vectors > 1 else ""
    return TensorIntrin(
        f"{name}.by_parts" if by_parts else name,
        _description(dtype, height, columns),
        _implementation(dtype, lanes, height, columns, by_parts=by_parts),
    )


def _named(rest: str) -> TensorIntrin | None:
    found = re.fullmatch(r"(\w+)x(\d+)x(\d+)(?:\.by_(\d+))?(\.by_parts)?", rest)
    if found is None:
        return None
    height, columns, lanes = (int(found[k] or found[2]) for k in (2, 3, 4))
    dtype, by_parts = DType.of(found[1]), found[5] is not None
    return transpose_tile(dtype, lanes, height // lanes, columns, by_parts=by_parts)


register_family("transpose", _named)


def _buffers(dtype: DType, height: int, width: int, *, strided: bool) -> tuple[Buffer, Buffer]:
    def buffer(name: str, *shape: int) -> Buffer:
        strides = (Var(f"{name.lower()}_stride"), const(1)) if strided else None
        return Buffer(name, dtype, shape, strides=strides)

    return buffer("S", height, width), buffer("D", width, height)


def _description(dtype: DType, height: int, width: int) -> Function:
    source, result = _buffers(dtype, height, width, strided=False)
    i, j, vi, vj = Var("i"), Var("j"), Var("vi"), Var("vj")
    iters = (Iter(vj, const(width), "spatial"), Iter(vi, const(height), "spatial"))
    block = make_block("D", iters, (j, i), Store(result, (vj, vi), source[vi, vj]))
    loops = For(j, const(width), "serial", For(i, const(height), "serial", block))
    return Function("description", (source, result), loops)


def _implementation(
    dtype: DType, lanes: int, height: int, width: int, *, by_parts: bool
) -> Function:
    source, result = _buffers(dtype, height, width, strided=True)
    steps, transpose = _Statements(), _transposed_by_parts if by_parts else _transposed
    across = width if by_parts else min(width, lanes)
    starts, firsts = range(0, height, lanes), range(0, width, across)
    transposed: dict[int, list[list[Expr]]] = {first: [] for first in firsts}
    for start in starts:
        for first in firsts:
            place = Ramp(const(first), const(1), across)
            columns = transpose(source, start, place, lanes, steps)
            transposed[first].append(columns)
            if len(firsts) > 1:
                # LLVM would compute them where they are used, which takes too many registers.
                steps.do(Evaluate(call("keep_order", *columns)))
            if start == starts[-1]:
                # Free the registers before the rest of these rows is transposed.
                _store_rows(result, first, transposed.pop(first), steps)
    return Function("implementation", (source, result), steps.body())


def _store_rows(
    result: Buffer, first: int, transposed: list[list[Expr]], steps: _Statements
) -> None:
    """Store the rows of the result from `first` on, each as a whole."""
    lanes = transposed[0][0].dtype.lanes
    for k, row in enumerate(zip(*transposed, strict=True)):
        for number, part in enumerate(row):
            place = Ramp(const(number * lanes), const(1), lanes)
            steps.do(Store(result, (const(first + k), place), part))
        if len(row) > 1:
            steps.do(Evaluate(call("keep_order")))


class _Statements:
    """Collects statements in order; every computed value gets a name."""

    def __init__(self) -> None:
        self._taken: list[tuple[Var, Expr] | Stmt] = []

    def name(self, value: Expr) -> Expr:
        var = Var(f"r{len(self._taken)}", value.dtype)
        self._taken.append((var, value))
        return var

    def do(self, stmt: Stmt) -> None:
        self._taken.append(stmt)

    def body(self) -> Stmt:
        body = seq()
        for step in reversed(self._taken):
            body = seq(step, body) if isinstance(step, Stmt) else Let(*step, body)
        return body

    def interleaved(self, rows: list[Expr], low: str, high: str) -> list[Expr]:
        """One round: interleave the first half of the vectors with the second."""
        pairs = [(self.name(a), self.name(b)) for a, b in _halves(rows)]
        return [call(half, a, b) for a, b in pairs for half in (low, high)]


def _halves(rows: list[Expr]) -> list[tuple[Expr, Expr]]:
    return list(zip(rows[: len(rows) // 2], rows[len(rows) // 2 :], strict=True))


def _transposed(
    source: Buffer, start: int, place: Ramp, lanes: int, steps: _Statements
) -> list[Expr]:
    """The columns at `place` of `lanes` rows."""
    rows: list[Expr] = [Load(source, (const(start + k), place)) for k in range(lanes)]
    for _ in range(lanes.bit_length() - 1):
        if rows[0].dtype.lanes < lanes:
            rows = [call("zip", a, b) for a, b in _halves(rows)]
        else:
            rows = steps.interleaved(rows, "zip_low", "zip_high")
    return [steps.name(row) for row in rows]


def _transposed_by_parts(
    source: Buffer, start: int, place: Ramp, lanes: int, steps: _Statements
) -> list[Expr]:
    """The same with moves within 16 bytes of a vector."""
    own = PART_BYTES // source.dtype.itemsize
    firsts = range(0, place.dtype.lanes, own)
    joined: dict[int, list[Expr]] = {first: [] for first in firsts}
    # Read all that is needed of a row at once: its line may not stay in L1.
    for k in range(own):
        rows = [start + row for row in range(k, lanes, own)]
        for first in firsts:
            piece = Ramp(const(first), const(1), own)
            pieces: list[Expr] = [Load(source, (const(row), piece)) for row in rows]
            joined[first].append(steps.name(_joined(pieces)))
    transposed: list[Expr] = []
    for columns in joined.values():
        for _ in range(own.bit_length() - 1):
            columns = steps.interleaved(columns, "unpack_low", "unpack_high")
        transposed += [steps.name(column) for column in columns]
    return transposed


def _joined(pieces: list[Expr]) -> Expr:
    """Concatenate vectors."""
    while len(pieces) > 1:
        pieces = [call("join", a, b) for a, b in zip(pieces[::2], pieces[1::2], strict=True)]
    return pieces[0]
