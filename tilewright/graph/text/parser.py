"""Reads modules from the text form that `graph.text.printer` writes and describes.

The text is Python's syntax but for the word `const`, so Python's own parser reads it; nothing is
executed. Types of bindings may be left out where the operators determine them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.graph.building.builder import Builder
from tilewright.graph.ir import (
    Array,
    CallFunction,
    DataDef,
    Function,
    Fused,
    Graph,
    Match,
    Module,
    Value,
)
from tilewright.graph.ir.op import find_op
from tilewright.graph.ir.types import TensorType, Type
from tilewright.graph.text.type_reader import TypeReader, element_type
from tilewright.ir import Source, Var
from tilewright.support.errors import nearest

_CONST = re.compile(r"(:\s*)const (?=\w)")


def parse_module(
    text: str,
    constants: Mapping[str, Array] | None = None,
    file: str = "<text>",
    *,
    blank: bool = False,
) -> Module:
    """The module that `text` describes, with its constants from a table.

    With `blank`, constants that the table lacks are zeros that take no memory, for inspection.
    """
    # Of the same length, so that positions in messages stay right.
    lines = [_CONST.sub(r"\1const_", s) if "def " in s else s for s in text.splitlines()]
    source = Source("\n".join(lines), file)
    tree = source.parse()
    try:
        return _ModuleReader(source, constants or {}, blank).module(tree)
    except RecursionError:
        raise source.too_deep() from None


class _ModuleReader(TypeReader):
    """Reads one module; builds with a `Builder`, which infers and checks types."""

    def __init__(self, source: Source, constants: Mapping[str, Array], blank: bool) -> None:
        super().__init__(source)
        self._table, self._blank = constants, blank
        self._constants: dict[str, Value] = {}
        self._functions: set[str] = set()
        self._data: dict[str, DataDef] = {}
        self.builder = Builder()

    def module(self, tree: ast.Module) -> Module:
        for node in tree.body:
            if not isinstance(node, ast.ClassDef | ast.FunctionDef):
                raise self.error(node, "expected a function or a data type")
            names = self.data_types if isinstance(node, ast.ClassDef) else self._functions
            if node.name in names:
                raise self.error(node, f"{node.name} is defined twice")
            names.add(node.name)
        self._data = {n.name: self._data_type(n) for n in tree.body if isinstance(n, ast.ClassDef)}
        functions = [self._function(n) for n in tree.body if isinstance(n, ast.FunctionDef)]
        return Module(functions, self._data.values())

    def _data_type(self, node: ast.ClassDef) -> DataDef:
        rows = [s.value for s in node.body if isinstance(s, ast.Expr)]
        constructors: dict[str, list[Type]] = {}
        for row in rows:
            if not isinstance(row, ast.Call) or not isinstance(row.func, ast.Name):
                raise self.error(row, "a constructor is written Name(types)")
            constructors[row.func.id] = [self.definition(a) for a in row.args]
        return DataDef(node.name, constructors)

    # ---- functions and graphs -------------------------------------------------------------------

    @contextmanager
    def _scope(self) -> Generator[None]:
        self.scopes.append({})
        try:
            yield
        finally:
            self.scopes.pop()

    def _function(self, node: ast.FunctionDef) -> Function:
        self.builder = Builder(node.name)
        with self._scope():
            for arg in node.args.args:
                self._param(arg)
            self._suite(node.body)
            self._check_results(node)
            function = self.builder.function()
        names = self._interface(node)
        for param, name in zip(function.params, names.get("inputs", ()), strict=False):
            param.name = name
        outputs = names.get("outputs")
        return function if outputs is None else function.named(outputs)

    def _interface(self, node: ast.FunctionDef) -> dict[str, list[str]]:
        """`@names(inputs=[…], outputs=[…])`: names that are no identifiers."""
        found: dict[str, list[str]] = {}
        for decorator in node.decorator_list:
            if not isinstance(decorator, ast.Call):
                raise self.error(decorator, f"unknown decorator {ast.unparse(decorator)}")
            found |= {k.arg or "": self.plain(k.value) for k in decorator.keywords}
        return found

    def _param(self, arg: ast.arg) -> None:
        if arg.annotation is None:
            raise self.error(arg, f"{arg.arg} has no type")
        head = arg.annotation.value if isinstance(arg.annotation, ast.Subscript) else None
        if isinstance(head, ast.Name) and head.id.startswith("const_"):
            head.id = head.id.removeprefix("const_")
            self.define(arg, arg.arg, self._constant(arg, self.definition(arg.annotation)))
            return
        self.define(arg, arg.arg, self.builder.input(arg.arg, self.definition(arg.annotation)))

    def _constant(self, arg: ast.arg, type_: Type) -> Value:
        known = self._constants.get(arg.arg)
        if known is not None:
            return known
        if arg.arg in self._table:
            array = np.asarray(self._table[arg.arg])
        elif self._blank and isinstance(type_, TensorType) and type_.is_static:
            array = np.broadcast_to(np.zeros((), type_.dtype.numpy), type_.static_shape)
        else:
            remedy = nearest(arg.arg, self._table)
            raise self.error(arg, f"the table has no constant {arg.arg}", remedy=remedy)
        value = Value(arg.arg, type_, array)
        self._constants[arg.arg] = value
        if TensorType(value.dtype, array.shape) != type_:
            raise self.error(
                arg, f"the constant {arg.arg} is {array.dtype}{list(array.shape)}", f"not {type_}"
            )
        return value

    def _suite(self, body: Sequence[ast.stmt]) -> None:
        types: dict[str, Type] = {}
        for stmt in body:
            read = _STATEMENTS.get(type(stmt))
            if read is None:
                raise self.error(stmt, f"`{ast.unparse(stmt)[:40]}` has no meaning in a graph")
            self.located(stmt, read, self, stmt, types)

    def _check_results(self, node: ast.FunctionDef) -> None:
        if node.returns is None:
            return
        declared = node.returns
        many = isinstance(declared, ast.Tuple)
        results = self.builder.results
        wanted = self.types(declared) if many and len(results) != 1 else [self.type(declared)]
        found = [r.type for r in results]
        if wanted != found:
            raise self.error(declared, f"{node.name} returns {wanted}", f"its results are {found}")

    # ---- statements -----------------------------------------------------------------------------

    def inner(self, node: ast.FunctionDef, _types: dict[str, Type]) -> None:
        self.builder.open_block()
        with self._scope():
            for arg in node.args.args:
                self._param(arg)
            self._suite(node.body)
        self.define(node, node.name, self.builder.close_block())

    def declared(self, node: ast.AnnAssign, types: dict[str, Type]) -> None:
        """`x: f32[3] = …`, or `x: f32[3]` ahead of several outputs."""
        if not isinstance(node.target, ast.Name):
            raise self.error(node, "only names have types")
        type_ = self.definition(node.annotation)
        if node.value is None:
            types[node.target.id] = type_
        else:
            self._bind(node, [node.target], node.value, {node.target.id: type_})

    def assigned(self, node: ast.Assign, types: dict[str, Type]) -> None:
        target = node.targets[0]
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        plain = [n for n in names if isinstance(n, ast.Name)]
        if len(plain) != len(names):
            raise self.error(target, "only names are bound")
        if isinstance(node.value, ast.Call) and self.callee(node.value) == "read":
            self._read(node.value, plain)
        else:
            self._bind(node, plain, node.value, types)

    def returned(self, node: ast.Return, _types: dict[str, Type]) -> None:
        parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        self.builder.output(*(self.graph_value(p) for p in parts if p is not None))

    def alone(self, node: ast.Expr, types: dict[str, Type]) -> None:
        """A call without outputs."""
        self._bind(node, [], node.value, types)

    def _read(self, node: ast.Call, names: Sequence[ast.Name]) -> None:
        value = self.graph_value(node.args[0])
        dims = [Var(n.id) for n in names]
        for name, dim in zip(names, dims, strict=True):
            self.define(name, name.id, dim)
        natural = any(k.arg == "natural" and self.plain(k.value) is True for k in node.keywords)
        self.builder.bind_read(value, dims, natural=natural)

    def _bind(
        self, node: ast.AST, names: Sequence[ast.Name], expr: ast.expr, types: dict[str, Type]
    ) -> None:
        declared = [types[n.id] for n in names if n.id in types]
        results = self.expression(expr, declared if len(declared) == len(names) else None)
        if len(results) != len(names):
            raise self.error(node, f"{len(results)} results are bound to {len(names)} names")
        for name, value in zip(names, results, strict=True):
            value.name = name.id
            if name.id in types:
                self._retype(name, value, types[name.id])
            self.define(name, name.id, value)

    def _retype(self, node: ast.Name, value: Value, type_: Type) -> None:
        """The written type replaces the inferred one, unless they contradict each other."""
        from tilewright.graph.ir.unify import may_be

        if not may_be(value.type, type_):
            raise self.error(node, f"{node.id} is written as {type_}", f"it is {value.type}")
        self.builder.retype(value, type_)

    # ---- expressions ----------------------------------------------------------------------------

    def graph_value(self, node: ast.expr) -> Value:
        """A value by name, or a small constant."""
        if isinstance(node, ast.Call):
            dtype = element_type(self.callee(node))
            if dtype is not None:
                return self.builder.constant(self.literal_array(node, dtype), dtype)
        found = self.resolve(node) if isinstance(node, ast.Name) else None
        if not isinstance(found, Value):
            raise self.error(node, f"`{ast.unparse(node)}` is no value")
        return found

    def optional_value(self, node: ast.expr) -> Value | None:
        missing = isinstance(node, ast.Constant) and node.value is None
        return None if missing else self.graph_value(node)

    def graph_named(self, node: ast.expr) -> Graph:
        found = self.resolve(node) if isinstance(node, ast.Name) else None
        if not isinstance(found, Graph):
            raise self.error(node, f"`{ast.unparse(node)}` is no graph")
        return found

    def expression(self, node: ast.expr, types: list[Type] | None) -> Sequence[Value]:
        """What stands on the right of a binding, bound."""
        if isinstance(node, ast.Tuple):
            return [self.builder.make_tuple(*map(self.graph_value, node.elts))]
        if isinstance(node, ast.Subscript):
            return [self.builder.project(self.graph_value(node.value), self.plain(node.slice))]
        if not isinstance(node, ast.Call):
            raise self.error(node, f"`{ast.unparse(node)}` cannot be bound", remedy="call an op")
        if isinstance(node.func, ast.Attribute):
            return [self._construct(node)]
        word = _WORDS.get(self.callee(node))
        if word is None:
            return self._operator(node)
        results = word(self, node, types)
        return [results] if isinstance(results, Value) else results

    def _operator(self, node: ast.Call) -> Sequence[Value]:
        op = find_op(self.callee(node))
        args = [self.optional_value(a) for a in node.args]
        attrs: dict[str, Any] = {}
        for keyword in node.keywords:
            declared = op.attributes.get(keyword.arg or "")
            if declared is None:
                remedy = nearest(keyword.arg or "", op.attributes)
                raise self.error(keyword, f"{op.name} has no attribute {keyword.arg}", "", remedy)
            attrs[declared.name] = self.attribute_value(keyword.value, declared)
        return self.builder.emit_all(op, args, attrs)

    def branch(self, node: ast.Call, _types: Any) -> Any:
        condition, then, otherwise = self._args(node, 3)
        graphs = self.graph_named(then), self.graph_named(otherwise)
        return self.builder.bind_branch(self.graph_value(condition), *graphs)

    def loop(self, node: ast.Call, _types: Any) -> Any:
        count, going, state, body = self._args(node, 4)
        items = state.elts if isinstance(state, ast.List) else [state]
        return self.builder.bind_loop(
            self.optional_value(count),
            self.optional_value(going),
            [self.graph_value(v) for v in items],
            self.graph_named(body),
        )

    def call_word(self, node: ast.Call, types: list[Type] | None) -> Any:
        if not node.args:
            raise self.error(node, "call takes a function and its arguments")
        head, *rest = node.args
        args = [self.graph_value(a) for a in rest]
        if isinstance(head, ast.Name) and head.id in self._functions:
            if types is None:
                raise self.error(node, "the results of a call need types")
            return self.builder.bind(CallFunction(head.id, args), types, ["call"])
        return self.builder.call(self.graph_value(head), *args, types=types)

    def match_word(self, node: ast.Call, _types: Any) -> Any:
        value = self.graph_value(self._args(node, 1)[0])
        arms = {k.arg or "": self.graph_named(k.value) for k in node.keywords}
        return self.builder.bind_match(Match(value, arms))

    def _construct(self, node: ast.Call) -> Value:
        data, _, constructor = self.callee(node).rpartition(".")
        if data not in self._data:
            raise self.error(node, f"no data type {data}", remedy=nearest(data, self._data))
        args = [self.graph_value(a) for a in node.args]
        return self.builder.construct(self._data[data], constructor, *args)

    def closure(self, node: ast.Call, _types: Any) -> Any:
        return self.builder.bind_closure(self.graph_named(self._args(node, 1)[0]))

    def fused(self, node: ast.Call, _types: Any) -> Any:
        graph = self.graph_named(self._args(node, 1)[0])
        types = [r.type for r in graph.results]
        return self.builder.bind(Fused(graph), types, ["fused"])

    def _args(self, node: ast.Call, count: int) -> list[ast.expr]:
        if len(node.args) != count:
            raise self.error(node, f"{self.callee(node)} takes {count} operands")
        return node.args


_STATEMENTS: dict[type[ast.stmt], Callable[[_ModuleReader, Any, dict[str, Type]], None]] = {
    ast.FunctionDef: _ModuleReader.inner,
    ast.AnnAssign: _ModuleReader.declared,
    ast.Assign: _ModuleReader.assigned,
    ast.Return: _ModuleReader.returned,
    ast.Expr: _ModuleReader.alone,
}
_WORDS: dict[str, Callable[[_ModuleReader, ast.Call, list[Type] | None], Any]] = {
    "branch": _ModuleReader.branch,
    "loop": _ModuleReader.loop,
    "closure": _ModuleReader.closure,
    "fused": _ModuleReader.fused,
    "call": _ModuleReader.call_word,
    "match": _ModuleReader.match_word,
}
