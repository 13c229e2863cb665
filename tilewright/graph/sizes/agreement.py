"""Dimensions that must agree: what type rules require, and what remains to be checked.

A type rule says `require_equal(a, b, "the rows of x and y")`. Numbers that do not agree are refused
at once. Conditions that symbolic dimensions leave open are collected inside `left_open`, to be
checked when the program runs: one statement serves both.
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

#: A condition on symbolic dimensions, and the message where it does not hold.
Check = tuple[Any, str]

_open: Final[ContextVar[list[Check] | None]] = ContextVar("open checks", default=None)


def left_open(rule: Callable[[], object]) -> list[Check]:
    """The conditions on dimensions in `rule` that their symbols leave open."""
    found: list[Check] = []
    token = _open.set(found)
    try:
        rule()
    finally:
        _open.reset(token)
    return found


def is_asked() -> bool:
    """Whether conditions are being collected; if not, they need not be made."""
    return _open.get() is not None


def ask(condition: Expr, message: str) -> None:
    """Require a condition when the program runs, unless it can be proved now."""
    found = _open.get()
    if found is not None and not prove(condition, naturals(condition)):
        found.append((condition, message))


def require_equal(a: Dim, b: Dim, what: str) -> Expr:
    """The dimension that both must be: the number, if one of them is known."""
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
    """Require two shapes to agree in rank and in every dimension."""
    if len(a) != len(b):
        raise UserError(f"{what} differ: {len(a)} and {len(b)} dimensions")
    for n, (x, y) in enumerate(zip(a, b, strict=True)):
        require_equal(x, y, f"dimension {n} of {what}")


def require_at_most(a: Dim, b: Dim, what: str, unless: Sequence[Expr] = ()) -> None:
    """Require the first dimension to be at most the second, unless some condition holds."""
    x, y = known_dim(a), known_dim(b)
    if x is not None and y is not None:
        if x > y:
            raise UserError(f"{what}: {x} is more than {y}")
    elif is_asked():
        ask(any_of(as_dim(a) <= as_dim(b), *unless), f"{what}: {a} is more than {b}")


def require_multiple(a: Dim, of: Dim, what: str) -> None:
    """Require the first dimension to be a multiple of the second."""
    x, y = known_dim(a), known_dim(of)
    if x is not None and y is not None:
        if y < 1 or x % y:
            raise UserError(f"{what}: {x} is not a multiple of {y}")
    elif is_asked():
        a, of = as_dim(a), as_dim(of)
        # Checking must not divide by 0, even where the divisor turns out to be 0.
        ask(a % maximum(of, 1) == const(0), f"{what}: {a} is not a multiple of {of}")
