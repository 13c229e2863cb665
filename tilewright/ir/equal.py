"""Structural equality of functions, whatever the names of their variables and buffers.

Every node gets a digest: variables and buffers count by the order in which they appear, shared
expressions are hashed once. The digest of a function is stable across processes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable
from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
)
from tilewright.ir.stmt import (
    Alloc,
    Assert,
    Block,
    Evaluate,
    For,
    Function,
    If,
    Let,
    Param,
    Region,
    Seq,
    Stmt,
    Store,
    While,
)
from tilewright.ir.text.printer import literal_text


def same_function(f: Function, g: Function, *, with_name: bool = True) -> bool:
    """Whether they are the same up to the names of variables and buffers."""
    return structural_hash(f, with_name=with_name) == structural_hash(g, with_name=with_name)


def structural_hash(function: Function, *, with_name: bool = True) -> str:
    """A key for caches: equal for functions that are the same, in any process."""
    return _Digests().function(function, with_name).hex()


class _Digests:
    """Digests of nodes that share their variables and buffers."""

    def __init__(self) -> None:
        self.things: dict[Var | Buffer, bytes] = {}
        self.exprs: dict[Expr, bytes] = {}

    def function(self, function: Function, with_name: bool) -> bytes:
        for param in function.params:
            if isinstance(param, Var):
                self.var(param)
        params = [self._param(p) for p in function.params]
        attrs = _annotations(function.attrs)
        name = function.name if with_name else ""
        return _mix("function", name, attrs, *params, self.stmt(function.body))

    def _param(self, param: Param) -> bytes:
        return self.var(param) if isinstance(param, Var) else self.buffer(param)

    # ---- variables and buffers ------------------------------------------------------------------

    def var(self, var: Var) -> bytes:
        found = self.things.get(var)
        if found is None:
            found = self.things[var] = _mix("var", len(self.things), var.dtype.short)
        return found

    def buffer(self, buffer: Buffer) -> bytes:
        found = self.things.get(buffer)
        if found is None:
            shape = self.all(buffer.shape)
            strides = b"" if buffer.strides is None else self.all(buffer.strides)
            rest = (buffer.dtype.short, buffer.scope, buffer.alignment)
            offset = self.expr(buffer.offset)
            found = _mix("buffer", len(self.things), shape, strides, offset, *rest)
            self.things[buffer] = found
        return found

    # ---- expressions ----------------------------------------------------------------------------

    def expr(self, root: Expr) -> bytes:
        done = self.exprs
        pending = [root]
        while pending:
            node = pending[-1]
            if node in done:
                pending.pop()
                continue
            missing = [o for o in node.operands if o not in done]
            if missing:
                pending.extend(reversed(missing))
                continue
            pending.pop()
            done[node] = self._node(node)
        return done[root]

    def _node(self, node: Expr) -> bytes:
        if isinstance(node, Var):
            return self.var(node)
        own = self.buffer(node.buffer) if isinstance(node, Load) else _OWN[type(node)](node)
        kind = type(node).__name__
        operands = (self.exprs[o] for o in node.operands)
        return _mix(kind, own, node.dtype.short, *operands)

    def all(self, exprs: Iterable[Expr]) -> bytes:
        return _mix("exprs", *(self.expr(e) for e in exprs))

    def optional(self, expr: Expr | None) -> bytes:
        return b"" if expr is None else self.expr(expr)

    # ---- statements -----------------------------------------------------------------------------

    def stmt(self, stmt: Stmt) -> bytes:
        return _STATEMENTS[type(stmt)](self, stmt)

    def for_(self, s: For) -> bytes:
        extent = self.expr(s.extent)
        head = (s.kind, s.axis, _annotations(s.annotations))
        return _mix("for", extent, self.var(s.var), *head, self.stmt(s.body))

    def block(self, s: Block) -> bytes:
        extents, bindings = self.all(i.extent for i in s.iters), self.all(s.bindings)
        iters = [p for i in s.iters for p in (self.var(i.var), i.kind)]
        head = (s.name, extents, bindings, *iters, self.expr(s.predicate))
        regions = (self.regions(s.reads), self.regions(s.writes), _annotations(s.annotations))
        init = b"" if s.init is None else self.stmt(s.init)
        return _mix("block", *head, *regions, init, self.stmt(s.body))

    def regions(self, regions: tuple[Region, ...]) -> bytes:
        parts = (
            _mix(self.buffer(r.buffer), *(self.all(bounds) for bounds in r.ranges)) for r in regions
        )
        return _mix("regions", *parts)

    def store(self, s: Store) -> bytes:
        parts = (self.buffer(s.buffer), self.all(s.indices), self.expr(s.value))
        return _mix("store", *parts, self.optional(s.mask))

    def alloc(self, s: Alloc) -> bytes:
        """Nested allocations count as one, as in the text form."""
        buffers, body = list(s.buffers), _only(s.body)
        while isinstance(body, Alloc):
            buffers.extend(body.buffers)
            body = _only(body.body)
        return _mix("alloc", *(self.buffer(b) for b in buffers), self.stmt(body))

    def if_(self, s: If) -> bytes:
        condition, then = self.expr(s.condition), self.stmt(s.then)
        return _mix("if", condition, then, b"" if s.otherwise is None else self.stmt(s.otherwise))

    def while_(self, s: While) -> bytes:
        return _mix("while", self.expr(s.condition), self.stmt(s.body))

    def let(self, s: Let) -> bytes:
        value = self.expr(s.value)
        return _mix("let", value, self.var(s.var), self.stmt(s.body))

    def assert_(self, s: Assert) -> bytes:
        return _mix("assert", self.expr(s.condition), s.message, self.all(s.values))

    def evaluate(self, s: Evaluate) -> bytes:
        return _mix("evaluate", self.expr(s.call))

    def seq(self, s: Seq) -> bytes:
        parts = _flat(s)
        return self.stmt(parts[0]) if len(parts) == 1 else _mix("seq", *map(self.stmt, parts))


def _only(stmt: Stmt) -> Stmt:
    """The statement of a sequence of one; any other statement itself."""
    parts = _flat(stmt) if isinstance(stmt, Seq) else [stmt]
    return parts[0] if len(parts) == 1 else stmt


def _flat(s: Seq) -> list[Stmt]:
    flat: list[Stmt] = []
    for stmt in s.statements:
        flat.extend(_flat(stmt) if isinstance(stmt, Seq) else (stmt,))
    return flat


def _annotations(values: Any) -> str:
    return literal_text(dict(sorted(values.items())))


def _mix(*parts: object) -> bytes:
    """One digest of several parts; their lengths separate them."""
    flat: list[bytes] = []
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        flat += len(data).to_bytes(4, "little"), data
    return hashlib.sha256(b"".join(flat)).digest()


def _const(node: Const) -> bytes:
    if isinstance(node.value, float):
        return struct.pack("<d", node.value)
    return repr(node.value).encode()


_OWN: dict[type[Expr], Callable[[Any], bytes]] = {
    Const: _const,
    Unary: lambda n: n.op.encode(),
    Binary: lambda n: n.op.encode(),
    Select: lambda _: b"",
    Cast: lambda _: b"",
    Call: lambda n: n.name.encode(),
    Ramp: lambda _: b"",
    Broadcast: lambda _: b"",
}
_STATEMENTS: dict[type[Stmt], Callable[[_Digests, Any], bytes]] = {
    For: _Digests.for_,
    Block: _Digests.block,
    Store: _Digests.store,
    Alloc: _Digests.alloc,
    If: _Digests.if_,
    While: _Digests.while_,
    Let: _Digests.let,
    Assert: _Digests.assert_,
    Evaluate: _Digests.evaluate,
    Seq: _Digests.seq,
}
