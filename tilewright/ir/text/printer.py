"""Loop functions as text: valid Python, which `ir.text.parser` reads back to the same function.

    @attrs(key="value")
    def matmul(A: f32[1024, n], B: f32[n, 1024], C: f32[1024, 1024], alpha: f32):
        T = alloc(f32[16, 16], scope="local")      # until the end of the suite
        for i in range(1024):                      # parallel, vectorized, unrolled, thread(4, "x")
            for k in range(n, note={"key": 1}):
                with block("C", vi=spatial(1024, i), vk=reduce(n, k)):
                    where(i < 1000)
                    reads(A[vi, vk:vk + 4])
                    writes(C[vi, vi])
                    note(key="value")
                    with init():
                        C[vi, vi] = 0.0
                    C[vi, vi] = C[vi, vi] + A[vi, vk] * alpha
        x = let(C[0, 0])                           # until the end of the suite
        with scope():                              # a suite of its own, where one must end early
            y = let(x)
            T[0, 0] = y
        store(C[0, ramp(0, 1, 4)], broadcast(x, 4), mask)
        assert n < 9, ("n is {}", n)

Bare whole numbers are i64, those with a point f32; `f64(0.5)` and `f32("inf")` spell the others.
Statements nest and expressions run deep, so both are printed from an explicit stack.
"""

from __future__ import annotations

import json
import keyword
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Binary, Const, Expr, Var, is_const
from tilewright.ir.stmt import (
    TRUE,
    Alloc,
    Assert,
    Block,
    Evaluate,
    For,
    Function,
    If,
    Let,
    Range,
    Region,
    Seq,
    Stmt,
    Store,
    While,
)
from tilewright.ir.text.names import Namer, PlainNamer
from tilewright.ir.text.print_expr import expr_text as expr_text
from tilewright.support.dtype import DType, index

_INDENT = "    "


def function_text(function: Function, mark: Stmt | None = None, message: str = "") -> str:
    """A whole function; the line of the statement `mark` is underlined, with `message`."""
    return _Printer({} if mark is None else {mark: message}).function(function)


def plain_text(function: Function) -> str:
    """A whole function with plain names: functions that differ in names alone have one text."""
    return _Printer({}, PlainNamer()).function(function)


def stmt_text(stmt: Stmt) -> str:
    """A statement; what it does not define itself goes by its hint."""
    return _Printer({}).fragment(stmt)


def listing(function: Function, culprits: Mapping[Stmt, str], context: int = 4) -> str:
    """The lines around the culprits, each underlined with what is said of it, for messages."""
    printer = _Printer(culprits)
    printer.function(function)
    return printer.excerpt(context)


