"""Merges functions whose loops differ only in sizes into one function that takes the sizes.

    def f(p0: f32[2, 16], …): for i in range(2): …
    def g(p0: f32[8, 16], …): for i in range(8): …
    -->
    def h(size0: i64, p0: f32[2 * size0, 16], …): for i in range(2 * size0): …       for 1 and 4

Functions are compared as text, with normalized names and after scheduling: the decisions of
schedules (tiles, vectors, conditions at edges) must be the same in all, so that each keeps its own
schedule. With a member's sizes substituted, the function of a family is that member.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd
from typing import Final, NamedTuple

from tilewright.ir import Function, parse_function, plain_text

#: Most size parameters of a family.
_MOST_SIZES: Final = 6
#: A number may be a multiple of a size plus or minus at most this much: a border on both sides, or
#: the last index.
_BORDER: Final = 4
#: Attributes that do not affect the code.
_REMARKS: Final = frozenset(["constants", "refused", "unapplied"])
#: Text that must be equal in all functions of a family, and numbers, which may differ.
_PARTS: Final = re.compile(
    r"@attrs.*$|note\b.*$|(?:unrolled|vectorized)\([^)]*\)|align=\d+|\"[^\"\n]*\""
    r"|\d+\.\d*(?:e[+-]?\d+)?|\d+e[+-]?\d+"
    r"|(?<![\w.])(?P<number>\d+)(?![\w.])",
    re.MULTILINE,
)
#: The conditions of a block, the bound of an index in one, and the tile steps in the index.
_CONDITIONS: Final = re.compile(r"^ *where\((.*)\)$", re.MULTILINE)
_BOUND: Final = re.compile(r"(?<= < )\d+$")
_STEP: Final = re.compile(r"(?<= \* )\d+\b")
_AND: Final = " and "
_BLOCK: Final = re.compile(r'(?<=block\(")[^"]*(?=")')
_DIGEST_LENGTH: Final = 12


class Family(NamedTuple):
    """Functions that share code: their indices, the shared parts, and the sizes of each.

    A function may consist of several parts, which all take the sizes first.
    """

    members: tuple[int, ...]
    parts: tuple[Function, ...]
    sizes: tuple[tuple[int, ...], ...]


class _Edge(NamedTuple):
    """A partial tile at an edge, which has code of its own: `rest` rows or columns where whole
    tiles have `step`. `number` is the index of the bound among the function's numbers."""

    number: int
    step: int
    rest: int


class _Text(NamedTuple):
    """A function as text, split at its numbers, and the numbers."""

    pieces: tuple[str, ...]
    numbers: tuple[int, ...]
    edges: tuple[_Edge, ...]


def families(functions: Sequence[Sequence[Function]]) -> list[Family]:
    """The families among functions, which are lists of parts; others are left out."""
    texts = [_text(parts) for parts in functions]
    alike: dict[object, list[int]] = {}
    for k, text in enumerate(texts):
        alike.setdefault((text.pieces, text.edges), []).append(k)
    groups = [members for members in alike.values() if len(members) > 1]
    made = [_family(members, [texts[k] for k in members], functions) for members in groups]
    return [family for family in made if family is not None]


def narrower(family: Family, functions: Sequence[Sequence[Function]]) -> list[Family]:
    """Splits a family by the size with the fewest distinct values, which then becomes constant.

    A fact that cannot be proved for all sizes may hold where some depend on others, such as the
    counts of tiles along the rows and the columns of one image.
    """
    columns = list(zip(*family.sizes, strict=True))
    column = min(columns, key=lambda size: len(set(size)))
    apart = [
        [k for k, size in zip(family.members, column, strict=True) if size == each]
        for each in dict.fromkeys(column)
    ]
    return [
        inner._replace(members=tuple(group[k] for k in inner.members))
        for group in apart
        for inner in families([functions[k] for k in group])
    ]


