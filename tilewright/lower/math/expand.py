"""Replace calls of mathematical functions by arithmetic, so that they vectorize on every target.

    y[i] = tanh(x[i])  -->  y[i] = x'[i] * (c0 + …) / (d0 + …)

Every function is within 4 units in the last place for all arguments, and exact for special ones.
float16 and bfloat16 are computed in float32. Functions with instructions of their own (sqrt, floor,
fma, …) stay. Statements with angles have two versions (`expand_angles`): for vectors whose angles
are all near, which are most, and for others. Where denormals are flushed, denormal results become
zero; since that also goes for intermediate results, results may be off by up to twice the least
normal number.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from tilewright.ir import (
    Call,
    Expr,
    Function,
    If,
    Stmt,
    Store,
    all_exprs,
    all_of,
    call,
    cast,
    map_expr,
    map_exprs,
    map_function,
    walk_expr,
)
from tilewright.lower.math.builder import Angles, MathBuilder
from tilewright.lower.math.error_function import erf
from tilewright.lower.math.exponential import (
    coarse_exp,
    coarse_sigmoid,
    exp,
    exp2,
    expm1,
    sigmoid,
)
from tilewright.lower.math.hyperbolic import acosh, asinh, atanh, cosh, sinh, tanh
from tilewright.lower.math.inverse_trigonometric import acos, asin, atan, atan2
from tilewright.lower.math.logarithm import log, log1p, log2, log10
from tilewright.lower.math.power import pow, rsqrt
from tilewright.lower.math.reduction import near_limit
from tilewright.lower.math.trigonometric import cos, sin, tan
from tilewright.support.denormals import Denormals
from tilewright.support.dtype import float32
from tilewright.target import Target

_FUNCTIONS: tuple[Callable[..., Expr], ...] = (
    *(exp, exp2, expm1, sigmoid, coarse_exp, coarse_sigmoid),
    *(log, log2, log10, log1p),
    *(sin, cos, tan, asin, acos, atan, atan2),
    *(sinh, cosh, tanh, asinh, acosh, atanh),
    *(erf, pow, rsqrt),
)
EXPANSIONS: dict[str, Callable[..., Expr]] = {f.__name__: f for f in _FUNCTIONS}
_OF_ANGLES: Final = frozenset(["sin", "cos", "tan"])


class Arithmetic(NamedTuple):
    """Properties of the machine's arithmetic that the functions depend on."""

    #: Whether it has fused multiply-add; without it no `fma` is emitted.
    fused: bool = True
    denormals: Denormals = "flush"
    #: Whether the hardware flushes denormals where they are to be flushed.
    flushes: bool = True
    #: Whether it has approximate instructions for powers of two of float32.
    has_powers: bool = False
    #: The same for reciprocals.
    has_reciprocals: bool = False

    @property
    def tells_angles(self) -> bool:
        """Whether separate versions for near angles pay."""
        return self.fused and not self.has_powers

    @staticmethod
    def of(target: Target, denormals: Denormals) -> Arithmetic:
        return Arithmetic(
            target.has_fma,
            denormals,
            target.flushes_denormals,
            has_powers=target.gpu is not None,
            has_reciprocals=target.has_reciprocals,
        )


_DEFAULT: Final = Arithmetic()


def expand(
    node: Call, arithmetic: Arithmetic = _DEFAULT, angles: Angles | None = None
) -> Expr | None:
    """The arithmetic that computes `node`, or None if it is no function of this library.

    `angles` is what is known about them: by default nothing.
    """
    expansion = EXPANSIONS.get(node.name)
    by_instruction = arithmetic.has_powers and node.dtype.scalar is float32
    if expansion is None or (expansion is coarse_exp and by_instruction):
        return None
    known = angles or ("both" if arithmetic.tells_angles else "far")
    if node.dtype.bits < 32:
        wide = tuple(cast(a, "float32") for a in node.args)
        return cast(_expanded(expansion, wide, arithmetic, known), node.dtype)
    return _expanded(expansion, node.args, arithmetic, known)


def expand_math(function: Function, arithmetic: Arithmetic = _DEFAULT) -> Function:
    """`function` with the calls that `expand` knows expanded, except those with angles if these get
    two versions."""

    def expanded(node: Call) -> Expr | None:
        is_left = arithmetic.tells_angles and node.name in _OF_ANGLES
        return None if is_left else expand(node, arithmetic)

    return function.with_body(map_exprs(function.body, _replacing(expanded)))


def expand_angles(function: Function, arithmetic: Arithmetic = _DEFAULT) -> Function:
    """`function` with calls on angles expanded, in two versions of each store that contains them:

        y[ramp(i, 1, 4)] = sin(x)
        -->
        if all_lanes(abs(x) <= limit): y[ramp(i, 1, 4)] = … else: y[ramp(i, 1, 4)] = …

    All loops over lanes are vectors by now.
    """

    if not any(map(_is_of_angles, all_exprs(function.body))):
        return function

    def expanded(node: Call) -> Expr | None:
        return expand(node, arithmetic) if node.name in _OF_ANGLES else None

    versions = map_function(function, lambda s: _in_versions(s, arithmetic))
    return function.with_body(map_exprs(versions.body, _replacing(expanded)))


def _in_versions(stmt: Stmt, arithmetic: Arithmetic) -> Stmt | None:
    """A version of the statement for near angles, and the statement itself for others."""
    if not isinstance(stmt, Store):
        return None
    calls = [e for e in walk_expr(stmt.value) if isinstance(e, Call) and _is_of_angles(e)]
    if not calls:
        return None

    def expanded(node: Call) -> Expr | None:
        return expand(node, arithmetic, "near") if node.name in _OF_ANGLES else None

    # Angles that depend on other angles are correct if those are near.
    near = _replacing(expanded)
    are_near = all_of(*(_is_near(near(e.args[0])) for e in dict.fromkeys(calls)))
    return If(are_near, replace(stmt, value=near(stmt.value)), stmt, stmt.span)


def _is_of_angles(node: Expr) -> bool:
    return isinstance(node, Call) and node.name in _OF_ANGLES


def _is_near(angle: Expr) -> Expr:
    b = MathBuilder(angle.dtype)
    condition = b.abs(angle) <= near_limit(b)
    return call("all_lanes", condition) if condition.dtype.is_vector else condition


def _replacing(expanded: Callable[[Call], Expr | None]) -> Callable[[Expr], Expr]:
    memo: dict[Expr, Expr] = {}
    return lambda e: map_expr(e, lambda n: expanded(n) if isinstance(n, Call) else None, memo)


def _expanded(
    expansion: Callable[..., Expr], args: tuple[Expr, ...], arithmetic: Arithmetic, angles: Angles
) -> Expr:
    flush = arithmetic.denormals == "flush"
    builder = MathBuilder(
        args[0].dtype,
        fused=arithmetic.fused,
        flush=flush,
        coarse=arithmetic.has_reciprocals,
        angles=angles,
    )
    result = expansion(builder, *args)
    return result if arithmetic.flushes else builder.flushed(result)
