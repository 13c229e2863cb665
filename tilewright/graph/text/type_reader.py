"""Reads types and literals of the graph's text form from Python's syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.ir.attributes import Attribute
from tilewright.graph.ir.types import (
    ANY,
    STRING,
    DataType,
    FunctionType,
    OptionalType,
    SequenceType,
    TensorType,
    TupleType,
    Type,
    UnknownType,
)
from tilewright.ir import DType, Expr, ExprReader, Source, Var, find_dtype


def element_type(name: str) -> DType | None:
    """The element type of this name, strings included."""
    return STRING if name == "str" else find_dtype(name)


class TypeReader(ExprReader):
    """Reads types; where dimensions may be defined, unknown names become dimensions."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self._defines_dims = False
        self.data_types: set[str] = set()

    def definition(self, node: ast.expr) -> Type:
        """The type of a parameter or an output, which may define new dimensions."""
        self._defines_dims = True
        try:
            return self.type(node)
        finally:
            self._defines_dims = False

    def type(self, node: ast.expr) -> Type:
        read = _TYPES.get(type(node))
        if read is None:
            raise self.error(node, f"`{ast.unparse(node)}` is no type")
        return self.located(node, read, self, node)

    def name(self, node: ast.Name) -> Any:
        """A name in an expression: a symbolic dimension."""
        if node.id == "_":
            return ANY
        if self._defines_dims and self.find(node.id) is None:
            self.define(node, node.id, Var(node.id))
        found = self.resolve(node)
        if not isinstance(found, Var):
            raise self.error(node, f"{node.id} is no symbolic dimension", "it names a value")
        return found

    def named_type(self, node: ast.Name) -> Type:
        dtype = element_type(node.id)
        if dtype is not None:
            return UnknownType(dtype)
        if node.id not in self.data_types:
            raise self.error(node, f"no type {node.id}", remedy="declare it with class")
        return DataType(node.id)

    def subscripted(self, node: ast.Subscript) -> Type:
        word = node.value.id if isinstance(node.value, ast.Name) else ""
        if word in _WRAPPERS:
            return _WRAPPERS[word](self.type(node.slice))
        if word == "fn" and isinstance(node.slice, ast.Tuple) and len(node.slice.elts) == 2:
            params, results = (self.types(p) for p in node.slice.elts)
            return FunctionType(params, results)
        dtype = element_type(word)
        if dtype is None:
            raise self.error(node, f"{word} is no element type", remedy="such as f32 or i64")
        if isinstance(node.slice, ast.Constant) and node.slice.value is ...:
            return UnknownType(dtype, differs=True)
        return TensorType(dtype, [self.expr(d) for d in _items(node.slice)])

    def types(self, node: ast.expr) -> list[Type]:
        """Types in parentheses, which a single one may lack."""
        return [self.type(n) for n in _items(node)]

    # ---- literals -------------------------------------------------------------------------------

    def literal_array(self, node: ast.Call, dtype: DType) -> Any:
        """`f32(0.5)`, `i64([1, 2])`: a constant."""
        if len(node.args) != 1:
            raise self.error(node, f"{dtype} takes one number or list")
        value = self.plain(node.args[0])
        if dtype is STRING:
            return np.array(value, object)
        return self.located(node, _array, value, dtype)

    def plain(self, node: ast.expr) -> Any:
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError):
            raise self.error(node, f"`{ast.unparse(node)}` is no literal") from None

    def attribute_value(self, node: ast.expr, declared: Attribute) -> Any:
        """The value of an attribute, read according to its kind."""
        if isinstance(node, ast.Constant) and node.value is None:
            return None
        return _ATTRIBUTES.get(declared.kind, TypeReader.plain)(self, node)

    def dim(self, node: ast.expr) -> Expr:
        return self.expr(node)

    def dtype_named(self, node: ast.expr) -> DType:
        found = element_type(node.id) if isinstance(node, ast.Name) else None
        if found is None:
            raise self.error(node, f"`{ast.unparse(node)}` is no element type")
        return found

    def array_attribute(self, node: ast.expr) -> Any:
        """`array(f32, [1.0, 2.0])`, with the shape where there are no elements."""
        if not isinstance(node, ast.Call) or len(node.args) not in (2, 3):
            raise self.error(node, "an array is written array(f32, [1.0, 2.0])")
        made = _array(self.plain(node.args[1]), self.dtype_named(node.args[0]))
        return made.reshape(self.plain(node.args[2])) if len(node.args) == 3 else made

    def number(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Call) and len(node.args) == 1:
            return float(self.plain(node.args[0]))
        return self.plain(node)


def _array(value: Any, dtype: DType) -> Any:
    if dtype is STRING:
        return np.array(value, object)
    wide = np.asarray(value, np.float64) if dtype.is_float else np.asarray(value)
    return wide.astype(dtype.numpy)


def _items(node: ast.expr) -> list[ast.expr]:
    return node.elts if isinstance(node, ast.Tuple | ast.List) else [node]


_WRAPPERS: dict[str, Callable[[Type], Type]] = {"seq": SequenceType, "opt": OptionalType}
_TYPES: dict[type[ast.expr], Callable[[TypeReader, Any], Type]] = {
    ast.Name: TypeReader.named_type,
    ast.Subscript: TypeReader.subscripted,
    ast.Tuple: lambda r, n: TupleType(r.types(n)),
}
_ATTRIBUTES: dict[str, Callable[[TypeReader, Any], Any]] = {
    "Dim": TypeReader.dim,
    "Dims": lambda r, n: [r.dim(e) for e in _items(n)],
    "DType": TypeReader.dtype_named,
    "Array": TypeReader.array_attribute,
    "float": TypeReader.number,
    "Floats": lambda r, n: [r.number(e) for e in _items(n)],
}
