"""Parses bindings as sums of pieces of loops (see `arith.itermap`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arith.linear import Linear, factors, product
from tilewright.arith.linearize import linear
from tilewright.arith.prove import prove, prove_equal
from tilewright.arith.ranges import Ranges, conjuncts
from tilewright.arith.simplify import simplify
from tilewright.ir import Binary, Expr, Var, as_expr, const, free_vars, is_const

_ONE = const(1)
#: How deep quotients and remainders may nest.
_DEPTH = 16


class NoIterMapError(Exception):
    """The bindings are not of the form; the message says why."""


@dataclass(slots=True, eq=False)
class Mark:
    """A number in 0 … extent - 1: a loop variable, or fused pieces (`inner`)."""

    source: Expr
    extent: Expr
    inner: Sum | None = None
    #: Restricted by the predicate to fewer values than its loops give.
    is_cut: bool = False


@dataclass(slots=True, eq=False)
class Piece:
    """scale * (mark // lower % extent)"""

    mark: Mark
    lower: Expr
    extent: Expr
    scale: Expr


@dataclass(slots=True, eq=False)
class Sum:
    """base + pieces; `source` is the expression that was parsed."""

    source: Expr
    pieces: tuple[Piece, ...]
    base: Expr


@dataclass(slots=True, eq=False)
class _Cut:
    """A condition `source < limit` of the predicate."""

    condition: Expr
    limit: Expr
    used: bool = False


class Parser:
    """Parses bindings over some loops."""

    def __init__(self, loop_extents: Mapping[Var, Expr | int], ranges: Ranges) -> None:
        self.ranges = ranges
        self.marks: list[Mark] = []
        self._by_source: dict[Expr, Mark] = {}
        self._cuts: dict[Expr, _Cut] = {}
        self._extents = {v: simplify(as_expr(e), ranges) for v, e in loop_extents.items()}

    def read_predicate(self, predicate: Expr) -> None:
        """Keep the conditions of a predicate, of the form `sum of loops < limit`."""
        for condition in conjuncts(simplify(predicate, self.ranges)):
            if is_const(condition, True) or prove(condition, self.ranges):
                continue
            cut = self._cut(condition)
            if cut is None or cut[0] in self._cuts:
                raise NoIterMapError(f"the predicate `{condition}` is no upper bound of a binding")
            self._cuts[cut[0]] = _Cut(condition, cut[1])

    def _cut(self, condition: Expr) -> tuple[Expr, Expr] | None:
        """Source and limit of `source < limit`."""
        if not isinstance(condition, Binary) or condition.op not in ("lt", "le"):
            return None
        gap = linear(condition.b).minus(linear(condition.a))
        gap = gap if condition.op == "lt" else gap.shifted(1)
        running, limit = gap.split(lambda a, _: not free_vars(a).isdisjoint(self._extents))
        source = simplify(running.scaled(-1).expr(), self.ranges)
        return source, simplify(limit.expr(), self.ranges)

    def unused_conditions(self) -> list[Expr]:
        return [c.condition for c in self._cuts.values() if not c.used]

    def loop_marks(self) -> list[Mark]:
        return [self._loop(v) for v in self._extents]

    def used_marks(self, sums: Sequence[Sum]) -> list[Mark]:
        """The marks that the sums reach, outer ones before those inside them."""
        found: dict[Mark, None] = {}
        pending = list(sums)
        while pending:
            for piece in pending.pop().pieces:
                if piece.mark not in found:
                    found[piece.mark] = None
                    pending += [piece.mark.inner] if piece.mark.inner is not None else []
        return list(found)

    # ---- reading ----

    def parse(self, expr: Expr) -> Sum:
        """`expr` as a sum of pieces; one whole mark where the predicate bounds the sum."""
        total = self._sum(simplify(expr, self.ranges), _DEPTH)
        if self._cut_of(total) is None:
            return total
        mark = self._fused(total)
        return Sum(total.source, (Piece(mark, _ONE, mark.extent, _ONE),), const(0))

    def _sum(self, expr: Expr, depth: int) -> Sum:
        if depth == 0:
            raise NoIterMapError(f"`{expr}` nests too deep")
        total, pieces = self._without_cuts(linear(expr), depth)
        base: Expr = const(total.constant)
        for atom, k in total.ordered():
            if free_vars(atom).isdisjoint(self._extents):
                base = base + atom * k
            else:
                pieces += self._term(atom, k, depth)
        return Sum(expr, tuple(pieces), simplify(base, self.ranges))

    def _without_cuts(self, total: Linear, depth: int) -> tuple[Linear, list[Piece]]:
        """A sum of which the predicate bounds a part: the rest, and that part as one piece.

        n * 32 + i * 11 + j  where i * 11 + j < 32
        """
        pieces: list[Piece] = []
        for source in self._cuts:
            part = linear(source)
            if 1 < len(part.terms) < len(total.terms) and part.terms.items() <= total.terms.items():
                mark = self._fused(self._sum(source, depth - 1))
                pieces.append(Piece(mark, _ONE, mark.extent, _ONE))
                total = total.minus(part)
        return total, pieces

    def _term(self, atom: Expr, k: int, depth: int) -> list[Piece]:
        """k * atom: one factor of it depends on loops, the others are its scale."""
        parts = factors(atom)
        running = [f for f in parts if not free_vars(f).isdisjoint(self._extents)]
        fixed = [f for f in parts if free_vars(f).isdisjoint(self._extents)]
        if len(running) != 1 or k < 0:
            raise NoIterMapError(f"`{atom}` is no multiple of a loop")
        scale = const(k) if not fixed else simplify(product(fixed) * k, self.ranges)
        return [self._scaled(p, scale) for p in self._atom(running[0], depth)]

    def _scaled(self, piece: Piece, by: Expr) -> Piece:
        scale = simplify(piece.scale * by, self.ranges)
        return Piece(piece.mark, piece.lower, piece.extent, scale)

    def _atom(self, atom: Expr, depth: int) -> list[Piece]:
        if isinstance(atom, Var):
            mark = self._loop(atom)
            return [Piece(mark, _ONE, mark.extent, _ONE)]
        rule = _ATOMS.get(atom.op) if isinstance(atom, Binary) else None
        if rule is None or not isinstance(atom, Binary):
            raise NoIterMapError(f"`{atom}` is no sum, quotient or remainder of loops")
        if not free_vars(atom.b).isdisjoint(self._extents):
            raise NoIterMapError(f"`{atom}` divides by a loop")
        return rule(self, self._single(self._sum(atom.a, depth - 1)), atom.b)

    # ---- marks ----

    def _loop(self, var: Var) -> Mark:
        mark = self._by_source.get(var)
        if mark is None:
            mark = self._add(Mark(var, self._extents[var]))
        return mark

    def _add(self, mark: Mark) -> Mark:
        cut = self._cuts.get(mark.source)
        if cut is not None:
            cut.used = True
            if not prove(cut.limit <= mark.extent, self.ranges):
                raise NoIterMapError(f"`{cut.condition}` may exceed what its loops make")
            mark.extent, mark.is_cut = cut.limit, True
        self._by_source[mark.source] = mark
        self.marks.append(mark)
        return mark

    def _cut_of(self, total: Sum) -> _Cut | None:
        is_loop = isinstance(total.source, Var)
        return None if is_loop or not is_const(total.base, 0) else self._cuts.get(total.source)

    def _single(self, total: Sum) -> Piece:
        """A sum as one piece: its only one, or a mark of all of them fused."""
        if not is_const(total.base, 0):
            raise NoIterMapError(f"`{total.source}` does not start at 0")
        if len(total.pieces) == 1 and self._cut_of(total) is None:
            return total.pieces[0]
        mark = self._fused(total)
        return Piece(mark, _ONE, mark.extent, _ONE)

    def _fused(self, total: Sum) -> Mark:
        mark = self._by_source.get(total.source)
        if mark is None:
            from tilewright.arith.itermap import nested_extent  # checks what is read here

            mark = self._add(Mark(total.source, nested_extent(total, self.ranges), total))
        return mark

    def exact_quotient(self, a: Expr, b: Expr) -> Expr | None:
        """a / b where b divides a."""
        quotient = simplify(Binary("floordiv", a, b), self.ranges)
        return quotient if prove_equal(quotient * b, a, self.ranges) else None


def _floordiv(parser: Parser, piece: Piece, by: Expr) -> list[Piece]:
    """(s*p) // (s*c): the digits of p from c on"""
    whole = parser.exact_quotient(piece.scale, by)
    if whole is not None:
        return [Piece(piece.mark, piece.lower, piece.extent, whole)]
    c = parser.exact_quotient(by, piece.scale)
    if c is None:
        raise NoIterMapError(f"{by} does not divide the steps of `{piece.mark.source}`")
    extent = simplify((piece.extent + c - 1) // c, parser.ranges)
    lower = simplify(piece.lower * c, parser.ranges)
    return [Piece(piece.mark, lower, extent, _ONE)]


def _floormod(parser: Parser, piece: Piece, by: Expr) -> list[Piece]:
    """(s*p) % (s*c): the digits of p below c"""
    if parser.exact_quotient(piece.scale, by) is not None:
        return []
    c = parser.exact_quotient(by, piece.scale)
    if c is None:
        raise NoIterMapError(f"{by} does not divide the steps of `{piece.mark.source}`")
    return [Piece(piece.mark, piece.lower, c, piece.scale)]


_ATOMS: dict[str, Callable[[Any, Piece, Expr], list[Piece]]] = {
    "floordiv": _floordiv,
    "floormod": _floormod,
}
