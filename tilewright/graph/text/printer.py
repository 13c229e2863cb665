"""Graphs as text. `parse_module` reads it back; see `graph.text.parser` for the other direction.

    class List:
        Nil()
        Cons(f32[4], List)

    def main(x: f32[n, 3], w: const f32[64, 3]) -> (f32[n, 64], i64[()]):
        a: f32[n, 64] = dense(x, w)
        def then():
            b: f32[n, 64] = relu(a)
            return b
        def otherwise():
            return a
        y: f32[n, 64] = branch(c, then, otherwise)
        return y, i64(3)

Constants of more than a few elements are parameters that refer to a table (`module_constants`).
Graphs inside an expression are defined before it. Several outputs are typed on lines before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, cast

import numpy as np

from tilewright.graph.ir import (
    Array,
    Binding,
    Call,
    CallFunction,
    Closure,
    Construct,
    DataDef,
    Function,
    Fused,
    Graph,
    If,
    Loop,
    MakeTuple,
    Match,
    Module,
    Node,
    Project,
    Read,
    Value,
    all_graphs,
)
from tilewright.graph.ir.attributes import attribute_parts, same_attribute
from tilewright.graph.ir.types import STRING, TensorType, dtype_of
from tilewright.graph.sizes.naturals import is_signed
from tilewright.graph.text.type_text import dim_text, type_text, types_text
from tilewright.ir import DType, Expr, Namer, Var
from tilewright.support.narrowing import is_sequence

#: Constants of at most this many elements are written out.
INLINE_LIMIT: Final = 8
_INDENT: Final = "    "


def module_text(module: Module) -> str:
    """A module in the text form."""
    return _Printer(module).module()


def module_constants(module: Module) -> dict[str, Array]:
    """The constants that the text refers to, by the names it gives them."""
    printer = _Printer(module)
    return {printer.names(v): v.constant for v in printer.constants if v.constant is not None}


def function_text(function: Function) -> str:
    """One function in the text form."""
    return "\n".join(_Printer(Module([function])).function(function))


def binding_text(binding: Binding) -> str:
    """One binding, for messages; graphs inside it are left out."""
    return _Printer(Module([])).binding_line(binding, lambda _: "…")


def call_text(name: str, args: Sequence[Any], attrs: dict[str, Any]) -> str:
    """A call with the types of its operands, for messages."""
    operands = [_operand_text(a) for a in args]
    given = [f"{k}={_attribute(v, None)}" for k, v in attrs.items() if v is not None]
    return f"{name}({', '.join([*operands, *given])})"


def _operand_text(operand: Any) -> str:
    if isinstance(operand, Value):
        return f"{operand.name}: {operand.type}"
    shape: tuple[int, ...] = getattr(operand, "shape", ())
    return f"numbers{[*shape]}" if shape else str(operand)


class _Names(Namer):
    """Names for values, constants and dimensions, which share one name space."""

    def __call__(self, thing: Any) -> str:
        return super().__call__(thing)

    def bind(self, thing: Any) -> str:
        return super().bind(thing)

    def release(self, *things: Any) -> None:
        super().release(*things)


class _Printer:
    """Prints with names that are unique within a function; constants within the module."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self.names = _Names()
        for name in (*module.functions, *module.data_types):
            self.names.bind(Var(name))
        self.constants = list(dict.fromkeys(_constants(module.functions.values())))
        for value in self.constants:
            self.names.bind(value)

    def module(self) -> str:
        parts = [self._data_type(d) for d in self._module.data_types.values()]
        parts += [self.function(f) for f in self._module.functions.values()]
        return "\n\n".join("\n".join(p) for p in parts) + "\n"

    def _data_type(self, data: DataDef) -> list[str]:
        rows = [f"{_INDENT}{c}({types_text(f, self.names)})" for c, f in data.constructors.items()]
        return [f"class {data.name}:", *(rows or [f"{_INDENT}pass"])]

    def function(self, function: Function) -> list[str]:
        names, self.names = self.names, _scoped(self.names)
        params = [f"{self.names.bind(p)}: {self.type(p)}" for p in function.params]
        used = dict.fromkeys(_constants([function]))
        params += [f"{self.names(v)}: const {self.type(v)}" for v in used]
        block = self._block(function, _INDENT)
        # Only now do all dimensions that the results may mention have names.
        results = types_text((r.type for r in function.results), self.names)
        many = len(function.results) != 1
        head = f"def {function.name}({', '.join(params)}) -> {f'({results})' if many else results}:"
        lines = [*self._interface(function), head, *block]
        self.names = names
        return lines

    def _interface(self, function: Function) -> list[str]:
        """Names of inputs and outputs that differ from those in the text."""
        inputs, outputs = [p.name for p in function.params], list(function.outputs)
        given: list[str] = []
        if inputs != [self.names(p) for p in function.params]:
            given.append(f"inputs={inputs!r}")
        shown = [r.name if r.is_constant else self.names(r) for r in function.results]
        if outputs not in (shown, [r.name for r in function.results]):
            given.append(f"outputs={outputs!r}")
        return [f"@names({', '.join(given)})"] if given else []

    def type(self, value: Value) -> str:
        return type_text(value.type, self.names)

    def _block(self, graph: Graph, indent: str) -> list[str]:
        lines: list[str] = []
        for binding in graph.body:
            lines += self._binding(binding, indent)
        results = [self.value(r) for r in graph.results]
        return [*lines, f"{indent}return {', '.join(results)}".rstrip()]

    def _binding(self, binding: Binding, indent: str) -> list[str]:
        lines: list[str] = []
        graphs: dict[Graph, str] = {}
        for hint, graph in _inner(binding.expr):
            graphs[graph] = self.names.bind(Var(hint))
            lines += self._inner(graph, graphs[graph], indent)
        text = self.binding_line(binding, graphs.__getitem__)
        if len(binding.outputs) > 1:
            lines += [f"{indent}{self.names(v)}: {self.type(v)}" for v in binding.outputs]
        return [*lines, f"{indent}{text}"]

    def _inner(self, graph: Graph, name: str, indent: str) -> list[str]:
        params = ", ".join(f"{self.names.bind(p)}: {self.type(p)}" for p in graph.params)
        return [f"{indent}def {name}({params}):", *self._block(graph, indent + _INDENT)]

    def binding_line(self, binding: Binding, graph_name: Callable[[Graph], str]) -> str:
        """The binding on one line."""
        expr = binding.expr
        text = _EXPRS[type(expr)](self, expr, graph_name)
        if isinstance(expr, Read):
            return f"{', '.join(map(self.names, expr.dims))}, = {text}"
        outputs = [self.names.bind(v) for v in binding.outputs]
        if len(outputs) == 1:
            return f"{outputs[0]}: {self.type(binding.outputs[0])} = {text}"
        return f"{', '.join(outputs)} = {text}" if outputs else text

    # ---- expressions ----------------------------------------------------------------------------

    def value(self, value: Value | None) -> str:
        if value is None:
            return "None"
        if value.constant is not None and is_inline(value):
            return _literal(value)
        return self.names(value)

    def values(self, values: Iterable[Value | None]) -> str:
        return ", ".join(map(self.value, values))

    def call(self, call: Call, _graph: Any) -> str:
        args = list(call.args)
        while args and args[-1] is None:
            args.pop()
        given = [
            f"{name}={_attribute(call.attrs[name], self.names)}"
            for name, declared in call.op.attributes.items()
            if declared.is_required or not same_attribute(call.attrs[name], declared.default)
        ]
        return f"{call.op.name}({', '.join([*map(self.value, args), *given])})"

    def make_tuple(self, node: MakeTuple, _graph: Any) -> str:
        return f"({self.values(node.items)}{',' if len(node.items) == 1 else ''})"

    def loop(self, node: Loop, graph: Callable[[Graph], str]) -> str:
        head = self.values((node.trip_count, node.condition))
        return f"loop({head}, [{self.values(node.initial)}], {graph(node.body)})"

    def call_function(self, node: CallFunction, _graph: Any) -> str:
        callee = node.callee if isinstance(node.callee, str) else self.value(node.callee)
        return f"call({', '.join([callee, *map(self.value, node.operands)])})"

    def match(self, node: Match, graph: Callable[[Graph], str]) -> str:
        arms = [f"{c}={graph(g)}" for c, g in node.arms.items()]
        return f"match({', '.join([self.value(node.value), *arms])})"


