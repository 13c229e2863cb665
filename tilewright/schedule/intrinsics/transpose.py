"""Transposing a tile in registers, by interleaving vectors.

With n rows in n vectors, log2(n) rounds of interleaving the first half with the second give the n
columns. Rows that are shorter than a vector become vectors in the first rounds.

Where instructions move lanes only within 16 bytes of a vector, as x86-64's do, rows of 16 bytes are
joined to vectors, and each 16 bytes of these are turned for themselves:

    row 0 | row 4        columns 0 to 3, of rows 0 to 3 | of rows 4 to 7
    row 1 | row 5   -->
    row 2 | row 6
    row 3 | row 7
"""

from __future__ import annotations

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
from tilewright.schedule.tensor_intrin import TensorIntrin

#: Bytes of a vector within which lanes move apart from the others.
PART_BYTES = 16


@cache
def transpose_tile(
    dtype: DType, lanes: int, vectors: int = 1, columns: int | None = None, *, apart: bool = False
) -> TensorIntrin:
    """D[j, i] = S[i, j] for `columns` rows of D, each of so many vectors.

    A row of D is stored as a whole before the next one begins: there are processors that write a
    line of the cache without reading it first, if all of it comes at once. More columns than lanes
    are turned side by side. With `apart`, lanes move within 16 bytes of a vector.
    """
    height, width = lanes * vectors, columns or lanes
    return TensorIntrin(
        f"transpose.{dtype.short}x{height}x{width}" + (".apart" if apart else ""),
        _description(dtype, height, width),
        _implementation(dtype, lanes, height, width, apart=apart),
    )


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


def _implementation(dtype: DType, lanes: int, height: int, width: int, *, apart: bool) -> Function:
    source, result = _buffers(dtype, height, width, strided=True)
    steps, turn = _Steps(), _turned_apart if apart else _turned
    across = width if apart else min(width, lanes)
    starts, firsts = range(0, height, lanes), range(0, width, across)
    turned: dict[int, list[list[Expr]]] = {first: [] for first in firsts}
    for start in starts:
        for first in firsts:
            place = Ramp(const(first), const(1), across)
            columns = turn(source, start, place, lanes, steps)
            turned[first].append(columns)
            if len(firsts) > 1:
                # Computed as late as they are used, they would take more registers than there are.
                steps.do(Evaluate(call("keep_order", *columns)))
            if start == starts[-1]:
                # Registers are free again before what is left of these rows is turned.
                _store_rows(result, first, turned.pop(first), steps)
    return Function("implementation", (source, result), steps.body())


def _store_rows(result: Buffer, first: int, turned: list[list[Expr]], steps: _Steps) -> None:
    """Store the rows of the result from `first` on, each as a whole."""
    lanes = turned[0][0].dtype.lanes
    for k, row in enumerate(zip(*turned, strict=True)):
        for number, part in enumerate(row):
            place = Ramp(const(number * lanes), const(1), lanes)
            steps.do(Store(result, (const(first + k), place), part))
        if len(row) > 1:
            steps.do(Evaluate(call("keep_order")))


class _Steps:
    """What is done one after the other; values that are computed have names."""

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
        """One round: the first half of the vectors with the second."""
        pairs = [(self.name(a), self.name(b)) for a, b in _halves(rows)]
        return [call(half, a, b) for a, b in pairs for half in (low, high)]


def _halves(rows: list[Expr]) -> list[tuple[Expr, Expr]]:
    return list(zip(rows[: len(rows) // 2], rows[len(rows) // 2 :], strict=True))


def _turned(source: Buffer, start: int, place: Ramp, lanes: int, steps: _Steps) -> list[Expr]:
    """The columns at `place` of `lanes` rows."""
    rows: list[Expr] = [Load(source, (const(start + k), place)) for k in range(lanes)]
    for _ in range(lanes.bit_length() - 1):
        if rows[0].dtype.lanes < lanes:
            rows = [call("zip", a, b) for a, b in _halves(rows)]
        else:
            rows = steps.interleaved(rows, "zip_low", "zip_high")
    return [steps.name(row) for row in rows]


def _turned_apart(source: Buffer, start: int, place: Ramp, lanes: int, steps: _Steps) -> list[Expr]:
    """The same by moves within 16 bytes of a vector."""
    own = PART_BYTES // source.dtype.itemsize
    firsts = range(0, place.dtype.lanes, own)
    joined: dict[int, list[Expr]] = {first: [] for first in firsts}
    # All that is needed of a row is read at once: its line may not stay in the nearest cache.
    for k in range(own):
        rows = [start + row for row in range(k, lanes, own)]
        for first in firsts:
            piece = Ramp(const(first), const(1), own)
            pieces: list[Expr] = [Load(source, (const(row), piece)) for row in rows]
            joined[first].append(steps.name(_joined(pieces)))
    turned: list[Expr] = []
    for columns in joined.values():
        for _ in range(own.bit_length() - 1):
            columns = steps.interleaved(columns, "unpack_low", "unpack_high")
        turned += [steps.name(column) for column in columns]
    return turned


def _joined(pieces: list[Expr]) -> Expr:
    """Vectors one after the other, as one."""
    while len(pieces) > 1:
        pieces = [call("join", a, b) for a, b in zip(pieces[::2], pieces[1::2], strict=True)]
    return pieces[0]
