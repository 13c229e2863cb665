"""Replace calls of mathematical functions by arithmetic, so that they vectorize on every target.

    y[i] = tanh(x[i])  -->  y[i] = x'[i] * (c0 + …) / (d0 + …)

Every function is within 4 units in the last place for all arguments, and exact for special ones.
float16 and bfloat16 are computed in float32. What one instruction does (sqrt, floor, fma, …) stays.
Where denormals are flushed, what would be one is zero; since that goes for what is computed on the
way as well, results may also be off by no more than twice the least normal number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tilewright.ir import Call, Expr, Function, cast, map_expr, map_exprs
from tilewright.lower.math.builder import MathBuilder
from tilewright.lower.math.error_function import erf
from tilewright.lower.math.exponential import coarse_exp, exp, exp2, expm1, sigmoid
from tilewright.lower.math.hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from tilewright.lower.math.inverse_trigonometric import acos, asin, atan, atan2
from tilewright.lower.math.logarithm import log, log1p, log2, log10
from tilewright.lower.math.power import pow, rsqrt
from tilewright.lower.math.trigonometric import cos, sin, tan
from tilewright.support.denormals import Denormals
from tilewright.support.dtype import float32
from tilewright.target import Target

_FUNCTIONS: tuple[Callable[..., Expr], ...] = (
    *(exp, exp2, expm1, sigmoid, coarse_exp),
    *(log, log2, log10, log1p),
    *(sin, cos, tan, asin, acos, atan, atan2),
    *(sinh, cosh, tanh, asinh, acosh, atanh),
    *(erf, pow, rsqrt),
)
EXPANSIONS: dict[str, Callable[..., Expr]] = {f.__name__: f for f in _FUNCTIONS}


class Arithmetic(NamedTuple):
    """What the machine does with numbers, as far as the functions depend on it."""

    #: Whether it has fused multiply-add; without it no `fma` is emitted.
    fused: bool = True
    denormals: Denormals = "flush"
    #: Whether it flushes denormals by itself where they are to be flushed.
    flushes: bool = True
    #: Whether it has instructions for powers of two and reciprocals of float32 that are a bit off.
    has_coarse: bool = False

    @staticmethod
    def of(target: Target, denormals: Denormals) -> Arithmetic:
        has_coarse = target.gpu is not None
        return Arithmetic(target.has_fma, denormals, target.flushes_denormals, has_coarse)


_DEFAULT: Final = Arithmetic()


def expand(node: Call, arithmetic: Arithmetic = _DEFAULT) -> Expr | None:
    """The arithmetic that computes `node`, or None where it is no function of this library."""
    expansion = EXPANSIONS.get(node.name)
    by_instruction = arithmetic.has_coarse and node.dtype.scalar is float32
    if expansion is None or (expansion is coarse_exp and by_instruction):
        return None
    if node.dtype.bits < 32:
        wide = (cast(a, "float32") for a in node.args)
        return cast(_expanded(expansion, tuple(wide), arithmetic), node.dtype)
    return _expanded(expansion, node.args, arithmetic)


def expand_math(function: Function, arithmetic: Arithmetic = _DEFAULT) -> Function:
    """`function` with every call that `expand` knows expanded."""
    memo: dict[Expr, Expr] = {}

    def on_node(e: Expr) -> Expr | None:
        return expand(e, arithmetic) if isinstance(e, Call) else None

    return function.with_body(map_exprs(function.body, lambda e: map_expr(e, on_node, memo)))


def _expanded(
    expansion: Callable[..., Expr], args: tuple[Expr, ...], arithmetic: Arithmetic
) -> Expr:
    flush = arithmetic.denormals == "flush"
    builder = MathBuilder(
        args[0].dtype, fused=arithmetic.fused, flush=flush, coarse=arithmetic.has_coarse
    )
    result = expansion(builder, *args)
    return result if arithmetic.flushes else builder.flushed(result)