def _natural(dims: Sequence[Var]) -> str:
    """Marks read dimensions that cannot be negative."""
    return "" if any(map(is_signed, dims)) else ", natural=True"


_EXPRS: dict[type[Node], Callable[[_Printer, Any, Callable[[Graph], str]], str]] = {
    Call: _Printer.call,
    Read: lambda p, n, _: f"read({p.value(n.value)}{_natural(n.dims)})",
    MakeTuple: _Printer.make_tuple,
    Project: lambda p, n, _: f"{p.value(n.value)}[{n.index}]",
    If: lambda p, n, g: f"branch({p.value(n.condition)}, {g(n.then)}, {g(n.otherwise)})",
    Loop: _Printer.loop,
    Closure: lambda _, n, g: f"closure({g(n.graph)})",
    CallFunction: _Printer.call_function,
    Construct: lambda p, n, _: f"{n.data_type}.{n.constructor}({p.values(n.args)})",
    Match: _Printer.match,
    Fused: lambda _, n, g: f"fused({g(n.graph)})",
}


#: Names of the graphs inside an expression.
_HINTS: dict[type[Node], Sequence[str]] = {
    If: ("then", "otherwise"),
    Loop: ("body",),
    Closure: ("inner",),
    Fused: ("group",),
}


def _inner(expr: Node) -> list[tuple[str, Graph]]:
    names = _HINTS.get(type(expr), ())
    if isinstance(expr, Match):
        names = [c.lower() for c in expr.arms]
    return list(zip(names, expr.graphs, strict=True))


