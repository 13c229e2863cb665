"""Interleaving a few rows in registers: neighbours along a column come to lie side by side.

They may be converted on the way.
"""

from __future__ import annotations

import re
from functools import cache

from tilewright.ir import (
    Buffer,
    DType,
    Expr,
    For,
    Function,
    Iter,
    Load,
    Ramp,
    Stmt,
    Store,
    Var,
    call,
    cast,
    const,
    make_block,
    seq,
)
from tilewright.schedule.tensor_intrin import TensorIntrin, register_family


@cache
def interleave(dtype: DType, lanes: int, rows: int, become: DType) -> TensorIntrin:
    """D[j * rows + k] = S[k, j] for `rows` (a power of two) rows of `lanes` elements."""
    source = Buffer("S", dtype, (rows, lanes))
    result = Buffer("D", become, (lanes * rows,))
    name = f"interleave.{rows}x{dtype.short}x{lanes}"
    return TensorIntrin(
        name if become is dtype else f"{name}.{become.short}",
        Function("description", (source, result), _loops(source, result, lanes, rows)),
        Function("implementation", (source, result), _zips(source, result, lanes, rows)),
    )


def _named(rest: str) -> TensorIntrin | None:
    found = re.fullmatch(r"(\d+)x(\w+)x(\d+)(?:\.(\w+))?", rest)
    if found is None:
        return None
    rows, dtype, lanes, become = found.groups()
    return interleave(DType.of(dtype), int(lanes), int(rows), DType.of(become or dtype))


register_family("interleave", _named)


def _loops(source: Buffer, result: Buffer, lanes: int, rows: int) -> For:
    j, k, vj, vk = Var("j"), Var("k"), Var("vj"), Var("vk")
    iters = (Iter(vj, const(lanes), "spatial"), Iter(vk, const(rows), "spatial"))
    value = cast(source[vk, vj], result.dtype)
    block = make_block("D", iters, (j, k), Store(result, (vj * rows + vk,), value))
    return For(j, const(lanes), "serial", For(k, const(rows), "serial", block))


def _zips(source: Buffer, result: Buffer, lanes: int, rows: int) -> Stmt:
    whole = Ramp(const(0), const(1), lanes)
    loads = [Load(source, (const(k), whole)) for k in range(rows)]
    mixed = _interleaved([[cast(load, result.dtype.with_lanes(lanes))] for load in loads])
    return seq(
        *(
            Store(result, (Ramp(const(k * lanes), const(1), lanes),), part)
            for k, part in enumerate(mixed)
        )
    )


def _interleaved(rows: list[list[Expr]]) -> list[Expr]:
    """The interleaved elements of several rows; each row is a list of vectors."""
    if len(rows) == 1:
        return rows[0]
    even, odd = _interleaved(rows[0::2]), _interleaved(rows[1::2])
    pairs = zip(even, odd, strict=True)
    return [call(half, a, b) for a, b in pairs for half in ("zip_low", "zip_high")]
