"""Reads loop functions from the text form that `ir.text.printer` writes and describes.

The text is Python's syntax, so Python's own parser reads it; nothing is executed. `StmtReader` is
the language of statements, which `@tw.script` extends.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Binary, Const, Expr, Load, Var, const, is_const
from tilewright.ir.stmt import (
    ITER_KINDS,
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
    Span,
    Stmt,
    Store,
    While,
    seq,
)
from tilewright.ir.text.heads import LOOPS, BlockHead, LoopHead, SuiteHead
from tilewright.ir.text.parse_types import TypeReader
from tilewright.ir.text.source import Source
from tilewright.ir.text.syntax import dotted, parts_of
from tilewright.support.dtype import DType
from tilewright.support.errors import UserError


def parse_function(text: str, file: str = "<text>") -> Function:
    """The function that `text` describes; errors name the line and column."""
    source = Source(text, file)
    tree = source.parse()
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise UserError(f"{file}: expected one function", remedy="start with `def name(…):`")
    try:
        return StmtReader(source).function(tree.body[0])
    except RecursionError:
        raise source.too_deep() from None


class StmtReader(TypeReader):
    """Reads functions and statements."""

    # ---- functions ------------------------------------------------------------------------------

    def function(self, node: ast.FunctionDef) -> Function:
        name, attrs = self.decorations(node)
        params = self.params(node)
        return Function(name, params, self.suite(node.body), attrs)

    # ---- suites ---------------------------------------------------------------------------------

    @contextmanager
    def scope(self) -> Generator[None]:
        """A scope for names that are defined within."""
        self.scopes.append({})
        try:
            yield
        finally:
            self.scopes.pop()

    def suite(self, nodes: Sequence[ast.stmt]) -> Stmt:
        with self.scope():
            return self.statements(nodes)

    def statements(self, nodes: Sequence[ast.stmt]) -> Stmt:
        """A sequence of statements; one that opens a scope (let, alloc) holds all that follow."""
        rows: list[tuple[list[Stmt], SuiteHead | None]] = []
        current: list[Stmt] = []
        for node in nodes:
            read = self.statement(node)
            if isinstance(read, SuiteHead):
                rows.append((current, read))
                current = []
            elif read is not None:
                current.append(read)
        return _closed(rows, seq(*current))

    def statement(self, node: ast.stmt) -> Stmt | SuiteHead | None:
        read = _STATEMENTS.get(type(node))
        if read is None:
            raise self.refused(node)
        return self.located(node, read, self, node)

    def refused(self, node: ast.stmt) -> UserError:
        return self.error(node, f"`{ast.unparse(node).splitlines()[0]}` has no meaning here")

    def span(self, _node: ast.AST) -> Span | None:
        """The position of a statement in the source; printed IR has none."""
        return None

    # ---- simple statements ----------------------------------------------------------------------

    def assign(self, node: ast.Assign) -> Stmt | SuiteHead:
        if len(node.targets) != 1:
            raise self.error(node, "one target at a time")
        target = node.targets[0]
        if isinstance(target, ast.Subscript):
            return self.store(node, target, node.value)
        if isinstance(target, ast.Name):
            return self.bind(node, target, node.value, None)
        raise self.refused(node)

    def typed_assign(self, node: ast.AnnAssign) -> Stmt | SuiteHead:
        if node.value is None or not isinstance(node.target, ast.Name):
            raise self.refused(node)
        return self.bind(
            node, node.target, node.value, self.dtype(self.annotation(node.annotation))
        )

    def bind(
        self, node: ast.stmt, target: ast.Name, value: ast.expr, dtype: DType | None
    ) -> Stmt | SuiteHead:
        """`x = let(…)` or `x = alloc(…)`."""
        word = self.callee(value) if isinstance(value, ast.Call) else None
        if word == "let":
            return self.let(node, target, self.only_arg(cast(ast.Call, value)), dtype)
        if word == "alloc":
            return self.alloc(target, cast(ast.Call, value))
        raise self.error(
            node, f"{target.id} is no buffer's element", remedy=f"write {target.id} = let(…)"
        )

    def let(
        self, node: ast.stmt, target: ast.Name, value: ast.expr, dtype: DType | None
    ) -> SuiteHead:
        read = self.expr(value, dtype)
        var = Var(target.id, dtype or read.dtype)
        self.define(target, target.id, var)
        return SuiteHead(lambda body: Let(var, read, body, self.span(node)))

    def alloc(self, target: ast.Name, node: ast.Call) -> SuiteHead:
        if len(node.args) != 1 or any(k.arg != "scope" for k in node.keywords):
            raise self.error(
                node, "alloc takes a type and a scope", remedy='alloc(f32[16], scope="local")'
            )
        scope = self.text(node.keywords[0].value) if node.keywords else "global"
        buffer = self.buffer(target.id, node.args[0], scope)
        self.define(target, target.id, buffer)
        return SuiteHead(lambda body: Alloc((buffer,), body), (buffer,))

    def store(
        self, node: ast.stmt, target: ast.expr, value: ast.expr, mask: ast.expr | None = None
    ) -> Store:
        element = self.value(target)
        if not isinstance(element, Load):
            raise self.error(
                target, f"cannot store to {ast.unparse(target)}", "it is no buffer's element"
            )
        read = self.expr(value, element.buffer.dtype)
        given = None if mask is None else self.expr(mask)
        return Store(element.buffer, element.indices, read, given, self.span(node))

    def assertion(self, node: ast.Assert) -> Assert:
        message, values = node.msg, list[ast.expr]()
        if isinstance(message, ast.Tuple) and message.elts:
            message, *values = message.elts
        if message is None:
            raise self.error(
                node, "an assertion needs a message", remedy='assert condition, "message"'
            )
        condition = self.expr(node.test)
        given = tuple(self.expr(v) for v in values)
        return Assert(condition, self.text(message), given, self.span(node))

    def expression(self, node: ast.Expr) -> Stmt | None:
        if isinstance(node.value, ast.Call) and self.callee(node.value) == "store":
            args = node.value.args
            if len(args) != 3:
                raise self.error(node, "store takes an element, a value and a mask")
            return self.store(node, *args)
        return Evaluate(self.expr(node.value), self.span(node))

    # ---- compound statements --------------------------------------------------------------------

    def choice_statement(self, node: ast.If) -> Stmt | None:
        condition = self.expr(node.test)
        then = self.suite(node.body)
        otherwise = self.suite(node.orelse) if node.orelse else None
        return If(condition, then, otherwise, self.span(node))

    def while_loop(self, node: ast.While) -> Stmt | SuiteHead:
        if node.orelse:
            raise self.error(node.orelse[0], "a loop has no else here")
        return While(self.expr(node.test), self.suite(node.body), self.span(node))

    def for_loop(self, node: ast.For) -> Stmt | SuiteHead:
        target, call = self.loop_parts(node)
        head = self.loop_head(call)
        var = Var(target.id, head.extent.dtype)
        with self.scope():
            self.define(target, target.id, var)
            body = self.suite(node.body)
        return For(var, head.extent, head.kind, body, head.axis, head.annotations, self.span(node))

    def loop_parts(self, node: ast.For) -> tuple[ast.Name, ast.Call]:
        if node.orelse:
            raise self.error(node.orelse[0], "a loop has no else here")
        if not isinstance(node.target, ast.Name) or not isinstance(node.iter, ast.Call):
            raise self.error(node, "cannot loop over this", remedy="for i in range(n)")
        if self.callee(node.iter) not in LOOPS:
            raise self.error(
                node.iter, "cannot loop over this", remedy=f"use one of {', '.join(LOOPS)}"
            )
        return node.target, node.iter

    def loop_head(self, node: ast.Call) -> LoopHead:
        word = self.callee(node)
        count = 2 if word == "thread" else 1
        if len(node.args) != count or any(k.arg != "note" for k in node.keywords):
            raise self.error(node, f"{word} takes {count} operand{'s' * (count > 1)}, and a note")
        axis = self.text(node.args[1]) if count == 2 else ""
        notes = self.mapping(node.keywords[0].value) if node.keywords else {}
        return LoopHead(LOOPS[word], self.expr(node.args[0]), axis, notes)

    def with_statement(self, node: ast.With) -> Stmt:
        call = node.items[0].context_expr
        word = self.callee(call) if isinstance(call, ast.Call) else None
        if len(node.items) != 1 or word not in ("block", "scope"):
            raise self.error(node, "cannot open this", remedy='use `with block("name", …):`')
        if word == "scope":
            return self.suite(node.body)
        return self.block(node, cast(ast.Call, call))

    def block(self, node: ast.With, call: ast.Call) -> Block:
        written = self._written_iters(node, call)
        ends = [self._iter(name, value) for name, value in written]
        with self.scope():
            for (_, value), (it, _) in zip(written, ends, strict=True):
                self.define(value, it.var.name, it.var)
            head, rest = self._block_head(node.body)
            init = None
            if rest and _is_init(rest[0]):
                init = self.suite(cast(ast.With, rest[0]).body)
                rest = rest[1:]
            body = self.suite(rest)
        iters, bindings = tuple(e[0] for e in ends), tuple(e[1] for e in ends)
        block = Block(self.text(call.args[0]), iters, bindings, body, head.reads, head.writes)
        block.predicate, block.init = head.predicate, init
        block.annotations, block.span = head.annotations or {}, self.span(node)
        return block

    def _written_iters(self, node: ast.With, call: ast.Call) -> list[tuple[str, ast.expr]]:
        """`block("C", vi=spatial(n, i))`, or `block("C", spatial(n, i)) as (vi,)`."""
        target = node.items[0].optional_vars
        names = [] if target is None else [dotted(part) for part in parts_of(target)]
        if not call.args or len(names) != len(call.args) - 1 or (names and call.keywords):
            raise self.error(
                call,
                "a block has a name, and names for its variables",
                remedy='with block("C", vi=spatial(n, i)):',
            )
        if names:
            return [(n or "v", a) for n, a in zip(names, call.args[1:], strict=True)]
        return [(k.arg or "v", k.value) for k in call.keywords]

    def _iter(self, name: str, call: ast.expr) -> tuple[Iter, Expr]:
        kind = self.callee(call) if isinstance(call, ast.Call) else None
        if not isinstance(call, ast.Call) or len(call.args) != 2 or kind not in ITER_KINDS:
            raise self.error(
                call,
                "a block's variable has a kind, an extent and a value",
                remedy="vi=spatial(n, i)",
            )
        extent = self.expr(call.args[0])
        binding = self.expr(call.args[1], extent.dtype)
        return Iter(Var(name, extent.dtype), extent, cast(Any, kind)), binding

    def _block_head(self, nodes: list[ast.stmt]) -> tuple[BlockHead, list[ast.stmt]]:
        head = BlockHead()
        for number, node in enumerate(nodes):
            call = node.value if isinstance(node, ast.Expr) else None
            word = self.callee(call) if isinstance(call, ast.Call) else None
            read = _BLOCK_HEAD.get(word or "")
            if read is None:
                return head, nodes[number:]
            read(self, head, cast(ast.Call, call))
        return head, []

    def where(self, head: BlockHead, node: ast.Call) -> None:
        head.predicate = self.expr(self.only_arg(node))

    def reads(self, head: BlockHead, node: ast.Call) -> None:
        head.reads = tuple(self.region(a) for a in node.args)

    def writes(self, head: BlockHead, node: ast.Call) -> None:
        head.writes = tuple(self.region(a) for a in node.args)

    def note(self, head: BlockHead, node: ast.Call) -> None:
        head.annotations = self.annotations(node)

    def region(self, node: ast.expr) -> Region:
        buffer = self.value(node.value) if isinstance(node, ast.Subscript) else None
        if not isinstance(node, ast.Subscript) or not isinstance(buffer, Buffer):
            raise self.error(
                node, f"{ast.unparse(node)} is no part of a buffer", remedy="A[i, j:j + 4]"
            )
        parts = parts_of(node.slice)
        if len(parts) != buffer.ndim:
            raise self.error(node, f"{buffer.name} has {buffer.ndim} dimensions, not {len(parts)}")
        return Region(buffer, tuple(map(self.range, parts)))

    def range(self, node: ast.expr) -> Range:
        if not isinstance(node, ast.Slice):
            return Range(self.expr(node), const(1))
        if node.lower is None or node.upper is None or node.step is not None:
            raise self.error(node, "a range has a start and an end", remedy="j:j + 4")
        start = self.expr(node.lower)
        return Range(start, _extent(start, self.expr(node.upper)))


def _closed(rows: list[tuple[list[Stmt], SuiteHead | None]], body: Stmt) -> Stmt:
    """Nest openings around the statements after them; consecutive allocations become one."""
    for before, opening in reversed(rows):
        assert opening is not None
        if opening.buffers and isinstance(body, Alloc):
            body = Alloc((*opening.buffers, *body.buffers), body.body)
        else:
            body = opening.wrap(body)
        body = seq(*before, body)
    return body


def _is_init(node: ast.stmt) -> bool:
    if not isinstance(node, ast.With):
        return False
    call = node.items[0].context_expr
    return isinstance(call, ast.Call) and (dotted(call.func) or "").split(".")[-1] == "init"


def _extent(start: Expr, stop: Expr) -> Expr:
    if is_const(start, 0):
        return stop
    if isinstance(start, Const) and isinstance(stop, Const):
        return Const(int(stop.value) - int(start.value), start.dtype)
    if isinstance(stop, Binary) and stop.op == "add" and stop.a is start:
        return stop.b
    return stop - start


_BLOCK_HEAD: dict[str, Callable[[StmtReader, BlockHead, ast.Call], None]] = {
    "where": lambda r, h, n: r.where(h, n),
    "reads": lambda r, h, n: r.reads(h, n),
    "writes": lambda r, h, n: r.writes(h, n),
    "note": lambda r, h, n: r.note(h, n),
}
_STATEMENTS: dict[type[ast.stmt], Callable[[StmtReader, Any], Any]] = {
    ast.Assign: lambda r, n: r.assign(n),
    ast.AnnAssign: lambda r, n: r.typed_assign(n),
    ast.Assert: lambda r, n: r.assertion(n),
    ast.Expr: lambda r, n: r.expression(n),
    ast.If: lambda r, n: r.choice_statement(n),
    ast.While: lambda r, n: r.while_loop(n),
    ast.For: lambda r, n: r.for_loop(n),
    ast.With: lambda r, n: r.with_statement(n),
    ast.Pass: lambda _r, _n: None,
}
