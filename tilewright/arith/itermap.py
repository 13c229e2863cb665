"""Decomposes block bindings into sums of pieces of loops.

    binding = base + Σ scale · (mark // lower % extent)

A mark is a loop variable, or several loops fused into one number (the sum of their pieces).
Bindings are bijective when the pieces of every mark partition it, and the scales in every binding
nest: then each combination of values occurs exactly once.

    vi = i // 4,  vj = i % 4              i in 0 … 31: two pieces of the mark i
    v  = io*6 + ii  where io*6 + ii < 32  one mark of two loops, cut to 32 by the predicate
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.arith.itermap_parse import Mark, NoIterMapError, Parser, Piece, Sum
from tilewright.arith.prove import prove, prove_equal
from tilewright.arith.ranges import Ranges, knowing_nothing
from tilewright.arith.simplify import simplify
from tilewright.ir import TRUE, Expr, Var, const, free_vars, is_const


@dataclass(slots=True)
class IterMap:
    """The decomposed bindings; `reason` says why they are not bijective, if they are not."""

    sums: tuple[Sum, ...] = ()
    #: How many values each binding takes, from 0 up.
    extents: tuple[Expr, ...] = ()
    bijective: bool = False
    #: Are they so only with the predicate?
    under_predicate: bool = False
    reason: str = ""
    marks: list[Mark] = field(default_factory=list[Mark])


def detect_bindings(
    bindings: Sequence[Expr],
    loop_extents: Mapping[Var, Expr | int],
    predicate: Expr = TRUE,
    domain: Sequence[Expr | int] | None = None,
    ranges: Ranges | None = None,
) -> IterMap:
    """Decompose `bindings` into pieces of the loops, outermost first in `loop_extents`.

    They are bijective when all loops together give every combination of values exactly once; with
    a `domain`, when these are exactly the values below its extents. `ranges` knows about other
    variables; without it, the symbols in extents are assumed to be dimensions.
    """
    known = dimensions(loop_extents.values()) if ranges is None else ranges
    for var, extent in loop_extents.items():
        known = known.with_extent(var, extent)
    parser = Parser(loop_extents, known)
    try:
        parser.read_predicate(predicate)
        sums = tuple(parser.parse(b) for b in bindings)
        extents = tuple(nested_extent(s, known) for s in sums)
        _require_partition(parser, sums, known)
        _require_predicate_used(parser)
        _require_domain(extents, domain, known)
    except NoIterMapError as refused:
        return IterMap(reason=str(refused))
    under = any(m.is_cut for m in parser.marks)
    return IterMap(sums, extents, True, under, "", parser.marks)


def dimensions(extents: Iterable[Expr | int]) -> Ranges:
    """The symbols in extents are dimensions, and never negative."""
    symbols = {v for e in extents if isinstance(e, Expr) for v in free_vars(e)}
    ranges = knowing_nothing()
    for symbol in sorted(symbols, key=lambda v: v.serial):
        ranges = ranges.with_bounds(symbol, 0, None)
    return ranges


def nested_extent(total: Sum, ranges: Ranges, exact_base: bool = True) -> Expr:
    """How many values a sum takes; its pieces must be adjacent, without gap or overlap."""
    if exact_base and not is_const(total.base, 0):
        raise NoIterMapError(f"`{total.source}` does not start at 0")
    size: Expr = const(1)
    for piece in in_nesting_order(total, ranges):
        size = simplify(size * piece.extent, ranges)
    return size


def in_nesting_order(total: Sum, ranges: Ranges) -> list[Piece]:
    """The pieces of a sum by increasing scale, each scale the size of those before."""
    left: list[Piece] = [p for p in total.pieces if not is_const(p.extent, 1)]
    found: list[Piece] = []
    size: Expr = const(1)
    while left:
        piece = next((p for p in left if prove_equal(p.scale, size, ranges)), None)
        if piece is None:
            raise NoIterMapError(f"`{total.source}` has gaps or meets a value twice")
        left = [p for p in left if p is not piece]
        found.append(piece)
        size = simplify(size * piece.extent, ranges)
    return found


def pieces_of_mark(mark: Mark, pieces: Sequence[Piece], ranges: Ranges, exact: bool) -> list[Piece]:
    """The pieces of a mark from its lowest digit up: all of it, without overlap."""
    left: list[Piece] = [p for p in pieces if p.mark is mark and not is_const(p.extent, 1)]
    found: list[Piece] = []
    size: Expr = const(1)
    while left:
        piece = next((p for p in left if prove_equal(p.lower, size, ranges)), None)
        if piece is None:
            raise NoIterMapError(f"parts of `{mark.source}` overlap or are left out")
        left = [p for p in left if p is not piece]
        found.append(piece)
        size = simplify(size * piece.extent, ranges)
    whole = prove_equal(size, mark.extent, ranges)
    if not whole and (exact or not prove(size >= mark.extent, ranges)):
        raise NoIterMapError(
            f"`{mark.source}` runs over {mark.extent} values, of which {size} are distinguished"
        )
    return found


def all_pieces(sums: Sequence[Sum], marks: Sequence[Mark]) -> list[Piece]:
    """The pieces that the bindings use, and those inside fused marks."""
    inner = [p for m in marks if m.inner is not None for p in m.inner.pieces]
    return [*(p for s in sums for p in s.pieces), *inner]


def _require_partition(parser: Parser, sums: Sequence[Sum], ranges: Ranges) -> None:
    used = parser.used_marks(sums)
    pieces = all_pieces(sums, used)
    for mark in parser.loop_marks():
        if mark not in used and not is_const(mark.extent, 1):
            raise NoIterMapError(
                f"the loop `{mark.source}` is not used, so that values are met again"
            )
    for mark in used:
        pieces_of_mark(mark, pieces, ranges, exact=True)


def _require_predicate_used(parser: Parser) -> None:
    for condition in parser.unused_conditions():
        raise NoIterMapError(
            f"the predicate `{condition}` cuts off a part that is no whole binding"
        )


def _require_domain(
    extents: Sequence[Expr], domain: Sequence[Expr | int] | None, ranges: Ranges
) -> None:
    if domain is None:
        return
    for extent, wanted in zip(extents, domain, strict=True):
        wanted = const(wanted) if isinstance(wanted, int) else wanted
        if not prove_equal(extent, wanted, ranges):
            raise NoIterMapError(f"a binding takes {extent} values, its iterator {wanted}")
