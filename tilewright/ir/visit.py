"""Walking and rewriting.

Expressions can be deep, so their drivers keep an explicit stack and remember what they have seen.
Statements nest as deep as loops do, which the verifier bounds, so their drivers may recurse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Const, Expr, Load, Var
from tilewright.ir.stmt import (
    Alloc,
    Assert,
    Block,
    Evaluate,
    For,
    Function,
    If,
    Iter,
    Let,
    Range,
    Region,
    Seq,
    Stmt,
    Store,
    While,
    seq,
)

_LEAVES = (Var, Const)
ExprMap = Callable[[Expr], Expr]
StmtMap = Callable[[Stmt], Stmt | None]


# ---- expressions --------------------------------------------------------------------------------


def walk_expr(root: Expr) -> Iterator[Expr]:
    """Every distinct node below and including `root`, operands after their user."""
    seen: set[Expr] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        yield node
        pending.extend(reversed(node.operands))


def map_expr(
    root: Expr,
    rule: Callable[[Expr], Expr | None],
    memo: MutableMapping[Expr, Expr] | None = None,
    rebuild: Callable[[Expr, tuple[Expr, ...]], Expr] | None = None,
) -> Expr:
    """Rebuild `root` bottom-up; where `rule` returns an expression, it replaces the node.

    `rule` sees each distinct node once, with its operands rewritten already. `memo` carries the
    results from one call to the next. `rebuild` puts a node over changed operands, if
    `Expr.with_operands` is not the way.
    """
    memo = {} if memo is None else memo
    pending = [root]
    while pending:
        node = pending[-1]
        if node in memo:
            pending.pop()
            continue
        missing = [o for o in node.operands if o not in memo]
        if missing:
            pending.extend(missing)
            continue
        pending.pop()
        rebuilt = _with_mapped_operands(node, memo, rebuild)
        changed = rule(rebuilt)
        memo[node] = rebuilt if changed is None else changed
    return memo[root]


def _with_mapped_operands(
    node: Expr,
    memo: MutableMapping[Expr, Expr],
    rebuild: Callable[[Expr, tuple[Expr, ...]], Expr] | None,
) -> Expr:
    operands = node.operands
    mapped = tuple([memo[o] for o in operands])
    for before, after in zip(operands, mapped, strict=True):
        if before is not after:
            return node.with_operands(mapped) if rebuild is None else rebuild(node, mapped)
    return node


def substitute(
    root: Expr, values: Mapping[Var, Expr], memo: dict[Expr, Expr] | None = None
) -> Expr:
    """`root` with variables replaced; `memo` carries the results from one call to the next."""
    if root.variables.isdisjoint(values):
        return root
    memo = {} if memo is None else memo
    if not memo:
        memo.update(values.items())
    pending = [root]
    while pending:
        node = pending[-1]
        if node in memo:
            pending.pop()
            continue
        mapped: list[Expr] = []
        for operand in node.operands:
            if operand in memo:
                mapped.append(memo[operand])
            elif operand.variables.isdisjoint(values):
                # Parts that do not change need not be visited.
                mapped.append(operand)
            else:
                pending.append(operand)
        if pending[-1] is node:
            pending.pop()
            memo[node] = node.with_operands(tuple(mapped))
    return memo[root]


def free_vars(root: Expr) -> frozenset[Var]:
    """The variables in `root`."""
    return root.variables


def loads_in(root: Expr) -> list[Load]:
    """Every distinct load in `root`."""
    return [] if type(root) in _LEAVES else [e for e in walk_expr(root) if isinstance(e, Load)]


# ---- statements ---------------------------------------------------------------------------------


def child_stmts(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly below, in program order."""
    return _CHILDREN[type(stmt)](stmt)