def _scoped(names: _Names) -> _Names:
    """A copy of the names, to which a function adds its own."""
    scoped = _Names()
    scoped.adopt(names)
    return scoped


# ---- constants and attributes -------------------------------------------------------------------


def is_inline(value: Value) -> bool:
    """Whether a constant is written out where it is used."""
    array = value.constant
    if array is None or array.ndim > 1 or array.size > INLINE_LIMIT or array.size == 0:
        return False
    plain = value.dtype is STRING or not value.dtype.is_storage_only
    return plain and not (value.dtype.is_float and bool(np.isnan(array).any()))


def _constants(functions: Iterable[Function]) -> Iterable[Value]:
    """The constants that need a name, in order of use."""
    for function in functions:
        for graph in all_graphs(function):
            used = [a for b in graph.body for a in b.expr.args]
            for value in (*used, *graph.results):
                if value is not None and value.is_constant and not is_inline(value):
                    yield value


def _literal(value: Value) -> str:
    array = value.constant
    assert array is not None and isinstance(value.type, TensorType)
    items = [_number(v) for v in array.ravel()]
    text = f"[{', '.join(items)}]" if array.ndim else items[0]
    return f"{value.dtype.short}({text})"


def _number(value: Any) -> str:
    plain = cast(Any, value).item() if isinstance(value, np.generic) else value
    if not isinstance(plain, float | int | str):
        plain = float(plain)
    return f'"{plain}"' if isinstance(plain, float) and math.isinf(plain) else repr(plain)


def _attribute(value: Any, names: Namer | None) -> str:
    if is_sequence(value):
        return f"[{', '.join(_attribute(v, names) for v in attribute_parts(tuple(value)))}]"
    if isinstance(value, Expr):
        return dim_text(value, names)
    if isinstance(value, DType):
        return value.short
    if isinstance(value, np.ndarray):
        return _array_text(cast(Array, value))
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _array_text(array: Array) -> str:
    dtype = dtype_of(array.dtype).short
    if not array.size:
        return f"array({dtype}, [], {array.shape!r})"
    return f"array({dtype}, {_nested(array)})"


def _nested(array: Array) -> str:
    """The elements in brackets; those that are not finite in quotes."""
    if array.ndim:
        return f"[{', '.join(_nested(row) for row in array)}]"
    plain = array.item()
    plain = plain if isinstance(plain, bool | int | str) else float(plain)
    finite = not isinstance(plain, float) or math.isfinite(plain)
    return repr(plain) if finite else f'"{plain}"'
