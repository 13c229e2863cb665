"""Transposing a tile in registers, by interleaving vectors.

With n rows in n vectors, log2(n) rounds of interleaving the first half with the second give the n
columns. Rows that are shorter than a vector become vectors in the first rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
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


@cache
def transpose_tile(
    dtype: DType, lanes: int, vectors: int = 1, columns: int | None = None
) -> TensorIntrin:
    """D[j, i] = S[i, j] for `columns` rows of D, each of so many vectors.

    A row of D is stored as a whole before the next one begins: there are processors that write a
    line of the cache without reading it first, if all of it comes at once.
    """
    height, width = lanes * vectors, columns or lanes
    return TensorIntrin(
        f"transpose.{dtype.short}x{height}x{width}",
        _description(dtype, height, width),
        _implementation(dtype, lanes, height, width),
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


def _implementation(dtype: DType, lanes: int, height: int, width: int) -> Function:
    source, result = _buffers(dtype, height, width, strided=True)
    named: list[tuple[Var, Expr]] = []
    starts = range(0, height, lanes)
    turned = [_turned(source, start, lanes, named) for start in starts]
    stores: list[Stmt] = []
    for k, row in enumerate(zip(*turned, strict=True)):
        if k > 0 and len(starts) > 1:
            stores.append(Evaluate(call("keep_order")))
        for start, part in zip(starts, row, strict=True):
            stores.append(Store(result, (const(k), Ramp(const(start), const(1), lanes)), part))
    body = seq(*stores)
    for var, value in reversed(named):
        body = Let(var, value, body)
    return Function("implementation", (source, result), body)


def _turned(
    source: Buffer, start: int, lanes: int, named: list[tuple[Var, Expr]]
) -> Sequence[Expr]:
    """The columns of `lanes` rows; `named` is what has to be computed for them first."""

    def name(value: Expr) -> Expr:
        named.append((Var(f"r{len(named)}", value.dtype), value))
        return named[-1][0]

    own = Ramp(const(0), const(1), _width(source))
    rows: list[Expr] = [Load(source, (const(start + k), own)) for k in range(lanes)]
    for _ in range(lanes.bit_length() - 1):
        pairs = list(zip(rows[: len(rows) // 2], rows[len(rows) // 2 :], strict=True))
        if rows[0].dtype.lanes < lanes:
            rows = [call("zip", a, b) for a, b in pairs]
            continue
        pairs = [(name(a), name(b)) for a, b in pairs]
        rows = [call(half, a, b) for a, b in pairs for half in ("zip_low", "zip_high")]
    return [name(row) for row in rows]


def _width(source: Buffer) -> int:
    width = source.shape[1]
    assert isinstance(width, Const)
    return int(width.value)