def child_exprs(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions that `stmt` itself contains (regions of a block included)."""
    return _EXPRS[type(stmt)](stmt)


def walk(root: Stmt) -> Iterator[Stmt]:
    """`root` and every statement below it, in program order, parents first."""
    pending = [root]
    while pending:
        stmt = pending.pop()
        yield stmt
        pending.extend(reversed(child_stmts(stmt)))


def all_exprs(root: Stmt) -> Iterator[Expr]:
    """Every distinct expression node in `root`."""
    seen: set[Expr] = set()
    for stmt in walk(root):
        pending = list(child_exprs(stmt))
        pending.reverse()
        while pending:
            node = pending.pop()
            if node in seen:
                continue
            seen.add(node)
            yield node
            pending.extend(reversed(node.operands))


def map_stmt(root: Stmt, rule: StmtMap, on_expr: ExprMap | None = None) -> Stmt:
    """Rebuild `root` bottom-up: expressions through `on_expr`, then each statement through `rule`.

    `rule` sees a statement whose children are rewritten already, and returns its replacement, or
    None to keep it. What does not change stays the same object.
    """
    rebuilt = map_children(root, lambda s: map_stmt(s, rule, on_expr), on_expr)
    changed = rule(rebuilt)
    return rebuilt if changed is None else changed


def map_exprs(root: Stmt, on_expr: ExprMap) -> Stmt:
    """Every expression of `root` through `on_expr`."""
    return map_stmt(root, _keep, on_expr)


def map_children(
    stmt: Stmt, on_stmt: Callable[[Stmt], Stmt], on_expr: ExprMap | None = None
) -> Stmt:
    """`stmt` with its direct statements and its own expressions mapped; itself if none changed."""
    return _MAPPERS[type(stmt)](stmt, on_stmt, on_expr or _same)


def substitute_stmt(root: Stmt, values: Mapping[Var, Expr]) -> Stmt:
    """`root` with variables replaced in every expression."""
    if not values:
        return root
    memo: dict[Expr, Expr] = {}
    return map_exprs(root, lambda e: substitute(e, values, memo))


def replace_buffers(root: Stmt, buffers: Mapping[Buffer, Buffer]) -> Stmt:
    """`root` with accesses to some buffers redirected to others of the same rank."""

    def on_node(e: Expr) -> Expr | None:
        if isinstance(e, Load) and e.buffer in buffers:
            return Load(buffers[e.buffer], e.indices, e.mask)
        return None

    def on_stmt(s: Stmt) -> Stmt | None:
        if isinstance(s, Store) and s.buffer in buffers:
            return replace(s, buffer=buffers[s.buffer])
        if isinstance(s, Alloc) and not buffers.keys().isdisjoint(s.buffers):
            return replace(s, buffers=tuple(buffers.get(b, b) for b in s.buffers))
        if isinstance(s, Block):
            return _with_regions(s, lambda r: r._replace(buffer=buffers.get(r.buffer, r.buffer)))
        return None

    memo: dict[Expr, Expr] = {}
    return map_stmt(root, on_stmt, lambda e: map_expr(e, on_node, memo))


def _with_regions(block: Block, change: Callable[[Region], Region]) -> Block:
    reads, writes = tuple(map(change, block.reads)), tuple(map(change, block.writes))
    if reads == block.reads and writes == block.writes:
        return block
    return replace(block, reads=reads, writes=writes)


def map_function(function: Function, rule: StmtMap, on_expr: ExprMap | None = None) -> Function:
    return function.with_body(map_stmt(function.body, rule, on_expr))


def _keep(_stmt: Stmt) -> None:
    return None


def _same(expr: Expr) -> Expr:
    return expr


# ---- one row per statement type -----------------------------------------------------------------


def _changed(stmt: Any, **fields: Any) -> Any:
    for name, value in fields.items():
        if getattr(stmt, name) is not value:
            return replace(stmt, **fields)
    return stmt


def _map_tuple(items: tuple[Any, ...], change: Callable[[Any], Any]) -> tuple[Any, ...]:
    mapped = [change(i) for i in items]
    for before, after in zip(items, mapped, strict=True):
        if before is not after:
            return tuple(mapped)
    return items


def _map_optional(item: Any, change: Callable[[Any], Any]) -> Any:
    return None if item is None else change(item)


def _map_iter(it: Iter, on_expr: ExprMap) -> Iter:
    extent = on_expr(it.extent)
    return it if extent is it.extent else it._replace(extent=extent)


def map_region(region: Region, on_expr: ExprMap) -> Region:
    """A region with its bounds mapped."""

    def on_range(r: Range) -> Range:
        start, extent = on_expr(r.start), on_expr(r.extent)
        return r if start is r.start and extent is r.extent else Range(start, extent)

    ranges = _map_tuple(region.ranges, on_range)
    return region if ranges is region.ranges else region._replace(ranges=ranges)


def _map_for(s: For, f: Any, e: Any) -> Stmt:
    extent, body = e(s.extent), f(s.body)
    if extent is s.extent and body is s.body:
        return s
    return For(s.var, extent, s.kind, body, s.axis, s.annotations, s.span)


def _map_block(s: Block, f: Any, e: Any) -> Stmt:
    return _changed(
        s,
        iters=_map_tuple(s.iters, lambda i: _map_iter(i, e)),
        bindings=_map_tuple(s.bindings, e),
        predicate=e(s.predicate),
        reads=_map_tuple(s.reads, lambda r: map_region(r, e)),
        writes=_map_tuple(s.writes, lambda r: map_region(r, e)),
        init=_map_optional(s.init, f),
        body=f(s.body),
    )


def _map_store(s: Store, _f: Any, e: Any) -> Stmt:
    indices, value, mask = _map_tuple(s.indices, e), e(s.value), s.mask
    if mask is not None:
        mask = e(mask)
    if indices is s.indices and value is s.value and mask is s.mask:
        return s
    return Store(s.buffer, indices, value, mask, s.span)


def _map_alloc(s: Alloc, f: Any, _e: Any) -> Stmt:
    return _changed(s, body=f(s.body))


def _map_if(s: If, f: Any, e: Any) -> Stmt:
    return _changed(
        s, condition=e(s.condition), then=f(s.then), otherwise=_map_optional(s.otherwise, f)
    )


def _map_while(s: While, f: Any, e: Any) -> Stmt:
    return _changed(s, condition=e(s.condition), body=f(s.body))


def _map_let(s: Let, f: Any, e: Any) -> Stmt:
    return _changed(s, value=e(s.value), body=f(s.body))


def _map_seq(s: Seq, f: Any, _e: Any) -> Stmt:
    statements = _map_tuple(s.statements, f)
    return s if statements is s.statements else seq(*statements)


_MAPPERS: dict[type[Stmt], Callable[[Any, Any, Any], Stmt]] = {
    For: _map_for,
    Block: _map_block,
    Store: _map_store,
    Alloc: _map_alloc,
    If: _map_if,
    While: _map_while,
    Let: _map_let,
    Assert: lambda s, _f, e: _changed(s, condition=e(s.condition), values=_map_tuple(s.values, e)),
    Evaluate: lambda s, _f, e: _changed(s, call=e(s.call)),
    Seq: _map_seq,
}

_CHILDREN: dict[type[Stmt], Callable[[Any], tuple[Stmt, ...]]] = {
    For: lambda s: (s.body,),
    Block: lambda s: (s.body,) if s.init is None else (s.init, s.body),
    Store: lambda _: (),
    Alloc: lambda s: (s.body,),
    If: lambda s: (s.then,) if s.otherwise is None else (s.then, s.otherwise),
    While: lambda s: (s.body,),
    Let: lambda s: (s.body,),
    Assert: lambda _: (),
    Evaluate: lambda _: (),
    Seq: lambda s: s.statements,
}


def _region_exprs(regions: Iterable[Region]) -> tuple[Expr, ...]:
    return tuple(e for region in regions for r in region.ranges for e in r)


_EXPRS: dict[type[Stmt], Callable[[Any], tuple[Expr, ...]]] = {
    For: lambda s: (s.extent,),
    Block: lambda s: (
        *(i.extent for i in s.iters),
        *s.bindings,
        s.predicate,
        *_region_exprs(s.reads),
        *_region_exprs(s.writes),
    ),
    Store: lambda s: (*s.indices, s.value) if s.mask is None else (*s.indices, s.value, s.mask),
    Alloc: lambda s: tuple(d for b in s.buffers for d in b.shape),
    If: lambda s: (s.condition,),
    While: lambda s: (s.condition,),
    Let: lambda s: (s.value,),
    Assert: lambda s: (s.condition, *s.values),
    Evaluate: lambda s: (s.call,),
    Seq: lambda _: (),
}
