"""Transposing a square tile in registers, by interleaving vectors.

With n rows in n vectors, log2(n) rounds of interleaving the first half with the second give the n
columns.
"""

from __future__ import annotations

from functools import cache

from tilewright.ir import (
    Buffer,
    DType,
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
def transpose_tile(dtype: DType, lanes: int) -> TensorIntrin:
    """D[j, i] = S[i, j] for lanes × lanes elements."""
    name = f"transpose.{dtype.short}x{lanes}"
    return TensorIntrin(name, _description(dtype, lanes), _implementation(dtype, lanes))


def _buffers(dtype: DType, lanes: int, *, strided: bool) -> tuple[Buffer, Buffer]:
    def buffer(name: str) -> Buffer:
        strides = (Var(f"{name.lower()}_stride"), const(1)) if strided else None
        return Buffer(name, dtype, (lanes, lanes), strides=strides)

    return buffer("S"), buffer("D")


def _description(dtype: DType, lanes: int) -> Function:
    source, result = _buffers(dtype, lanes, strided=False)
    i, j, vi, vj = Var("i"), Var("j"), Var("vi"), Var("vj")
    iters = (Iter(vj, const(lanes), "spatial"), Iter(vi, const(lanes), "spatial"))
    block = make_block("D", iters, (j, i), Store(result, (vj, vi), source[vi, vj]))
    loops = For(j, const(lanes), "serial", For(i, const(lanes), "serial", block))
    return Function("description", (source, result), loops)


def _implementation(dtype: DType, lanes: int) -> Function:
    source, result = _buffers(dtype, lanes, strided=True)
    whole = Ramp(const(0), const(1), lanes)
    named: list[tuple[Var, Expr]] = []

    def name(value: Expr) -> Var:
        named.append((Var(f"r{len(named)}", value.dtype), value))
        return named[-1][0]

    rows = [name(Load(source, (const(k), whole))) for k in range(lanes)]
    for _ in range(lanes.bit_length() - 1):
        pairs = zip(rows[: lanes // 2], rows[lanes // 2 :], strict=True)
        rows = [name(call(op, a, b)) for a, b in pairs for op in ("zip_low", "zip_high")]
    body: Stmt = seq(*(Store(result, (const(k), whole), row) for k, row in enumerate(rows)))
    for var, value in reversed(named):
        body = Let(var, value, body)
    return Function("implementation", (source, result), body)