def _family(
    members: Sequence[int], texts: Sequence[_Text], functions: Sequence[Sequence[Function]]
) -> Family | None:
    columns = list(zip(*(text.numbers for text in texts), strict=True))
    sizes: list[tuple[int, ...]] = []
    ends = {columns[edge.number]: edge for edge in texts[0].edges}
    terms = {column: _end_term(column, edge, sizes) for column, edge in ends.items()}
    # Largest gcd first: numbers with a border are then expressed as a multiple of a size plus some.
    distinct = sorted(dict.fromkeys(columns), key=lambda column: -gcd(*column))
    terms |= {column: _term(column, sizes) for column in distinct if column not in terms}
    if not sizes or len(sizes) > _MOST_SIZES:
        return None
    if any(min(size) < 1 for size in sizes):
        return None
    first, *rest = texts[0].pieces
    whole = first + "".join(terms[c] + piece for c, piece in zip(columns, rest, strict=True))
    params = "".join(f"size{k}: i64, " for k in range(len(sizes)))
    whole = whole.replace("def kernel(", f"def kernel({params}")
    at_most = [max(size) for size in sizes]
    digest = hashlib.sha256(f"{at_most} {whole}".encode()).hexdigest()[:_DIGEST_LENGTH]
    hints = [part.name.rpartition("_")[0] for part in functions[members[0]]]
    parts = [parse_function(text) for text in whole.split(_BETWEEN)]
    named = [
        replace(part, name=f"{hint}_{digest}").with_attrs(at_most=at_most)
        for part, hint in zip(parts, hints, strict=True)
    ]
    return Family(tuple(members), tuple(named), tuple(zip(*sizes, strict=True)))


def _term(column: tuple[int, ...], sizes: list[tuple[int, ...]]) -> str:
    """A number as an expression over the sizes; a new size is added if the present ones fail."""
    if len(set(column)) == 1:
        return str(column[0])
    found = [(_multiple(column, size), k) for k, size in enumerate(sizes)]
    fits = [(abs(m[1]), m, k) for m, k in found if m is not None and abs(m[1]) <= _BORDER]
    if not fits:
        factor = gcd(*column)
        sizes.append(tuple(n // factor for n in column))
        fits = [(0, (factor, 0), len(sizes) - 1)]
    _, (factor, more), k = min(fits)
    multiple = f"size{k}" if factor == 1 else f"{factor} * size{k}"
    return f"({multiple} {more:+})" if more else f"({multiple})"


def _end_term(column: tuple[int, ...], edge: _Edge, sizes: list[tuple[int, ...]]) -> str:
    """The bound where tiles end, as an expression over the number of whole tiles."""
    if len(set(column)) == 1:
        return str(column[0])
    whole = tuple(n // edge.step for n in column)
    return f"({edge.step} * {_term(whole, sizes)} + {edge.rest})"


def _multiple(column: Sequence[int], size: Sequence[int]) -> tuple[int, int] | None:
    """(factor, summand) with column = factor * size + summand in all members, if it exists."""
    other = next(k for k, n in enumerate(size) if n != size[0])
    factor = (column[other] - column[0]) // (size[other] - size[0])
    more = column[0] - factor * size[0]
    fits = factor > 0 and all(factor * s + more == n for s, n in zip(size, column, strict=True))
    return (factor, more) if fits else None


# ---- text ---------------------------------------------------------------------------------------

_BETWEEN: Final = "\n---\n"


def _text(parts: Sequence[Function]) -> _Text:
    whole = _BETWEEN.join(_plain_text(part) for part in parts)
    steps, kept = _conditions(whole)
    pieces, numbers, edges, start = list[str](), list[int](), list[_Edge](), 0
    for found in _numbers(whole):
        at, number = found.start(), int(found[0])
        if any(at in stretch for stretch in kept):
            continue
        if at in steps:
            edges.append(_Edge(len(numbers), steps[at], number % steps[at]))
        pieces.append(whole[start:at])
        numbers.append(number)
        start = found.end()
    return _Text((*pieces, whole[start:]), tuple(numbers), tuple(edges))


def _conditions(whole: str) -> tuple[dict[int, int], list[range]]:
    """The tile steps by the text positions of the bounds, and the ranges of the text whose numbers
    must be equal in a family: all other conditions, except those that compare with dimensions."""
    steps, kept = dict[int, int](), list[range]()
    for line in _CONDITIONS.finditer(whole):
        at = line.start(1)
        for condition in line[1].split(_AND):
            bound = _BOUND.search(condition)
            found = _STEP.findall(condition) if bound else []
            if bound and found:
                steps[at + bound.start()] = max(map(int, found))
            elif bound or " < " not in condition:
                kept.append(range(at, at + len(condition)))
            at += len(condition) + len(_AND)
    return steps, kept


def _numbers(text: str) -> Iterator[re.Match[str]]:
    return (found for found in _PARTS.finditer(text) if found["number"] is not None)


def _plain_text(function: Function) -> str:
    """The text of a function with normalized names, without remarks."""
    attrs = {k: v for k, v in function.attrs.items() if k not in _REMARKS}
    made = plain_text(replace(function, name="kernel", attrs=attrs))
    number = iter(range(len(made)))
    return _BLOCK.sub(lambda _: f"b{next(number)}", made)
