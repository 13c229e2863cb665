"""Maps between index spaces, composed of +, *, // and %."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.arith.itermap import all_pieces, dimensions, in_nesting_order, pieces_of_mark
from tilewright.arith.itermap_parse import Mark, NoIterMapError, Parser, Piece, Sum
from tilewright.arith.prove import prove_equal
from tilewright.arith.ranges import Ranges
from tilewright.arith.simplify import simplify
from tilewright.arith.symbolic_bounds import symbolic_bounds
from tilewright.ir import Binary, Expr, Var, as_expr, const, is_const, substitute
from tilewright.support.errors import UserError


@dataclass(frozen=True, slots=True, eq=False)
class AffineMap:
    """(inputs) -> (outputs)"""

    inputs: tuple[Var, ...]
    outputs: tuple[Expr, ...]

    @staticmethod
    def of(function: Callable[..., Any], rank: int) -> AffineMap:
        """The map that a Python function of `rank` indices computes.

        lambda i, j: (j, i)  -->  (i, j) -> (j, i)
        """
        inputs = tuple(Var(name) for name in _names(function, rank))
        result = function(*inputs)
        outputs: Sequence[Any] = (result,) if isinstance(result, Expr | int) else tuple(result)
        return AffineMap(inputs, tuple(as_expr(o) for o in outputs))

    @staticmethod
    def identity(rank: int) -> AffineMap:
        inputs = tuple(Var(f"i{n}") for n in range(rank))
        return AffineMap(inputs, inputs)

    @property
    def is_permutation(self) -> bool:
        """Does it only change the order of the indices?"""
        same_rank = len(self.inputs) == len(self.outputs)
        return same_rank and set(self.outputs) == set(self.inputs)

    def apply(self, exprs: Sequence[Expr | int], ranges: Ranges | None = None) -> tuple[Expr, ...]:
        """The outputs where the inputs are `exprs`."""
        if len(exprs) != len(self.inputs):
            raise UserError(
                f"cannot apply {self} to {len(exprs)} indices", reason=f"it has {len(self.inputs)}"
            )
        values = {v: as_expr(e, v.dtype) for v, e in zip(self.inputs, exprs, strict=True)}
        return tuple(simplify(substitute(o, values), ranges) for o in self.outputs)

    def compose(self, inner: AffineMap) -> AffineMap:
        """First `inner`, then this map."""
        return AffineMap(inner.inputs, self.apply(inner.outputs))

    def output_extents(self, extents: Sequence[Expr | int]) -> tuple[Expr, ...]:
        """The extent of each output, from 0, while the inputs are below `extents`."""
        ranges = self._ranges(extents)
        return tuple(self._extent(o, ranges) for o in self.outputs)

    def _extent(self, output: Expr, ranges: Ranges) -> Expr:
        ends = symbolic_bounds(output, ranges, self.inputs)
        if ends is None:
            raise UserError(f"the extent of `{output}` is unknown", reason="it is no affine index")
        return simplify(ends[1] + 1, ranges)

    def inverse(self, extents: Sequence[Expr | int]) -> AffineMap | None:
        """The map back, where this one is a bijection between the boxes of input and output."""
        return self._inverse(extents, onto=True)

    def left_inverse(self, extents: Sequence[Expr | int]) -> AffineMap | None:
        """The map back from the outputs that occur, where each occurs once (padding does not)."""
        return self._inverse(extents, onto=False)

    def _ranges(self, extents: Sequence[Expr | int]) -> Ranges:
        ranges = dimensions(extents)
        for var, extent in zip(self.inputs, extents, strict=True):
            ranges = ranges.with_extent(var, extent)
        return ranges

    def _inverse(self, extents: Sequence[Expr | int], onto: bool) -> AffineMap | None:
        ranges = self._ranges(extents)
        parser = Parser(dict(zip(self.inputs, extents, strict=True)), ranges)
        back = tuple(Var(f"o{n}") for n in range(len(self.outputs)))
        try:
            sums = [parser.parse(o) for o in self.outputs]
            values = _Inversion(parser, sums, ranges, onto).solve(back)
        except NoIterMapError:
            return None
        return AffineMap(back, tuple(simplify(values[v]) for v in self.inputs))

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(str(e) for e in part) for part in (self.inputs, self.outputs))
        return f"({inputs}) -> ({outputs})"


def _names(function: Callable[..., Any], rank: int) -> list[str]:
    """The names of the function's own parameters, where it has that many."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        names = []
    return names if len(names) == rank else [f"i{n}" for n in range(rank)]


class _Inversion:
    """Values of pieces from those of sums, of marks from their pieces, down to the loops."""

    def __init__(self, parser: Parser, sums: list[Sum], ranges: Ranges, onto: bool) -> None:
        self.parser, self.sums, self.ranges, self.onto = parser, sums, ranges, onto
        self.marks = parser.used_marks(sums)
        self.values: dict[Piece, Expr] = {}

    def solve(self, outputs: Sequence[Expr]) -> Mapping[Expr, Expr]:
        for total, value in zip(self.sums, outputs, strict=True):
            self._spread(total, value)
        found: dict[Expr, Expr] = {}
        pieces = all_pieces(self.sums, self.marks)
        for mark in self._outer_first():
            value = self._gather(mark, pieces)
            if mark.inner is None:
                found[mark.source] = value
            else:
                self._spread(mark.inner, value)
        for mark in self.parser.loop_marks():
            if mark.source not in found:
                found[mark.source] = self._unused(mark)
        return found

    def _outer_first(self) -> list[Mark]:
        """Fused marks before the marks of their pieces."""
        order: list[Mark] = []
        left = list(self.marks)
        while left:
            inside = {p.mark for m in left if m.inner is not None for p in m.inner.pieces}
            free = [m for m in left if m not in inside]
            order += free
            left = [m for m in left if m in inside]
        return order

    def _spread(self, total: Sum, value: Expr) -> None:
        """value = base + Σ scale * piece  -->  piece = (value - base) // scale % extent"""
        rest = value if is_const(total.base, 0) else value - total.base
        pieces = in_nesting_order(total, self.ranges)
        for n, piece in enumerate(pieces):
            digit = rest if is_const(piece.scale, 1) else Binary("floordiv", rest, piece.scale)
            is_top = n == len(pieces) - 1
            self.values[piece] = digit if is_top else Binary("floormod", digit, piece.extent)

    def _gather(self, mark: Mark, pieces: Sequence[Piece]) -> Expr:
        """mark = Σ lower * piece"""
        value: Expr = const(0)
        for piece in pieces_of_mark(mark, pieces, self.ranges, exact=self.onto):
            value = value + self.values[piece] * piece.lower
        return value

    def _unused(self, mark: Mark) -> Expr:
        if not prove_equal(mark.extent, const(1), self.ranges):
            raise NoIterMapError(f"`{mark.source}` is not used")
        return const(0)
