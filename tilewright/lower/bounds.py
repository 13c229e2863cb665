"""Make every access safe: prove that it is in bounds, or check that at run time.

A load that is only evaluated under a condition (one side of a select, the right side of `and`), and
is in bounds only then, gets that condition as its mask. Before an access that cannot be proved at
all there is an `Assert` that names the buffer and the index. With `checked`, nothing is trusted:
every access is asserted.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, MutableMapping
from dataclasses import replace
from typing import Any, NamedTuple

from tilewright.arith import Ranges, conjuncts, prove, simplify
from tilewright.ir import (
    Assert,
    Binary,
    Broadcast,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Ramp,
    Select,
    Stmt,
    Store,
    Var,
    While,
    call,
    cast,
    const,
    free_vars,
    loads_in,
    map_children,
    map_expr,
    renew,
    seq,
    walk,
)


def check_bounds(function: Function, *, checked: bool = False) -> Function:
    """Every access is proved, masked or asserted."""
    known = Ranges.for_function(function)
    return function.with_body(_Checker(checked).stmt(function.body, _Place(known, known, None)))


class _Place(NamedTuple):
    """What holds at a point of the program."""

    #: Everything that holds there.
    ranges: Ranges
    #: The same without conditions that hold only for some lanes of a vectorized loop.
    all_lanes: Ranges
    #: The conjunction of those conditions.
    guard: Expr | None

    def inside_loop(self, var: Var, extent: Expr) -> _Place:
        return self._replace(
            ranges=self.ranges.with_extent(var, extent),
            all_lanes=self.all_lanes.with_extent(var, extent),
        )

    def under(self, condition: Expr, *, varies: bool) -> _Place:
        """Where `condition` holds; if it `varies` between lanes, it will become a mask."""
        ranges = self.ranges.assuming(condition)
        if not varies:
            return self._replace(ranges=ranges, all_lanes=self.all_lanes.assuming(condition))
        return self._replace(ranges=ranges, guard=_both(self.guard, condition))

    def knowing(self, var: Var, value: Expr) -> _Place:
        return self._replace(
            ranges=self.ranges.with_bounds(var, value, value),
            all_lanes=self.all_lanes.with_bounds(var, value, value),
        )


class _Checker:
    """Visits the statements with what holds at each of them."""

    def __init__(self, checked: bool) -> None:
        self.checked = checked
        self.lane_vars: set[Var] = set()

    def stmt(self, stmt: Stmt, place: _Place) -> Stmt:
        handler = _STATEMENTS.get(type(stmt))
        if handler is not None:
            return handler(self, stmt, place)
        safe = _Safe(self, place)
        rebuilt = map_children(stmt, lambda s: self.stmt(s, place), safe.expr)
        return seq(*safe.asserts, rebuilt)

    def loop(self, stmt: For, place: _Place) -> Stmt:
        safe = _Safe(self, place)
        extent = safe.expr(stmt.extent)
        if stmt.kind == "vectorized":
            self.lane_vars.add(stmt.var)
        body = self.stmt(stmt.body, place.inside_loop(stmt.var, extent))
        return seq(*safe.asserts, replace(stmt, extent=extent, body=body))

    def branch(self, stmt: If, place: _Place) -> Stmt:
        safe = _Safe(self, place)
        condition = safe.expr(stmt.condition)
        then = self.stmt(stmt.then, self._where(place, condition, stmt.then))
        otherwise = stmt.otherwise
        if otherwise is not None:
            denied = simplify(~condition)
            otherwise = self.stmt(otherwise, self._where(place, denied, otherwise))
        rebuilt = replace(stmt, condition=condition, then=then, otherwise=otherwise)
        return seq(*safe.asserts, rebuilt)

    def _where(self, place: _Place, condition: Expr, body: Stmt) -> _Place:
        """`place` inside a branch; conditions on memory that the branch writes are ignored."""
        changed = {s.buffer for s in walk(body) if isinstance(s, Store)}
        stable = [
            c
            for c in conjuncts(condition)
            if changed.isdisjoint(load.buffer for load in loads_in(c))
        ]
        for part in stable:
            place = place.under(part, varies=self._varies(part))
        return place

    def _varies(self, expr: Expr) -> bool:
        return not free_vars(expr).isdisjoint(self.lane_vars)

    def let(self, stmt: Let, place: _Place) -> Stmt:
        safe = _Safe(self, place)
        value = safe.expr(stmt.value)
        if self._varies(value):
            self.lane_vars.add(stmt.var)
        if value.dtype.is_integer and not loads_in(value):
            place = place.knowing(stmt.var, value)
        return seq(*safe.asserts, replace(stmt, value=value, body=self.stmt(stmt.body, place)))

    def repeat(self, stmt: While, place: _Place) -> Stmt:
        """The condition is evaluated before every iteration, so its checks are repeated, too."""
        safe = _Safe(self, place)
        condition = safe.expr(stmt.condition)
        body = self.stmt(stmt.body, self._where(place, condition, stmt.body))
        again = [renew(a) for a in safe.asserts]
        return seq(*safe.asserts, replace(stmt, condition=condition, body=seq(body, *again)))

    def store(self, stmt: Store, place: _Place) -> Stmt:
        safe = _Safe(self, place)
        indices = tuple(safe.expr(i) for i in stmt.indices)
        value = safe.expr(stmt.value)
        mask = None if stmt.mask is None else safe.expr(stmt.mask)
        under = place.ranges if mask is None else place.ranges.assuming(mask)
        safe.require(stmt.buffer, indices, under, mask)
        return seq(*safe.asserts, replace(stmt, indices=indices, value=value, mask=mask))


_STATEMENTS: dict[type[Stmt], Callable[[_Checker, Any, _Place], Stmt]] = {
    For: _Checker.loop,
    If: _Checker.branch,
    Let: _Checker.let,
    While: _Checker.repeat,
    Store: _Checker.store,
}


class _Safe:
    """The expressions of one statement, and the asserts needed before it."""

    def __init__(self, checker: _Checker, place: _Place) -> None:
        self.checked, self.place = checker.checked, place
        self.asserts: list[Stmt] = []
        self._asserted: set[Expr] = set()
        # What has been rewritten, by the condition. The first is no ChainMap, which is slow.
        self._memos: dict[Expr | None, MutableMapping[Expr, Expr]] = {None: {}}

    def expr(self, root: Expr) -> Expr:
        return self._under(root, None)

    def _side(self, root: Expr, condition: Expr | None, chosen: Expr) -> Expr:
        """`root` of a lazy node under `condition`, evaluated only where `chosen` also holds.

        Expressions that are evaluated under `condition` anyway, such as an index whose own sign is
        tested, are rewritten the same way here.
        """
        both = _both(condition, chosen)
        if both not in self._memos:
            outer = self._memos[condition]
            maps = outer.maps if isinstance(outer, ChainMap) else [outer]
            self._memos[both] = ChainMap({}, *maps)
        return self._under(root, both)

    def _under(self, root: Expr, condition: Expr | None) -> Expr:
        """`root`, evaluated only where `condition` holds."""
        if isinstance(root, Const | Var):
            return root
        memo = self._memos[condition]
        # Rewrite the lazy nodes first, each side under its own condition.
        for node in _lazy_nodes(root, memo):
            memo[node] = _LAZY[_lazy_kind(node)](self, node, condition)
        return map_expr(root, lambda e: self._access(e, condition), memo)

    def _access(self, node: Expr, condition: Expr | None) -> Expr | None:
        if not isinstance(node, Load):
            return None
        if not self.checked and _is_inside(node, self.place.all_lanes):
            return None
        mask, under = node.mask, self.place.ranges
        # A load that needs only the guard gets the same mask everywhere, so that what a condition
        # says about its value applies to all other loads of it.
        if condition is not None and not self.checked and _is_inside(node, under):
            condition = None
        for known in (condition, self.place.guard):
            mask = mask if known is None else _both(known, mask)
        for known in (condition, node.mask):
            under = under if known is None else under.assuming(known)
        self.require(node.buffer, node.indices, under, mask)
        return Load(node.buffer, node.indices, mask)

    def require(
        self, buffer: Buffer, indices: tuple[Expr, ...], ranges: Ranges, mask: Expr | None
    ) -> None:
        """Assert what cannot be proved about an access, which happens where `mask` holds."""
        lanes = max((i.dtype.lanes for i in indices), default=1)
        for lane in range(lanes):
            on = None if mask is None else _lane(mask, lane)
            for number, (index, extent) in enumerate(zip(indices, buffer.shape, strict=True)):
                self._require_within(buffer, number, _lane(index, lane), extent, ranges, on)

    def _require_within(
        self,
        buffer: Buffer,
        number: int,
        index: Expr,
        extent: Expr,
        ranges: Ranges,
        mask: Expr | None,
    ) -> None:
        for condition in _within(index, extent):
            if self.checked or not prove(condition, ranges):
                guarded = condition if mask is None else ~mask | condition
                self._add(guarded, buffer, number, index, extent)

    def _add(
        self, condition: Expr, buffer: Buffer, dimension: int, index: Expr, extent: Expr
    ) -> None:
        if condition in self._asserted:
            return
        self._asserted.add(condition)
        message = (
            f"index {{}} is out of bounds for dimension {dimension} of {buffer.name}, "
            "whose extent is {}"
        )
        self.asserts.append(Assert(condition, message, (_as_given(index, extent), extent)))

    # ---- lazy nodes -----------------------------------------------------------------------------

    def select(self, node: Select, condition: Expr | None) -> Expr:
        chosen = self._under(node.condition, condition)
        a = self._side(node.a, condition, chosen)
        b = self._side(node.b, condition, simplify(~chosen))
        return Select(chosen, a, b)

    def conjunction(self, node: Binary, condition: Expr | None) -> Expr:
        a = self._under(node.a, condition)
        return Binary("and", a, self._side(node.b, condition, a))

    def disjunction(self, node: Binary, condition: Expr | None) -> Expr:
        a = self._under(node.a, condition)
        return Binary("or", a, self._side(node.b, condition, simplify(~a)))


def _as_given(index: Expr, extent: Expr) -> Expr:
    """An index as the user wrote it: before negative ones are counted from the end."""
    if isinstance(index, Select) and simplify(index.a - index.b) is simplify(extent):
        return index.b
    return index


_LAZY: dict[str, Callable[[_Safe, Any, Expr | None], Expr]] = {
    "select": _Safe.select,
    "and": _Safe.conjunction,
    "or": _Safe.disjunction,
}


def _lazy_kind(node: Expr) -> str:
    return node.op if isinstance(node, Binary) else "select"


def _lazy_nodes(root: Expr, memo: MutableMapping[Expr, Expr]) -> list[Expr]:
    """The outermost selects, ands and ors of `root`."""
    found, seen, pending = list[Expr](), set[Expr](), [root]
    while pending:
        node = pending.pop()
        if node in seen or node in memo:
            continue
        seen.add(node)
        if isinstance(node, Select) or (isinstance(node, Binary) and node.op in ("and", "or")):
            found.append(node)
        else:
            pending.extend(node.operands)
    return found


def _is_inside(load: Load, ranges: Ranges) -> bool:
    return all(
        prove(condition, ranges)
        for index, extent in zip(load.indices, load.buffer.shape, strict=True)
        for lane in range(index.dtype.lanes)
        for condition in _within(_lane(index, lane), extent)
    )


def _within(index: Expr, extent: Expr) -> tuple[Expr, Expr]:
    position = cast(index, extent.dtype)
    return const(0, extent.dtype) <= position, position < extent


def _lane(vector: Expr, lane: int) -> Expr:
    """One element of a vector; a scalar is the same for all lanes."""
    if not vector.dtype.is_vector:
        return vector
    if isinstance(vector, Ramp):
        return simplify(vector.base + vector.stride * lane)
    return vector.a if isinstance(vector, Broadcast) else call("lane", vector, const(lane))


def _both(a: Expr | None, b: Expr | None) -> Expr:
    if a is None or b is None:
        found = b if a is None else a
        assert found is not None
        return found
    return a & b
