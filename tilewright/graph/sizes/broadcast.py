"""Broadcasting of shapes whose dimensions may be symbolic.

Whether two dimensions are equal, or one of them is 1, may be known only at run time. The result's
size is then an expression that is right for all sizes NumPy would accept, reads select their index,
and the condition is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.arith import prove_equal
from tilewright.graph.ir.types import known_dim
from tilewright.graph.sizes.agreement import ask, is_asked
from tilewright.graph.sizes.naturals import naturals, simplify_size
from tilewright.ir import Expr, any_of, const, maximum, minimum, select
from tilewright.support.errors import UserError


def broadcast_shapes(*shapes: Sequence[Expr]) -> tuple[Expr, ...]:
    """The shape that NumPy's rules give."""
    rank = max((len(s) for s in shapes), default=0)
    result: list[Expr] = [const(1)] * rank
    for shape in shapes:
        for n, dim in enumerate(shape, rank - len(shape)):
            result[n] = _broadcast_dim(result[n], dim, n, shapes)
    return tuple(result)


def require_broadcast_to(wanted: Sequence[Expr], given: Sequence[Expr], what: str) -> None:
    """Require that a tensor of the shape `given` can be read as one of the shape `wanted`."""
    if len(given) > len(wanted):
        raise UserError(f"{what} has {len(given)} dimensions, more than {len(wanted)}")
    for n, dim in enumerate(given, len(wanted) - len(given)):
        _fit(wanted[n], dim, n, what)


def _fit(wanted: Expr, given: Expr, axis: int, what: str) -> None:
    x, y = known_dim(wanted), known_dim(given)
    if y == 1 or wanted is given:
        return
    text = f"dimension {axis} of {what} is {given}, which cannot be broadcast to {wanted}"
    if x is not None and y is not None:
        raise UserError(text)
    if is_asked():
        ask(any_of(wanted == given, *_is_one(given)), text)


def broadcast_index(
    shape: Sequence[Expr], out: Sequence[Expr], indices: Sequence[Any]
) -> tuple[Any, ...]:
    """The indices into a tensor of `shape` for element `indices` of the result of shape `out`."""
    skip = len(out) - len(shape)
    return tuple(_index(d, o, i) for d, o, i in zip(shape, out[skip:], indices[skip:], strict=True))


def _broadcast_dim(a: Expr, b: Expr, axis: int, shapes: Sequence[Sequence[Expr]]) -> Expr:
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
    known = x is not None or y is not None
    if not known and _are_equal(a, b):
        return a
    if is_asked():
        text = f"dimension {axis} is {a} and {b}, which cannot be broadcast"
        ask(any_of(a == b, *_is_one(a), *_is_one(b)), text)
    if known:
        return a if x is not None else b
    # Equal, or one of them is 1: the greater one, but 0 against 1 is 0.
    greater, not_empty = simplify_size(maximum(a, b)), simplify_size(minimum(minimum(a, b), 1))
    if _are_equal(not_empty, simplify_size(minimum(greater, 1))):
        return greater
    return simplify_size(greater * not_empty)


def _is_one(dim: Expr) -> list[Expr]:
    """The condition that a dimension is 1, unless it is a number; others than 1 must be equal."""
    return [dim == const(1)] if known_dim(dim) is None else []


def _are_equal(a: Expr, b: Expr) -> bool:
    return prove_equal(a, b, naturals(a, b))


def _index(dim: Expr, out: Expr, index: Any) -> Any:
    if known_dim(dim) == 1:
        return const(0)
    if dim is out or known_dim(dim) is not None or _are_equal(dim, out):
        return index
    return select(dim == const(1), const(0), index)
