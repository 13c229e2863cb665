"""Broadcasting of shapes whose dimensions may be symbolic.

Two dimensions that are not known to be equal, nor to be 1, meet when the program runs: the result
is the expression that is right for all sizes NumPy would accept, reading goes through a choice, and
`broadcast_checks` says what must hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith import prove_equal
from tilewright.graph.ir import Value
from tilewright.graph.naturals import naturals, simplify_size
from tilewright.graph.types import known_dim
from tilewright.ir import Expr, any_of, const, maximum, minimum, select
from tilewright.support.errors import UserError


def broadcast_shapes(*shapes: Sequence[Expr]) -> tuple[Expr, ...]:
    """The shape that NumPy's rules give."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[Expr] = [const(1)] * rank
    for shape in shapes:
        for n, dim in enumerate(shape, rank - len(shape)):
            result[n] = _meet(result[n], dim, shapes)
    return tuple(result)


def broadcast_index(
    shape: Sequence[Expr], out: Sequence[Expr], indices: Sequence[Any]
) -> tuple[Any, ...]:
    """Where to read a tensor of `shape` for the element `indices` of the result of shape `out`."""
    skip = len(out) - len(shape)
    return tuple(_index(d, o, i) for d, o, i in zip(shape, out[skip:], indices[skip:], strict=True))


def broadcast_checks(*values: Value | None, **_attrs: Any) -> list[tuple[Expr, str]]:
    """What must hold for the symbolic dimensions of operands that are broadcast."""
    given = [v for v in values if v is not None]
    rank = max((v.ndim for v in given), default=0)
    checks: list[tuple[Expr, str]] = []
    for n in range(1, rank + 1):
        dims = list(dict.fromkeys(v.shape[-n] for v in given if v.ndim >= n))
        dims = [d for d in dims if known_dim(d) != 1]
        checks += [_check(dims[0], d, rank - n) for d in dims[1:] if not _are_equal(dims[0], d)]
    return checks


def _check(a: Expr, b: Expr, axis: int) -> tuple[Expr, str]:
    # Numbers other than 1 must be met; only symbolic dimensions may turn out to be 1.
    ones = [d == const(1) for d in (a, b) if known_dim(d) is None]
    return any_of(a == b, *ones), f"dimension {axis} is {a} and {b}, which cannot be broadcast"


def _meet(a: Expr, b: Expr, shapes: Sequence[Sequence[Expr]]) -> Expr:
    x, y = known_dim(a), known_dim(b)
    if x == 1 or a is b:
        return b
    if y == 1:
        return a
    if x is not None and y is not None:
        text = " and ".join(f"[{', '.join(map(str, s))}]" for s in shapes)
        raise UserError(
            f"shapes {text} cannot be broadcast",
            reason=f"{x} and {y} are neither equal nor 1",
        )
    if x is not None or y is not None:
        return a if x is not None else b
    if _are_equal(a, b):
        return a
    # Equal, or one of them is 1: the greater one, but 0 against 1 is 0.
    return simplify_size(maximum(a, b) * minimum(minimum(a, b), 1))


def _are_equal(a: Expr, b: Expr) -> bool:
    return prove_equal(a, b, naturals(a, b))


def _index(dim: Expr, out: Expr, index: Any) -> Any:
    if known_dim(dim) == 1:
        return const(0)
    if dim is out or known_dim(dim) is not None or _are_equal(dim, out):
        return index
    return select(dim == const(1), const(0), index)
