"""Simplification: bottom-up, memoised per context, each distinct node once.

Integers pass through a linear normal form (`arith.linear`), everything through the rule tables
(`arith.rules`). Results of rules are simplified again, so that the final one is a fixed point:
simplifying it once more changes nothing.
"""

from __future__ import annotations

from tilewright.arith.linear import Linear, factors
from tilewright.arith.linearize import (
    collect,
    is_product,
    is_sum,
    leaves_of,
    linear,
    multiplied,
    remember,
    written_from,
)
from tilewright.arith.ranges import Ranges, knowing_nothing
from tilewright.arith.rules import rewrite
from tilewright.arith.rules.sums import tidy
from tilewright.arith.rules.vectors import vector_sum
from tilewright.ir import Call, Const, Expr, Load, Unary, Var, const

#: Longer chains of rewrites are cut off, in case rules undo each other.
_LONGEST_CHAIN = 40


def simplify(expr: Expr, ranges: Ranges | None = None) -> Expr:
    """An expression of the same value, in canonical form and no costlier."""
    ranges = knowing_nothing() if ranges is None else ranges
    memo = ranges.simplified
    found = expr if isinstance(expr, Const) else memo.get(expr)
    if found is not None:
        return found
    outer = ranges.asked_about(expr.variables)
    if outer is not ranges:
        found = memo[expr] = simplify(expr, outer)
        return memo.setdefault(found, found)
    # Nodes, their replacements, and the number of rewrites that led to them.
    pending: list[tuple[Expr, Expr | None, int]] = [(expr, None, 0)]
    while pending:
        node, replacement, chain = pending[-1]
        if replacement is not None:
            memo[node] = memo[replacement]
        elif node not in memo:
            missing = _missing_parts(node, memo, ranges)
            if missing:
                pending += missing
                continue
            step = _step(node, memo, ranges)
            done = step if step is node or chain >= _LONGEST_CHAIN else memo.get(step)
            if done is None:
                pending[-1] = (node, step, chain)
                pending.append((step, None, chain + 1))
                continue
            memo[node] = done
            memo.setdefault(done, done)
        pending.pop()
    return memo[expr]


def _missing_parts(
    node: Expr, memo: dict[Expr, Expr], ranges: Ranges
) -> list[tuple[Expr, Expr | None, int]]:
    """The parts to simplify before `node`; parts without parts of their own are done here."""
    missing: list[tuple[Expr, Expr | None, int]] = []
    for part in leaves_of(node) if is_sum(node) else node.operands:
        if part in memo:
            continue
        if isinstance(part, Const):
            memo[part] = part
        elif isinstance(part, Var):
            value = memo[part] = _single_value(part, ranges)
            memo.setdefault(value, value)
        elif (outer := ranges.asked_about(part.variables)) is not ranges:
            value = memo[part] = simplify(part, outer)
            memo.setdefault(value, value)
        else:
            missing.append((part, None, 0))
    return missing


def _step(node: Expr, memo: dict[Expr, Expr], ranges: Ranges) -> Expr:
    """One step of simplification for a node whose parts are simplified."""
    if isinstance(node, Var):
        return _single_value(node, ranges)
    if is_sum(node):
        if _is_written_out(node, memo, ranges):
            return node
        return _written(collect(node, lambda leaf: linear(memo[leaf])), memo, ranges)
    operands = node.operands
    mapped = tuple([memo[o] for o in operands])
    if isinstance(node, Call) and _takes_addresses(node):
        mapped = tuple(map(_as_place, operands, mapped))
    for before, after in zip(operands, mapped, strict=True):
        if before is not after:
            node = node.with_operands(mapped)
            break
    result = rewrite(node, ranges)
    if result is None and is_product(node):
        return _written(multiplied(*(linear(o) for o in mapped)), memo, ranges)
    return node if result is None else result


def _is_written_out(node: Expr, memo: dict[Expr, Expr], ranges: Ranges) -> bool:
    """Whether the simplifier wrote this sum, from parts that are still the same."""
    total = written_from(node)
    if total is None or total.dtype.is_vector:
        return False
    same = all(memo.get(f) is f for atom in total.terms for f in factors(atom))
    return same and tidy(total, ranges) is total


def _takes_addresses(node: Call) -> bool:
    """Whether its operands are addresses in memory, not the values there."""
    return node.name in ("address_of", "prefetch") or "." in node.name


def _as_place(before: Expr, after: Expr) -> Expr:
    """Loads whose address is taken stay loads."""
    return before if isinstance(before, Load) and not isinstance(after, Load) else after


def _written(total: Linear, memo: dict[Expr, Expr], ranges: Ranges) -> Expr:
    """A sum of simplified leaves as an expression."""
    total = total.wrapped()
    if total.dtype.is_vector:
        return vector_sum(total, ranges)
    total = tidy(total, ranges)
    result = total.expr()
    if all(memo.get(f) is f for atom in total.terms for f in factors(atom)):
        # It is simplified already, and need not be visited again.
        memo.setdefault(result, result)
        remember(result, total)
    return result


def _single_value(var: Var, ranges: Ranges) -> Expr:
    if var.dtype.is_bool:
        return _known_truth(var, ranges)
    limits = ranges.limits.get(var)
    if limits is None or not limits.is_point or limits.low is None:
        return var
    return const(limits.low, var.dtype)


def _known_truth(var: Var, ranges: Ranges) -> Expr:
    if not ranges.conditions or var.dtype.is_vector:
        return var
    if var in ranges.conditions:
        return const(True)
    return const(False) if Unary("not", var) in ranges.conditions else var
