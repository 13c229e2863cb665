"""Expressions in script functions, which can use values of the code around."""

from __future__ import annotations

import ast
import operator
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilewright.ir import (
    INTRINSICS,
    Buffer,
    Const,
    DType,
    Expr,
    Function,
    Source,
    StmtReader,
    as_expr,
    call,
    cast,
    dotted,
    loads_in,
)
from tilewright.support.errors import UserError
from tilewright.support.narrowing import is_tuple
from tilewright.tensor.language import BufferType, ElementType

Number = bool | int | float
_KNOWN = (bool, int, float, tuple, str, Function, types.ModuleType)


class ScriptValues(StmtReader):
    """Reads expressions over the names in scope and those that the function captured.

    A value is an expression, a buffer, or something known now: a number, a tuple, an element type.
    Numbers are computed with at once, as Python does.
    """

    def __init__(self, source: Source, captured: Mapping[str, Any]) -> None:
        super().__init__(source)
        self.captured = captured

    # ---- names ----------------------------------------------------------------------------------

    def resolve(self, node: ast.Name) -> Any:
        found = self.find(node.id)
        if found is None and node.id in self.captured:
            return self._known(node, self.captured[node.id])
        return super().resolve(node)

    def dimension(self, node: ast.Name) -> Any:
        """A name in a shape: numbers that the function captured, or a symbolic dimension."""
        known = _plain(self.captured.get(node.id))
        is_known = isinstance(known, int | tuple) and not isinstance(known, bool)
        return _unnarrowed(known) if is_known else super().dimension(node)

    def _known(self, node: ast.AST, thing: Any) -> Any:
        thing = _plain(thing)
        if isinstance(thing, _KNOWN):
            return _unnarrowed(thing)
        dtype = _as_dtype(thing)
        if dtype is None:
            raise self.error(
                node,
                f"{ast.unparse(node)} cannot be used in a script",
                f"it is {type(thing).__name__}",
                "numbers, tuples, element types and loop functions can",
            )
        return dtype

    def find_function(self, node: ast.Call) -> Function | None:
        """The loop function that is called, if it is one."""
        name = dotted(node.func)
        root = (name or "").split(".")[0]
        if name is None or self.find(root) is not None or root not in self.captured:
            return None
        found: Any = self.captured[root]
        for part in name.split(".")[1:]:
            found = getattr(found, part, None)
        return found if isinstance(found, Function) else None

    def word(self, node: ast.Call) -> str | None:
        """The name of the callee, without the modules before it."""
        name = dotted(node.func)
        if name is None:
            return None
        root, *rest = name.split(".")
        is_module = isinstance(self.captured.get(root), types.ModuleType)
        return rest[-1] if rest and is_module and self.find(root) is None else name

    def callee(self, node: ast.Call) -> str:
        return self.word(node) or super().callee(node)

    # ---- types ----------------------------------------------------------------------------------

    def annotation(self, node: ast.expr) -> ast.expr:
        """`"f32[n]"` means f32[n], and so does `Annotated[Any, f32["n"]]`."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return self.annotation(self._parsed(node, node.value))
        name = dotted(node.value) if isinstance(node, ast.Subscript) else dotted(node)
        if isinstance(node, ast.Subscript) and (name or "").split(".")[-1] == "Annotated":
            assert isinstance(node.slice, ast.Tuple)
            return self.annotation(node.slice.elts[1])
        known = self.captured.get(name) if name else None
        if isinstance(known, BufferType):
            return self._parsed(node, repr(known))
        return node

    def _parsed(self, node: ast.expr, text: str) -> ast.expr:
        try:
            tree = ast.parse(text, mode="eval").body
        except SyntaxError as error:
            raise self.error(node, f"{text!r} is no type", str(error.msg)) from None
        for part in ast.walk(tree):
            ast.copy_location(part, node)
        return tree

    def extent(self, node: ast.expr) -> Expr:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = self._parsed(node, node.value)
        extent = super().extent(node)
        if loads_in(extent):
            raise self.error(
                node, "a shape cannot depend on memory", remedy="give the value a name with let(…)"
            )
        return extent

    def dtype(self, node: ast.expr) -> DType:
        name = dotted(node)
        root = (name or "").split(".")[0]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return DType.of(node.value)
        if name and (self.find(root) is not None or (name == root and root in self.captured)):
            value = self.resolve(node) if isinstance(node, ast.Name) else self.value(node)
            if isinstance(value, DType):
                return value
        if name and isinstance(self.captured.get(root), types.ModuleType):
            return super().dtype(ast.copy_location(ast.Name(name.split(".")[-1]), node))
        return super().dtype(node)

    def literal_name(self, node: ast.Name) -> Any:
        return self.resolve(node) if node.id in self.captured else super().literal_name(node)

    # ---- expressions ----------------------------------------------------------------------------

    def expr(self, node: ast.expr, dtype: DType | None = None) -> Expr:
        """A conditional passes on the wanted type, so that numbers on both sides adapt."""
        test = self.operand(node.test) if isinstance(node, ast.IfExp) and dtype else None
        if dtype is None or not isinstance(node, ast.IfExp) or isinstance(test, bool):
            return super().expr(node, dtype)
        return self.choice_of(node, self.expr(node.body, dtype), self.expr(node.orelse, dtype))

    def constant(self, node: ast.Constant) -> Any:
        return node.value if isinstance(node.value, Expr | str) else super().constant(node)

    def attribute(self, node: ast.Attribute) -> Any:
        base = self.value(node.value)
        if isinstance(base, types.ModuleType) and hasattr(base, node.attr):
            return self._known(node, getattr(base, node.attr))
        if isinstance(base, Buffer) and node.attr in ("shape", "ndim", "dtype"):
            return getattr(base, node.attr)
        return super().attribute(node)

    def subscript(self, node: ast.Subscript) -> Any:
        base = self.value(node.value)
        if is_tuple(base):
            return self._item(node, base)
        if isinstance(base, Buffer):
            return self.located(node, base.__getitem__, self._indices(base, node))
        return super().subscript(node)

    def _indices(self, buffer: Buffer, node: ast.Subscript) -> tuple[Expr, ...]:
        """Indices that are negative numbers count from the end."""
        read = list(self.indices(node))
        for number, part in enumerate(read):
            if number < buffer.ndim and isinstance(part, Const) and part.value < 0:
                read[number] = self.combine("sub", buffer.shape[number], -int(part.value))
        return tuple(read)

    def _item(self, node: ast.Subscript, items: tuple[Any, ...]) -> Any:
        at = self.whole(node.slice)
        if not -len(items) <= at < len(items):
            raise self.error(node, f"there is no item {at} among {len(items)}")
        found = items[at]
        return found if isinstance(found, Expr) else self._known(node, found)

    def call(self, node: ast.Call) -> Any:
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr == "astype" and len(node.args) == 1:
            return cast(self.expr(func.value), self.dtype(node.args[0]))
        if self.find_function(node) is not None:
            raise self.error(
                node, f"{self.callee(node)} returns nothing", remedy="call it on a line of its own"
            )
        name = func.id if isinstance(func, ast.Name) else ""
        dtype = _as_dtype(self.captured.get(name))
        if dtype is None and name in _CONVERSIONS and name not in self.captured:
            dtype = DType.of(_CONVERSIONS[name])
        return super().call(node) if dtype is None else self.convert(node, dtype)

    def intrinsic(self, name: str, operands: list[Any]) -> Expr:
        """Numbers as operands of a function of floats are floats."""
        if name in INTRINSICS and INTRINSICS[name].accepts == "float":
            return call(name, *operands)
        return super().intrinsic(name, operands)

    # ---- numbers that are known now -------------------------------------------------------------

    def combine(self, op: str, a: Any, b: Any) -> Any:
        if not isinstance(a, Number) or not isinstance(b, Number):
            return super().combine(op, a, b)
        if op not in _ON_NUMBERS:
            return super().combine(op, a, b)
        try:
            return _ON_NUMBERS[op](a, b)
        except (ArithmeticError, TypeError, ValueError) as error:
            raise UserError(f"cannot compute {a} {op} {b}", reason=str(error)) from None

    def unary(self, node: ast.UnaryOp) -> Any:
        value = self.operand(node.operand)
        if isinstance(value, Number):
            return _ON_NUMBER[type(node.op)](value)
        return super().unary(node)

    def logic(self, node: ast.BoolOp) -> Any:
        """Operands after one whose known value decides are not evaluated."""
        decides = isinstance(node.op, ast.Or)
        result: Any = not decides
        for part in node.values:
            value = self.operand(part)
            if isinstance(value, bool) and value is decides and isinstance(result, bool):
                return decides
            neutral = isinstance(result, bool) and result is not decides
            result = value if neutral else self.combined(node, node.op, result, value)
        return result

    def choice(self, node: ast.IfExp) -> Any:
        test = self.operand(node.test)
        if isinstance(test, bool):
            return self.operand(node.body if test else node.orelse)
        a, b = self.operand(node.body), self.operand(node.orelse)
        if isinstance(a, Number) and isinstance(b, Number) and float in (type(a), type(b)):
            a, b = as_expr(float(a)), as_expr(float(b))
        return self.choice_of(node, a, b)


def _plain(thing: Any) -> Any:
    """NumPy's scalars as Python's, lists as tuples."""
    if isinstance(thing, np.generic):
        return _unnarrowed(thing).item()
    return tuple(_unnarrowed(thing)) if isinstance(thing, list) else thing


def _as_dtype(thing: Any) -> DType | None:
    if isinstance(thing, ElementType):
        return thing.element
    if isinstance(thing, DType):
        return thing
    is_scalar = isinstance(thing, type) and issubclass(thing, np.generic)
    return DType.of(_unnarrowed(thing)) if is_scalar or isinstance(thing, np.dtype) else None


def _unnarrowed(thing: Any) -> Any:
    """What the type checker has narrowed to a NumPy type that it knows too little about."""
    return thing


_Operator = Callable[[Any, Any], Any]
_ON_NUMBERS: dict[str, _Operator] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "min": min,
    "max": max,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
}
_ON_NUMBER: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
#: Python's own names for conversions.
_CONVERSIONS = {"int": "i64", "float": "f32"}
