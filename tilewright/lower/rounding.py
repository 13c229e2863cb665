"""Rounding to integers in plain arithmetic, for machines without an instruction for it.

    round(x)  -->  |x| + 2**23 - 2**23 with the sign of x; x itself from 2**23 on, and for NaN

x86-64 before SSE4.1 needs this, and so do 32-bit Arm before version 8 and RISC-V without floats:
there LLVM would call the C library, lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.ir import Call, Expr, Function, call, map_expr, map_exprs, select
from tilewright.target import Target

#: The feature that provides instructions for it, or short sequences of others.
_ROUNDS_BY: Final = {"x86_64": "sse4.1", "arm": "fp-armv8d16sp", "riscv64": "f", "riscv32": "f"}


def expand_rounding(function: Function, target: Target) -> Function:
    """Expand `floor`, `ceil`, `trunc` and `round` where the target has no instructions for them."""
    feature = _ROUNDS_BY.get(target.arch)
    if feature is None or target.has(feature):
        return function
    memo: dict[Expr, Expr] = {}
    return function.with_body(map_exprs(function.body, lambda e: map_expr(e, _expand, memo)))


def _expand(node: Expr) -> Expr | None:
    if not isinstance(node, Call) or node.name not in _EXPANSIONS:
        return None
    (x,) = node.args
    layout = x.dtype.float_format
    assert layout is not None
    limit = 2.0**layout.mantissa
    magnitude = call("abs", x)
    rounded = _EXPANSIONS[node.name](x, magnitude, limit)
    # The sign bit also covers -0.0, the result for small negative numbers.
    return select(magnitude < limit, call("copysign", rounded, x), x)


def _nearest(magnitude: Expr, limit: float) -> Expr:
    return magnitude + limit - limit


def _round(_x: Expr, magnitude: Expr, limit: float) -> Expr:
    return _nearest(magnitude, limit)


def _trunc(_x: Expr, magnitude: Expr, limit: float) -> Expr:
    near = _nearest(magnitude, limit)
    return select(near > magnitude, near - 1.0, near)


def _floor(x: Expr, magnitude: Expr, limit: float) -> Expr:
    near = call("copysign", _nearest(magnitude, limit), x)
    return select(near > x, near - 1.0, near)


def _ceil(x: Expr, magnitude: Expr, limit: float) -> Expr:
    near = call("copysign", _nearest(magnitude, limit), x)
    return select(near < x, near + 1.0, near)


_EXPANSIONS: dict[str, Callable[[Expr, Expr, float], Expr]] = {
    "round": _round,
    "trunc": _trunc,
    "floor": _floor,
    "ceil": _ceil,
}