class _Printer:
    """Turns statements into lines."""

    def __init__(self, marks: Mapping[Stmt, str], names: Namer | None = None) -> None:
        self.names = names or Namer()
        self.lines: list[str] = []
        self.marks = marks
        self.marked: list[int] = []
        self.pending: list[tuple[Callable[..., None], Any, Any]] = []

    def function(self, function: Function) -> str:
        for param in function.params:
            self.names.bind(param)
        self._decorators(function)
        params = ", ".join(f"{self.names(p)}: {self._param_type(p)}" for p in function.params)
        name = function.name if _is_name(function.name) else "function"
        self._line(0, f"def {name}({params}):")
        self._later(self.suite, 1, function.body)
        return self._run()

    def fragment(self, stmt: Stmt) -> str:
        self._later(self.suite, 0, stmt)
        return self._run()

    def excerpt(self, context: int) -> str:
        """The header, the marked lines, those near them, and the headers of what they stand in."""
        shown = {0}
        for at in self.marked:
            shown.update(range(at - context, at + context + 2))
            shown.update(self._headers(at))
        picked: list[str] = []
        for number, line in enumerate(self.lines):
            if number in shown:
                picked.append(line)
            elif picked and not picked[-1].endswith("…"):
                picked.append(_indent_of(line) + "…")
        return "\n".join(picked)

    def _headers(self, at: int) -> list[int]:
        depth, found = len(_indent_of(self.lines[at])), list[int]()
        for number in range(at - 1, -1, -1):
            indent = len(_indent_of(self.lines[number]))
            if indent < depth and not self.lines[number].lstrip().startswith("^"):
                depth = indent
                found.append(number)
        return found

    def _run(self) -> str:
        while self.pending:
            step, depth, what = self.pending.pop()
            step(depth, what)
        return "\n".join(self.lines) + "\n"

    def _later(self, step: Callable[..., None], depth: int, what: Any) -> None:
        """Schedule a step; the last one scheduled runs first."""
        self.pending.append((step, depth, what))

    def _line(self, depth: int, text: str) -> None:
        self.lines.append(_INDENT * depth + text)

    def _head(self, depth: int, stmt: Stmt, text: str) -> None:
        """The first line of a statement, underlined where it is a culprit."""
        self._line(depth, text)
        if stmt in self.marks:
            self.marked.append(len(self.lines) - 1)
            self._line(depth, f"{'^' * len(text)} {self.marks[stmt]}".rstrip())

    def _release(self, _depth: int, things: Sequence[Var | Buffer]) -> None:
        self.names.release(*things)

    def _expr(self, expr: Expr) -> str:
        return expr_text(expr, self.names)

    def _exprs(self, exprs: Sequence[Expr]) -> str:
        return ", ".join(map(self._expr, exprs))

    # ---- functions ------------------------------------------------------------------------------

    def _decorators(self, function: Function) -> None:
        if not _is_name(function.name):
            self._line(0, f"@named({literal_text(function.name)})")
        if function.attrs:
            self._line(0, f"@attrs({_keywords(function.attrs)})")

    def _param_type(self, param: Buffer | Var) -> str:
        return param.dtype.short if isinstance(param, Var) else self._buffer_type(param, True)

    def _buffer_type(self, buffer: Buffer, with_scope: bool) -> str:
        parts = [self._expr(d) for d in buffer.shape]
        if buffer.strides is not None:
            parts.append(f"strides({self._exprs(buffer.strides)})")
        if not is_const(buffer.offset, 0):
            parts.append(f"offset({self._expr(buffer.offset)})")
        if with_scope and buffer.scope != "global":
            parts.append(f"scope({literal_text(buffer.scope)})")
        if buffer.alignment != buffer.dtype.itemsize:
            parts.append(f"align({buffer.alignment})")
        return f"{buffer.dtype.short}[{', '.join(parts) or '()'}]"

    # ---- statements -----------------------------------------------------------------------------

    def suite(self, depth: int, body: Stmt) -> None:
        statements = _flat(body)
        if not statements:
            self._head(depth, body, "pass")
            return
        for stmt in reversed(statements):
            ends_early = isinstance(stmt, Let | Alloc) and stmt is not statements[-1]
            self._later(self._scope if ends_early else self._stmt, depth, stmt)

    def _scope(self, depth: int, stmt: Stmt) -> None:
        self._line(depth, "with scope():")
        self._later(self._stmt, depth + 1, stmt)

    def _stmt(self, depth: int, stmt: Stmt) -> None:
        _PRINT[type(stmt)](self, depth, stmt)

    def for_(self, depth: int, s: For) -> None:
        word = "range" if s.kind == "serial" else s.kind
        args = [self._expr(s.extent)]
        if s.kind == "thread":
            args.append(literal_text(s.axis))
        if s.annotations:
            args.append(f"note={literal_text(dict(s.annotations))}")
        self._head(depth, s, f"for {self.names.bind(s.var)} in {word}({', '.join(args)}):")
        self._later(self._release, depth, (s.var,))
        self._later(self.suite, depth + 1, s.body)

    def block(self, depth: int, s: Block) -> None:
        # A block under suspicion may have too few bindings.
        bindings = [self._expr(b) for b in s.bindings] + ["…"] * len(s.iters)
        values = [f"{i.kind}({self._expr(i.extent)}, {b})" for i, b in zip(s.iters, bindings)]  # noqa: B905
        names = [self.names.bind(i.var) for i in s.iters]
        iters = [f", {name}={value}" for name, value in zip(names, values, strict=True)]
        self._head(depth, s, f"with block({literal_text(s.name)}{''.join(iters)}):")
        if s.predicate is not TRUE:
            self._line(depth + 1, f"where({self._expr(s.predicate)})")
        for word, regions in (("reads", s.reads), ("writes", s.writes)):
            if regions:
                self._line(depth + 1, f"{word}({', '.join(map(self._region, regions))})")
        if s.annotations:
            self._line(depth + 1, f"note({_keywords(s.annotations)})")
        self._later(self._release, depth, tuple(i.var for i in s.iters))
        self._later(self.suite, depth + 1, s.body)
        if s.init is not None:
            self._later(self.suite, depth + 2, s.init)
            self._later(self._line, depth + 1, "with init():")

    def _region(self, region: Region) -> str:
        ranges = ", ".join(map(self._range, region.ranges)) or "()"
        return f"{self.names(region.buffer)}[{ranges}]"

    def _range(self, r: Range) -> str:
        if r.extent is Const(1, index):
            return self._expr(r.start)
        if r.start.dtype is not r.extent.dtype:
            # Wrong, but what is wrong is printed too.
            return f"{self._expr(r.start)}:…{self._expr(r.extent)}"
        return f"{self._expr(r.start)}:{self._expr(_stop(r))}"

    def store(self, depth: int, s: Store) -> None:
        element = f"{self.names(s.buffer)}[{self._exprs(s.indices) or '()'}]"
        value = self._expr(s.value)
        if s.mask is None:
            self._head(depth, s, f"{element} = {value}")
        else:
            self._head(depth, s, f"store({element}, {value}, {self._expr(s.mask)})")

    def alloc(self, depth: int, s: Alloc) -> None:
        for number, buffer in enumerate(s.buffers):
            scope = "" if buffer.scope == "global" else f", scope={literal_text(buffer.scope)}"
            kind = self._buffer_type(buffer, False)
            text = f"{self.names.bind(buffer)} = alloc({kind}{scope})"
            self._head(depth, s, text) if number == 0 else self._line(depth, text)
        self._later(self.suite, depth, s.body)

    def if_(self, depth: int, s: If, word: str = "if") -> None:
        self._head(depth, s, f"{word} {self._expr(s.condition)}:")
        if isinstance(s.otherwise, If):
            self._later(self._elif, depth, s.otherwise)
        elif s.otherwise is not None:
            self._later(self.suite, depth + 1, s.otherwise)
            self._later(self._line, depth, "else:")
        self._later(self.suite, depth + 1, s.then)

    def _elif(self, depth: int, s: If) -> None:
        self.if_(depth, s, "elif")

    def while_(self, depth: int, s: While) -> None:
        self._head(depth, s, f"while {self._expr(s.condition)}:")
        self._later(self.suite, depth + 1, s.body)

    def let(self, depth: int, s: Let) -> None:
        value = self._expr(s.value)
        kind = "" if s.var.dtype is s.value.dtype else f": {s.var.dtype.short}"
        self._head(depth, s, f"{self.names.bind(s.var)}{kind} = let({value})")
        self._later(self._release, depth, (s.var,))
        self._later(self.suite, depth, s.body)

    def assert_(self, depth: int, s: Assert) -> None:
        message = literal_text(s.message)
        if s.values:
            message = f"({message}, {self._exprs(s.values)})"
        self._head(depth, s, f"assert {self._expr(s.condition)}, {message}")

    def evaluate(self, depth: int, s: Evaluate) -> None:
        self._head(depth, s, self._expr(s.call))


