"""Simplification: bottom-up, memoised per context, each distinct node once.

Integers pass through a linear normal form (`arith.linear`), everything through the rule tables
(`arith.rules`). What a rule returns is simplified again, so that the result is a fixed point:
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
)
from tilewright.arith.ranges import Ranges, knowing_nothing
from tilewright.arith.rules import rewrite
from tilewright.arith.rules.sums import tidy
from tilewright.arith.rules.vectors import vector_sum
from tilewright.ir import Call, Const, Expr, Load, Unary, Var, const

#: A chain of rewrites that is longer than this is cut: no rules should chase each other.
_LONGEST_CHAIN = 40


def simplify(expr: Expr, ranges: Ranges | None = None) -> Expr:
    """An expression of the same value, in canonical form and no costlier."""
    ranges = knowing_nothing() if ranges is None else ranges
    memo = ranges.memo("simplify")
    found = expr if isinstance(expr, Const) else memo.get(expr)
    if found is not None:
        return found
    pending = [_Task(expr, 0)]
    while pending:
        task = pending[-1]
        if task.node in memo and task.replacement is None:
            pending.pop()
            continue
        missing = [p for p in task.parts() if p not in memo and not _is_leaf(p, memo, ranges)]
        if missing:
            pending.extend(_Task(p, 0) for p in missing)
            continue
        _advance(task, pending, memo, ranges)
    return memo[expr]


def _is_leaf(part: Expr, memo: dict[Expr, Expr], ranges: Ranges) -> bool:
    """Whether a part has none of its own; then it is done with at once."""
    if isinstance(part, Const):
        memo[part] = part
    elif isinstance(part, Var):
        value = memo[part] = _single_value(part, ranges)
        memo.setdefault(value, value)
    else:
        return False
    return True


class _Task:
    """A node being simplified: first its parts, then itself, then what it turned into."""

    __slots__ = ("chain", "node", "replacement", "waiting")

    def __init__(self, node: Expr, chain: int) -> None:
        self.node, self.chain = node, chain
        self.replacement: Expr | None = None
        self.waiting: tuple[Expr, ...] | list[Expr] | None = None

    def parts(self) -> tuple[Expr, ...] | list[Expr]:
        """What must be simplified before the next step."""
        if self.waiting is None:
            self.waiting = leaves_of(self.node) if is_sum(self.node) else self.node.operands
        return self.waiting


def _advance(task: _Task, pending: list[_Task], memo: dict[Expr, Expr], ranges: Ranges) -> None:
    if task.replacement is not None:
        memo[task.node] = memo[task.replacement]
        pending.pop()
        return
    step = _step(task.node, memo, ranges)
    if step is task.node or task.chain >= _LONGEST_CHAIN:
        memo[task.node] = step
        memo.setdefault(step, step)
        pending.pop()
        return
    task.replacement, task.waiting = step, (step,)
    if step not in memo:
        pending.append(_Task(step, task.chain + 1))


def _step(node: Expr, memo: dict[Expr, Expr], ranges: Ranges) -> Expr:
    """One step for a node whose parts are simplified."""
    if isinstance(node, Var):
        return _single_value(node, ranges)
    if is_sum(node):
        return _written(collect(node, lambda leaf: linear(memo[leaf])), memo, ranges)
    operands = node.operands
    mapped = tuple(memo[o] for o in operands)
    if isinstance(node, Call) and _takes_places(node):
        mapped = tuple(map(_as_place, operands, mapped))
    if any(a is not b for a, b in zip(operands, mapped, strict=True)):
        node = node.with_operands(mapped)
    result = rewrite(node, ranges)
    if result is None and is_product(node):
        return _written(multiplied(*(linear(o) for o in mapped)), memo, ranges)
    return node if result is None else result


def _takes_places(node: Call) -> bool:
    """Does it mean the element that it is given, not its value?"""
    return node.name in ("address_of", "prefetch") or "." in node.name


def _as_place(before: Expr, after: Expr) -> Expr:
    """A load stays one where its place is meant."""
    return before if isinstance(before, Load) and not isinstance(after, Load) else after


def _written(total: Linear, memo: dict[Expr, Expr], ranges: Ranges) -> Expr:
    """A sum of simplified leaves as an expression."""
    total = total.wrapped()
    if total.dtype.is_vector:
        return vector_sum(total, ranges)
    total = tidy(total, ranges)
    result = total.expr()
    if all(memo.get(f) is f for atom in total.terms for f in factors(atom)):
        # Nothing is left to do in it: no need to look at it again.
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
