"""Dimensions that must agree: what type rules say about them, and what is left to ask.

A type rule says `require_equal(a, b, "the rows of x and y")`. Numbers that do not agree are refused
there and then. What symbolic dimensions leave open is kept while somebody listens (`left_open`), so
that it can be asked when the program runs: one statement serves both times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Final

from tilewright.arith import prove
from tilewright.graph.ir.types import Dim, as_dim, known_dim
from tilewright.graph.sizes.naturals import naturals
from tilewright.ir import Expr, any_of, const, maximum
from tilewright.support.errors import UserError

#: A condition on symbolic dimensions, and what is wrong where it does not hold.
Check = tuple[Any, str]

_open: Final[ContextVar[list[Check] | None]] = ContextVar("open checks", default=None)


def left_open(rule: Callable[[], object]) -> list[Check]:
    """What `rule` says about dimensions that their symbols do not decide."""
    found: list[Check] = []
    token = _open.set(found)
    try:
        rule()
    finally:
        _open.reset(token)
    return found


def is_asked() -> bool:
    """Whether somebody listens; if not, conditions need not be made."""
    return _open.get() is not None


def ask(condition: Expr, message: str) -> None:
    """Say what must hold when the program runs, unless it can be proved now."""
    found = _open.get()
    if found is not None and not prove(condition, naturals(condition)):
        found.append((condition, message))


def require_equal(a: Dim, b: Dim, what: str) -> Expr:
    """The dimension that both must be; a number says more than a symbol."""
    a, b = as_dim(a), as_dim(b)
    if a is b:
        return a
    x, y = known_dim(a), known_dim(b)
    if x is not None and y is not None:
        raise UserError(f"{what} differ: {x} and {y}")
    if is_asked():
        ask(a == b, f"{what} differ: {a} and {b}")
    return a if y is None else b


def require_same_shape(a: Sequence[Dim], b: Sequence[Dim], what: str) -> None:
    """Let two shapes agree in rank and in every dimension."""
    if len(a) != len(b):
        raise UserError(f"{what} differ: {len(a)} and {len(b)} dimensions")
    for n, (x, y) in enumerate(zip(a, b, strict=True)):
        require_equal(x, y, f"dimension {n} of {what}")


def require_at_most(a: Dim, b: Dim, what: str, unless: Sequence[Expr] = ()) -> None:
    """Let the first dimension be no greater than the second, unless some condition holds."""
    x, y = known_dim(a), known_dim(b)
    if x is not None and y is not None:
        if x > y:
            raise UserError(f"{what}: {x} is more than {y}")
    elif is_asked():
        ask(any_of(as_dim(a) <= as_dim(b), *unless), f"{what}: {a} is more than {b}")


def require_multiple(a: Dim, of: Dim, what: str) -> None:
    """Let the first dimension be some times the second."""
    x, y = known_dim(a), known_dim(of)
    if x is not None and y is not None:
        if y < 1 or x % y:
            raise UserError(f"{what}: {x} is not a multiple of {y}")
    elif is_asked():
        a, of = as_dim(a), as_dim(of)
        # What is divided by must not be 0, even where that is not so.
        ask(a % maximum(of, 1) == const(0), f"{what}: {a} is not a multiple of {of}")