_PRINT: dict[type[Stmt], Callable[[_Printer, int, Any], None]] = {
    For: _Printer.for_,
    Block: _Printer.block,
    Store: _Printer.store,
    Alloc: _Printer.alloc,
    If: _Printer.if_,
    While: _Printer.while_,
    Let: _Printer.let,
    Assert: _Printer.assert_,
    Evaluate: _Printer.evaluate,
    Seq: _Printer.suite,
}


def _flat(body: Stmt) -> list[Stmt]:
    """The statements of a suite, sequences within sequences opened up."""
    found: list[Stmt] = []
    pending = [body]
    while pending:
        stmt = pending.pop()
        if isinstance(stmt, Seq):
            pending.extend(reversed(stmt.statements))
        else:
            found.append(stmt)
    return found


def _stop(r: Range) -> Expr:
    """Where a range ends; the parser takes the start off again."""
    if is_const(r.start, 0):
        return r.extent
    if isinstance(r.start, Const) and isinstance(r.extent, Const):
        return Const(int(r.start.value) + int(r.extent.value), r.start.dtype)
    return Binary("add", r.start, r.extent)


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _is_name(text: str) -> bool:
    return text.isascii() and text.isidentifier() and not keyword.iskeyword(text)


def _keywords(values: Mapping[str, Any]) -> str:
    if all(_is_name(k) for k in values):
        return ", ".join(f"{k}={literal_text(v)}" for k, v in values.items())
    return literal_text(dict(values))


def literal_text(value: object) -> str:
    """An annotation: what Python can write as a literal, or an element type."""
    write = _LITERALS.get(type(value))
    return write(value) if write else f"opaque({_quoted(repr(value))})"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text.isprintable() else repr(text)


def _float_literal(value: float) -> str:
    return repr(value) if math.isfinite(value) else f'float("{value}")'


def _tuple_literal(value: tuple[Any, ...]) -> str:
    inner = ", ".join(map(literal_text, value))
    return f"({inner},)" if len(value) == 1 else f"({inner})"


def _dict_literal(value: dict[Any, Any]) -> str:
    pairs = (f"{literal_text(k)}: {literal_text(v)}" for k, v in value.items())
    return "{" + ", ".join(pairs) + "}"


_LITERALS: dict[type, Callable[[Any], str]] = {
    type(None): repr,
    bool: repr,
    int: repr,
    str: _quoted,
    float: _float_literal,
    DType: repr,
    tuple: _tuple_literal,
    list: lambda v: "[" + ", ".join(map(literal_text, v)) + "]",
    dict: _dict_literal,
}
