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
    Const,
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
    line of the cache without reading it first, if all of it comes at once. With `apart`,
    lanes move within 16 bytes of a vector.
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
    starts = range(0, height, lanes)
    turned = [turn(source, start, lanes, steps) for start in starts]
    stores: list[Stmt] = []
    for k, row in enumerate(zip(*turned, strict=True)):
        if k > 0 and len(starts) > 1:
            stores.append(Evaluate(call("keep_order")))
        for start, part in zip(starts, row, strict=True):
            stores.append(Store(result, (const(k), Ramp(const(start), const(1), lanes)), part))
    return Function("implementation", (source, result), steps.before(seq(*stores)))


class _Steps:
    """What is computed one after the other, each step with a name."""

    def __init__(self) -> None:
        self._named: list[tuple[Var, Expr]] = []

    def name(self, value: Expr) -> Expr:
        self._named.append((Var(f"r{len(self._named)}", value.dtype), value))
        return self._named[-1][0]

    def before(self, body: Stmt) -> Stmt:
        for var, value in reversed(self._named):
            body = Let(var, value, body)
        return body

    def interleaved(self, rows: list[Expr], low: str, high: str) -> list[Expr]:
        """One round: the first half of the vectors with the second."""
        pairs = [(self.name(a), self.name(b)) for a, b in _halves(rows)]
        return [call(half, a, b) for a, b in pairs for half in (low, high)]


def _halves(rows: list[Expr]) -> list[tuple[Expr, Expr]]:
    return list(zip(rows[: len(rows) // 2], rows[len(rows) // 2 :], strict=True))


def _turned(source: Buffer, start: int, lanes: int, steps: _Steps) -> list[Expr]:
    """The columns of `lanes` rows."""
    own = Ramp(const(0), const(1), _width(source))
    rows: list[Expr] = [Load(source, (const(start + k), own)) for k in range(lanes)]
    for _ in range(lanes.bit_length() - 1):
        if rows[0].dtype.lanes < lanes:
            rows = [call("zip", a, b) for a, b in _halves(rows)]
        else:
            rows = steps.interleaved(rows, "zip_low", "zip_high")
    return [steps.name(row) for row in rows]


def _turned_apart(source: Buffer, start: int, lanes: int, steps: _Steps) -> list[Expr]:
    """The same by moves within 16 bytes of a vector."""
    own = PART_BYTES // source.dtype.itemsize
    firsts = range(0, _width(source), own)
    joined: dict[int, list[Expr]] = {first: [] for first in firsts}
    # All that is needed of a row is read at once: its line may not stay in the nearest cache.
    for k in range(own):
        rows = [start + row for row in range(k, lanes, own)]
        for first in firsts:
            place = Ramp(const(first), const(1), own)
            pieces: list[Expr] = [Load(source, (const(row), place)) for row in rows]
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


def _width(source: Buffer) -> int:
    width = source.shape[1]
    assert isinstance(width, Const)
    return int(width.value)
