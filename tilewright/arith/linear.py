"""Integer expressions as sums: `constant + Σ coefficient · atom`.

An atom is anything but a sum: a variable, a load, a quotient, a minimum …, or a product of such in
canonical order. Coefficients are exact integers. Sums wrap around with their type, which keeps them
congruent; they equal the true value only where it fits the type (`is_index`, or by bounds).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tilewright.arith.interval import wrap, wrap_signed
from tilewright.arith.order import order_key
from tilewright.ir import Binary, Broadcast, Const, DType, Expr, Unary, const


class Linear:
    """A sum; never changed after it is made."""

    __slots__ = ("constant", "dtype", "terms", "written")

    #: The expression, once it was needed.
    written: Expr | None

    def __init__(self, terms: dict[Expr, int], constant: int, dtype: DType) -> None:
        self.terms, self.constant, self.dtype, self.written = terms, constant, dtype, None

    @staticmethod
    def of_atom(atom: Expr) -> Linear:
        return Linear({atom: 1}, 0, atom.dtype)

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def plus(self, other: Linear, scale: int = 1) -> Linear:
        """self + scale * other"""
        if scale == 0:
            return self
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            accumulate(terms, atom, scale * coefficient)
        return Linear(terms, self.constant + scale * other.constant, self.dtype)

    def minus(self, other: Linear) -> Linear:
        return self.plus(other, -1)

    def shifted(self, by: int) -> Linear:
        return Linear(self.terms, self.constant + by, self.dtype)

    def scaled(self, factor: int) -> Linear:
        if factor == 1:
            return self
        terms = {a: c * factor for a, c in self.terms.items()} if factor else {}
        return Linear(terms, self.constant * factor, self.dtype)

    def divided(self, divisor: int) -> Linear:
        """All coefficients and the constant divided, rounded down."""
        terms = {a: c // divisor for a, c in self.terms.items()}
        return Linear(terms, self.constant // divisor, self.dtype)

    def times(self, other: Linear) -> Linear:
        """The product, multiplied out."""
        total: dict[Expr, int] = {}
        for a, ca in self.terms.items():
            for b, cb in other.terms.items():
                accumulate(total, product([*factors(a), *factors(b)]), ca * cb)
        result = Linear(total, self.constant * other.constant, self.dtype)
        result = result.plus(Linear(self.terms, 0, self.dtype), other.constant)
        return result.plus(Linear(other.terms, 0, self.dtype), self.constant)

    def without(self, *atoms: Expr) -> Linear:
        # A set compares by identity; `in` on a tuple would use ==, which builds an expression.
        left = set(atoms)
        terms = {a: c for a, c in self.terms.items() if a not in left}
        return Linear(terms, self.constant, self.dtype)

    def split(self, keep: Callable[[Expr, int], bool]) -> tuple[Linear, Linear]:
        """The terms for which `keep` holds, and the others together with the constant."""
        kept = {a: c for a, c in self.terms.items() if keep(a, c)}
        rest = {a: c for a, c in self.terms.items() if a not in kept}
        return Linear(kept, 0, self.dtype), Linear(rest, self.constant, self.dtype)

    def wrapped(self) -> Linear:
        """The congruent sum with the smallest coefficients of the type."""
        dtype = self.dtype
        limit = 1 << (dtype.bits - 1)
        fits = all(c and -limit <= c < limit for c in self.terms.values())
        if fits and -limit <= self.constant < limit:
            return self
        terms = {a: w for a, c in self.terms.items() if (w := wrap_signed(c, dtype))}
        return Linear(terms, wrap_signed(self.constant, dtype), dtype)

    def ordered(self) -> list[tuple[Expr, int]]:
        """The terms as they are written: positive first, then by degree, size and atom."""
        if len(self.terms) < 2:
            return list(self.terms.items())
        return sorted(self.terms.items(), key=_written_order)

    def expr(self) -> Expr:
        """The sum as an expression."""
        if self.written is None:
            self.written = self._expr()
        return self.written

    def _expr(self) -> Expr:
        if self.is_constant:
            return constant_of(self.constant, self.dtype)
        total: Expr | None = None
        constant = self.constant
        for atom, coefficient in self.ordered():
            if total is None and coefficient < 0 and constant:
                total, constant = constant_of(constant, self.dtype), 0
            total = _append(total, atom, coefficient)
        assert total is not None
        return _append_constant(total, constant)

    def __repr__(self) -> str:
        parts = [f"{c}*{a}" for a, c in self.ordered()]
        return " + ".join([*parts, str(self.constant)])


def number(expr: Expr) -> int | None:
    """The value of an integer constant, or of one in every lane."""
    if type(expr) is Broadcast:
        expr = expr.a
    return int(expr.value) if type(expr) is Const and expr.dtype.is_integer else None


def constant_of(value: int, dtype: DType) -> Expr:
    """A constant, wrapped around to its type; the same in every lane of a vector."""
    scalar = const(wrap(value, dtype), dtype.scalar)
    return Broadcast(scalar, dtype.lanes) if dtype.is_vector else scalar


# ---- products -----------------------------------------------------------------------------------


def factors(atom: Expr) -> list[Expr]:
    """The factors of a product of atoms."""
    found: list[Expr] = []
    while isinstance(atom, Binary) and atom.op == "mul":
        found.append(atom.b)
        atom = atom.a
    found.append(atom)
    return found


def product(parts: Iterable[Expr]) -> Expr:
    """Atoms multiplied, in canonical order."""
    first, *rest = sorted(parts, key=order_key)
    for part in rest:
        first = Binary("mul", first, part)
    return first


def without_factors(atom: Expr, wanted: list[Expr]) -> list[Expr] | None:
    """A product without some of its factors; None where it lacks one."""
    left = factors(atom)
    for factor in wanted:
        position = next((i for i, f in enumerate(left) if f is factor), None)
        if position is None:
            return None
        del left[position]
    return left


def degree(atom: Expr) -> int:
    count = 1
    while isinstance(atom, Binary) and atom.op == "mul":
        count, atom = count + 1, atom.a
    return count


def accumulate(terms: dict[Expr, int], atom: Expr, coefficient: int) -> None:
    """terms += coefficient * atom"""
    total = terms.get(atom, 0) + coefficient
    if total:
        terms[atom] = total
    else:
        terms.pop(atom, None)


# ---- writing sums -------------------------------------------------------------------------------


def _written_order(term: tuple[Expr, int]) -> tuple[Any, ...]:
    atom, coefficient = term
    return (coefficient < 0, -degree(atom), -abs(coefficient), order_key(atom))


def _append(total: Expr | None, atom: Expr, coefficient: int) -> Expr:
    size = abs(coefficient)
    term = atom if size == 1 else Binary("mul", atom, constant_of(size, atom.dtype))
    if total is None:
        return term if coefficient > 0 else Unary("neg", term)
    return Binary("add" if coefficient > 0 else "sub", total, term)


def _append_constant(total: Expr, constant: int) -> Expr:
    if constant == 0:
        return total
    amount = constant_of(abs(constant), total.dtype)
    return Binary("add" if constant > 0 else "sub", total, amount)
