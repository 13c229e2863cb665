"""Converts integer expressions to sums."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

from tilewright.arith.linear import Linear, accumulate, number
from tilewright.arith.order import order_key
from tilewright.ir import Binary, Expr, Unary

OfLeaf = Callable[[Expr], Linear]
_Parts = tuple[tuple[Expr, int], ...]

#: Products of sums are multiplied out as long as they have no more terms than this.
_EXPANSION_LIMIT = 32
#: Sums converted lately; the table is replaced when it is full.
_linears: list[dict[Expr, Linear]] = [{}]
_REMEMBERED = 10_000


def linear(root: Expr) -> Linear:
    """`root` as a sum over atoms, its products multiplied out."""
    known = _linears[0]
    found = known.get(root)
    if found is not None:
        return found
    if len(known) > _REMEMBERED:
        # Replaced, not cleared: another thread may be using it.
        _linears[0] = known = {}
    pending = [root]
    while pending:
        node = pending[-1]
        region = _region(node)
        products = [p for p, parts in region if not parts and is_product(p)]
        missing = [o for p in products for o in p.operands if o not in known]
        if missing:
            pending.extend(missing)
            continue
        known[node] = _collect(node, region, lambda leaf: _of_leaf(leaf, known))
        pending.pop()
    return known[root]


def remember(expr: Expr, total: Linear) -> None:
    """Remember that `expr` was written from `total`, so that it need not be converted again."""
    _linears[0][expr] = total


def written_from(expr: Expr) -> Linear | None:
    """The sum that `expr` was written from, if that is still remembered."""
    total = _linears[0].get(expr)
    return total if total is not None and total.written is expr else None


def collect(root: Expr, of_leaf: OfLeaf) -> Linear:
    """`root` as a sum, where `of_leaf` gives the sums for its leaves."""
    return _collect(root, _region(root), of_leaf)


def leaves_of(expr: Expr) -> list[Expr]:
    """The terms of a sum: its atoms and products, each once."""
    return [n for n, parts in _region(expr) if not parts and number(n) is None]


def multiplied(a: Linear, b: Linear) -> Linear:
    """The product of two sums; one atom where multiplying out would take too many terms."""
    if a.is_constant or b.is_constant:
        return a.scaled(b.constant) if b.is_constant else b.scaled(a.constant)
    if (len(a.terms) + 1) * (len(b.terms) + 1) <= _EXPANSION_LIMIT:
        return a.times(b)
    x, y = sorted((a.wrapped().expr(), b.wrapped().expr()), key=order_key)
    return Linear.of_atom(Binary("mul", x, y))


def is_sum(expr: Expr) -> bool:
    """Is it a sum, or a multiple?"""
    return expr.dtype.is_integer and bool(_parts(expr))


def is_product(expr: Expr) -> bool:
    """Is it a product of two things that are not constant?"""
    return (
        isinstance(expr, Binary) and expr.op == "mul" and expr.dtype.is_integer and not _parts(expr)
    )


# ---- the nodes of a sum --------------------------------------------------------------------------


def _mul(e: Binary) -> _Parts:
    a, b = number(e.a), number(e.b)
    if b is not None:
        return ((e.a, b),)
    return ((e.b, a),) if a is not None else ()


_PARTS: Mapping[str, Callable[[Any], _Parts]] = {
    "add": lambda e: ((e.a, 1), (e.b, 1)),
    "sub": lambda e: ((e.a, 1), (e.b, -1)),
    "mul": _mul,
    "neg": lambda e: ((e.a, -1),),
}


#: Comparing exact types is faster than `isinstance`, and this is done for every node.
_WITH_PARTS = frozenset([Binary, Unary])


def _parts(node: Expr) -> _Parts:
    """The terms that a node adds up, with factors; nothing for an atom."""
    if type(node) not in _WITH_PARTS:
        return ()
    rule = _PARTS.get(cast(Binary, node).op)
    return rule(node) if rule is not None else ()


@lru_cache(maxsize=512)  # sums whose leaves are requested are usually added up next
def _region(root: Expr) -> list[tuple[Expr, _Parts]]:
    """The nodes of a sum with their parts, down to its leaves, operands before their users."""
    order: list[tuple[Expr, _Parts]] = []
    done: set[Expr] = set()
    pending: list[tuple[Expr, _Parts | None]] = [(root, None)]
    while pending:
        node, parts = pending.pop()
        if parts is not None:
            order.append((node, parts))
            continue
        if node in done:
            continue
        done.add(node)
        parts = _parts(node) if node.dtype.is_integer else ()
        if not parts:
            order.append((node, parts))
            continue
        pending.append((node, parts))
        pending.extend([(part, None) for part, _ in parts])
    return order


def _collect(root: Expr, region: list[tuple[Expr, _Parts]], of_leaf: OfLeaf) -> Linear:
    """Add up a sum; each node is visited once, however often it is used."""
    weights: dict[Expr, int] = {root: 1}
    terms: dict[Expr, int] = {}
    constant = 0
    for node, parts in reversed(region):
        weight = weights.get(node, 0)
        if not weight:
            continue
        for part, factor in parts:
            weights[part] = weights.get(part, 0) + weight * factor
        if parts:
            continue
        value = number(node)
        if value is not None:
            constant += weight * value
            continue
        leaf = of_leaf(node)
        constant += weight * leaf.constant
        for atom, coefficient in leaf.terms.items():
            accumulate(terms, atom, weight * coefficient)
    return Linear(terms, constant, root.dtype)


def _of_leaf(leaf: Expr, known: Mapping[Expr, Linear]) -> Linear:
    if isinstance(leaf, Binary) and is_product(leaf):
        return multiplied(known[leaf.a], known[leaf.b])
    return Linear.of_atom(leaf)
