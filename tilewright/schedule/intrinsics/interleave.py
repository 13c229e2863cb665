"""Interleaving a few rows in registers: neighbours along a column become contiguous.

They may be converted at the same time.
"""

from __future__ import annotations

import re
from functools import cache

from tilewright.ir import (
    Broadcast,
    Buffer,
    Const,
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
    broadcast,
    call,
    cast,
    const,
    make_block,
    select,
    seq,
)
from tilewright.schedule.tensor_intrin import TensorIntrin, register_family


@cache
def interleave(
    dtype: DType, lanes: int, rows: int, become: DType, group: int | None = None
) -> TensorIntrin:
    """D[j * rows + k] = S[k, j] for `rows` (a power of two) rows of `lanes` elements.

    With `group`, rows are interleaved in groups of this many, one group after the other, the last
    one padded with zeros: D[k // group * lanes * group + j * group + k % group] = S[k, j].
    """
    if group == rows:
        return interleave(dtype, lanes, rows, become)
    group = group or rows
    source = Buffer("S", dtype, (rows, lanes))
    result = Buffer("D", become, (-(-rows // group) * group * lanes,))
    name = f"interleave.{rows if rows == group else f'{rows}by{group}'}x{dtype.short}x{lanes}"
    return TensorIntrin(
        name if become is dtype else f"{name}.{become.short}",
        Function("description", (source, result), _loops(source, result, group)),
        Function("implementation", (source, result), _zips(source, result, group)),
    )


def _named(rest: str) -> TensorIntrin | None:
    found = re.fullmatch(r"(\d+)(?:by(\d+))?x(\w+)x(\d+)(?:\.(\w+))?", rest)
    if found is None:
        return None
    rows, group, dtype, lanes, become = found.groups()
    by = () if group is None else (int(group),)
    return interleave(DType.of(dtype), int(lanes), int(rows), DType.of(become or dtype), *by)


register_family("interleave", _named)


def _sizes(source: Buffer) -> tuple[int, int]:
    """The number of rows, and of elements in a row."""
    rows, lanes = (int(d.value) for d in source.shape if isinstance(d, Const))
    return rows, lanes


def _loops(source: Buffer, result: Buffer, group: int) -> For:
    rows, lanes = _sizes(source)
    steps = -(-rows // group) * group
    j, k, vj, vk = Var("j"), Var("k"), Var("vj"), Var("vk")
    iters = (Iter(vj, const(lanes), "spatial"), Iter(vk, const(steps), "spatial"))
    value = cast(source[vk, vj], result.dtype)
    if steps > rows:
        value = select(vk < rows, value, const(0, result.dtype))
    place = vj * group + vk
    if steps > group:
        place = vk // group * (lanes * group) + vj * group + vk % group
    block = make_block("D", iters, (j, k), Store(result, (place,), value))
    return For(j, const(lanes), "serial", For(k, const(steps), "serial", block))


def _zips(source: Buffer, result: Buffer, group: int) -> Stmt:
    rows, lanes = _sizes(source)
    whole = Ramp(const(0), const(1), lanes)
    become = result.dtype.with_lanes(lanes)
    loads = [cast(Load(source, (const(k), whole)), become) for k in range(rows)]
    loads += [broadcast(const(0, result.dtype), lanes)] * (-rows % group)
    mixed = [
        part
        for first in range(0, len(loads), group)
        for part in _interleaved([[load] for load in loads[first : first + group]])
    ]
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
    return [_zipped(half, a, b) for a, b in pairs for half in ("zip_low", "zip_high")]


def _zipped(half: str, a: Expr, b: Expr) -> Expr:
    """Half of two interleaved vectors; for zeros, just zeros."""
    return a if a is b and isinstance(a, Broadcast) else call(half, a, b)
