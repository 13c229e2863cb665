"""Reads expressions of the text form from Python's syntax tree; nothing is ever executed."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import (
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    as_expr,
    binary,
    cast,
    match_types,
)
from tilewright.ir.intrinsics import INTRINSICS, call, find_intrinsic
from tilewright.ir.text.names import WORDS, find_dtype
from tilewright.ir.text.source import Source
from tilewright.ir.text.syntax import dotted, parts_of, special_float
from tilewright.support.dtype import DType
from tilewright.support.errors import UserError, nearest

#: An expression while it is parsed: a bare number still adapts to the other operand. A language
#: built on this one may have more kinds of values.
Value = Any

_BINARY: Final[dict[type[ast.AST], str]] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "floormod",
    ast.BitAnd: "bitand",
    ast.BitOr: "bitor",
    ast.BitXor: "bitxor",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.And: "and",
    ast.Or: "or",
}
#: Python's bit operators on truth values.
_ON_BOOLS: Final = {"bitand": "and", "bitor": "or", "bitxor": "ne", "bitnot": "not"}
_UNARY: Final[dict[type[ast.AST], str]] = {ast.USub: "neg", ast.Not: "not", ast.Invert: "bitnot"}


class ExprReader:
    """Reads expressions over the names in scope."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.scopes: list[dict[str, Value]] = [{}]
        #: The outermost expressions being parsed: a name may be used left of its definition.
        self._reading: list[ast.expr] = []

    # ---- names ----------------------------------------------------------------------------------

    def define(self, node: ast.AST, name: str, thing: Value) -> None:
        """Bring `name` into the innermost scope."""
        if self.find(name) is not None:
            raise self.error(node, f"{name} is defined already", remedy="choose another name")
        self.scopes[-1][name] = thing

    def find(self, name: str) -> Value | None:
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return None

    def resolve(self, node: ast.Name) -> Value:
        """The value of a name."""
        found = self.find(node.id)
        if found is None:
            found = self._named_elsewhere(node.id)
        if found is None:
            remedy = self.undefined_remedy(node.id)
            raise self.error(node, f"{node.id} is not defined here", remedy=remedy)
        return found

    def _named_elsewhere(self, name: str) -> Value | None:
        """The value of `(name := …)` anywhere in the expression that is being parsed."""
        for part in ast.walk(self._reading[0]) if self._reading else ():
            if isinstance(part, ast.NamedExpr) and part.target.id == name:
                return self.named(part)
        return None

    def named(self, node: ast.NamedExpr) -> Value:
        """`(name := value)`: the value, which has a name from here on."""
        known = self.find(node.target.id)
        if known is None:
            known = self.operand(node.value)
            self.define(node, node.target.id, known)
        return known

    def undefined_remedy(self, name: str) -> str:
        return nearest(name, (known for scope in self.scopes for known in scope))

    def error(self, node: ast.AST, what: str, reason: str = "", remedy: str = "") -> UserError:
        return self.source.error(node, what, reason, remedy)

    def located(self, node: ast.AST, build: Callable[..., Any], *args: Any) -> Any:
        """`build(*args)`; errors without a position get that of `node`."""
        try:
            return build(*args)
        except UserError as error:
            if error.listing:
                raise
            raise self.source.error(node, error.what, error.reason, error.remedy) from None

    # ---- expressions ----------------------------------------------------------------------------

    def expr(self, node: ast.expr, dtype: DType | None = None) -> Expr:
        """The expression of `node`; a bare number gets the type `dtype`."""
        self._reading.append(node)
        value = self.value(node)
        self._reading.pop()
        if isinstance(value, Buffer):
            value = self.element(node, value)
        return self.located(node, as_expr, value, dtype)

    def value(self, node: ast.expr) -> Value:
        read = _READ.get(type(node))
        if read is None:
            raise self.error(node, f"{_described(node)} has no meaning in an expression")
        return self.located(node, read, self, node)

    def element(self, node: ast.expr, buffer: Buffer) -> Expr:
        """A buffer in place of a value: its only element."""
        if buffer.ndim:
            raise self.error(
                node,
                f"{buffer.name} is a buffer of {buffer.ndim} dimensions, not a value",
                remedy="index it",
            )
        return Load(buffer, ())

    def operand(self, node: ast.expr) -> Value:
        """A value that operators take: an expression, or a bare number."""
        value = self.value(node)
        return self.element(node, value) if isinstance(value, Buffer) else value

    def name(self, node: ast.Name) -> Value:
        return self.resolve(node)

    def constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, bool | int | float):
            return node.value
        raise self.error(node, f"{node.value!r} is no number")

    def binary(self, node: ast.BinOp) -> Value:
        """Chains are left-associative, and can be long."""
        spine: list[ast.BinOp] = []
        first: ast.expr = node
        while isinstance(first, ast.BinOp):
            spine.append(first)
            first = first.left
        result = self.operand(first)
        for step in reversed(spine):
            result = self.combined(step, step.op, result, self.operand(step.right))
        return result

    def combined(self, node: ast.AST, operator: ast.AST, a: Value, b: Value) -> Value:
        op = _BINARY.get(type(operator))
        if op is None:
            raise self.error(node, f"the operator {type(operator).__name__} has no meaning here")
        return self.located(node, self.combine, op, a, b)

    def combine(self, op: str, a: Value, b: Value) -> Value:
        """`a op b`; two bare numbers are constants of their own types."""
        if not isinstance(a, Expr) and not isinstance(b, Expr):
            a = as_expr(a)
            b = as_expr(b)
        expr = a if isinstance(a, Expr) else b
        on_bools = isinstance(expr, Expr) and expr.dtype.is_bool
        return binary(_ON_BOOLS.get(op, op) if on_bools else op, a, b)

    def unary(self, node: ast.UnaryOp) -> Value:
        value = self.operand(node.operand)
        literal = isinstance(node.operand, ast.Constant) and not isinstance(value, bool)
        if isinstance(node.op, ast.UAdd):
            return value
        if isinstance(node.op, ast.USub) and literal:
            return -value
        op = _UNARY[type(node.op)]
        a = as_expr(value)
        return Unary(_ON_BOOLS.get(op, op) if a.dtype.is_bool else op, a)

    def logic(self, node: ast.BoolOp) -> Value:
        result = self.operand(node.values[0])
        for value in node.values[1:]:
            result = self.combined(node, node.op, result, self.operand(value))
        return result

    def compare(self, node: ast.Compare) -> Value:
        """`a < b`; the chain `a < b < c` holds where all its links do."""
        values = [self.operand(v) for v in (node.left, *node.comparators)]
        result: Value = None
        for op, a, b in zip(node.ops, values, values[1:], strict=False):
            link = self.combined(node, op, a, b)
            result = link if result is None else self.combine("and", result, link)
        return result

    def choice(self, node: ast.IfExp) -> Value:
        return self.choice_of(node, self.operand(node.body), self.operand(node.orelse))

    def choice_of(self, node: ast.IfExp, a: Value, b: Value) -> Value:
        if isinstance(a, Expr) or isinstance(b, Expr):
            a, b = match_types("select", a, b)
        return Select(self.expr(node.test), as_expr(a), as_expr(b))

    def attribute(self, node: ast.Attribute) -> Value:
        raise self.error(node, f"{ast.unparse(node)} has no meaning in an expression")

    def subscript(self, node: ast.Subscript) -> Value:
        base = self.value(node.value)
        if not isinstance(base, Buffer):
            raise self.error(
                node, f"{ast.unparse(node.value)} cannot be indexed", "it is no buffer"
            )
        return self.located(node, base.__getitem__, self.indices(node))

    def indices(self, node: ast.Subscript) -> tuple[Expr, ...]:
        return tuple(self.expr(part) for part in parts_of(node.slice))

    # ---- calls ----------------------------------------------------------------------------------

    def callee(self, node: ast.Call) -> str:
        """The name of what is called: dotted for the intrinsics of a target."""
        name = dotted(node.func)
        if name is None:
            raise self.error(node, f"{ast.unparse(node.func)} cannot be called")
        return name

    def call(self, node: ast.Call) -> Value:
        name = self.callee(node)
        if node.keywords:
            raise self.error(node, f"{name} takes no arguments by keyword here")
        dtype = find_dtype(name)
        if dtype is not None:
            return self.convert(node, dtype)
        special = _SPECIAL.get(name)
        if special is not None:
            return self._special(node, name, special)
        if name in WORDS:
            raise self.error(node, f"{name} does not stand in an expression")
        return self.intrinsic(name, [self.operand(a) for a in node.args])

    def intrinsic(self, name: str, operands: list[Value]) -> Expr:
        """A call; if all operands are bare numbers, they are constants of their own types."""
        if not any(isinstance(o, Expr) for o in operands):
            operands = [as_expr(o) for o in operands]
        return call(name, *operands)

    def _special(self, node: ast.Call, name: str, special: _Special) -> Value:
        count, read = special
        if len(node.args) != count and count >= 0:
            raise self.error(node, f"{name} takes {count} operands, not {len(node.args)}")
        return read(self, node)

    def convert(self, node: ast.Call, dtype: DType) -> Value:
        """`f32(0.5)` is a constant, `f32("inf")` too, `f32(x)` a conversion."""
        if len(node.args) != 1:
            raise self.error(node, f"{dtype} takes 1 operand, not {len(node.args)}")
        arg = node.args[0]
        if isinstance(arg, ast.Constant) and isinstance(arg.value, str):
            return Const(special_float(arg.value), dtype)
        value = self.operand(arg)
        return cast(value, dtype) if isinstance(value, Expr) else Const(value, dtype)

    def dtype(self, node: ast.expr) -> DType:
        """An element type, by name."""
        name = dotted(node)
        found = find_dtype(name) if name else None
        if found is None:
            raise self.error(
                node, f"{ast.unparse(node)} is no element type", remedy="such as f32 or i64"
            )
        return found

    def whole(self, node: ast.expr) -> int:
        """A number that must be known when the text is parsed, such as one of lanes."""
        value = self.value(node)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise self.error(node, f"{ast.unparse(node)} is no plain whole number")

    def minmax(self, node: ast.Call) -> Value:
        if len(node.args) < 2:
            raise self.error(node, f"{self.callee(node)} takes two operands or more")
        result = self.operand(node.args[0])
        for arg in node.args[1:]:
            result = self.combine(self.callee(node).split(".")[-1], result, self.operand(arg))
        return result

    def named_binary(self, node: ast.Call) -> Value:
        op = self.callee(node).split(".")[-1]
        return self.combine(op, self.operand(node.args[0]), self.operand(node.args[1]))

    def negated(self, node: ast.Call) -> Value:
        return Unary("neg", self.expr(node.args[0]))

    def raw_cast(self, node: ast.Call) -> Value:
        return Cast(self.dtype(node.args[0]), self.expr(node.args[1]))

    def ramp(self, node: ast.Call) -> Value:
        base, stride = match_types("ramp", self.expr(node.args[0]), self.operand(node.args[1]))
        return Ramp(base, stride, self.lanes(node.args[2]))

    def broadcast(self, node: ast.Call) -> Value:
        return Broadcast(self.expr(node.args[0]), self.lanes(node.args[1]))

    def lanes(self, node: ast.expr) -> int:
        lanes = self.whole(node)
        if lanes < 2:
            raise self.error(node, f"a vector has two lanes or more, not {lanes}")
        return lanes

    def masked_load(self, node: ast.Call) -> Value:
        element = self.value(node.args[0])
        if not isinstance(element, Load):
            raise self.error(node, "load takes an element of a buffer and a mask")
        return Load(element.buffer, element.indices, self.expr(node.args[1]))

    def raw_call(self, node: ast.Call) -> Value:
        """`call(f32x4, "name", …)` states the type itself."""
        name = node.args[1] if len(node.args) > 1 else None
        if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
            raise self.error(node, "call takes a type, the name of an intrinsic and its operands")
        if find_intrinsic(name.value) is None:
            raise self.error(
                name, f"unknown intrinsic {name.value!r}", remedy=nearest(name.value, INTRINSICS)
            )
        args = tuple(self.expr(a) for a in node.args[2:])
        return Call(name.value, args, self.dtype(node.args[0]))


_Special = tuple[int, Callable[[ExprReader, ast.Call], Value]]

#: Keywords that make expressions, with the number of their operands.
_SPECIAL: dict[str, _Special] = {
    "min": (-1, lambda r, n: r.minmax(n)),
    "max": (-1, lambda r, n: r.minmax(n)),
    "truncdiv": (2, lambda r, n: r.named_binary(n)),
    "truncmod": (2, lambda r, n: r.named_binary(n)),
    "neg": (1, lambda r, n: r.negated(n)),
    "cast": (2, lambda r, n: r.raw_cast(n)),
    "ramp": (3, lambda r, n: r.ramp(n)),
    "broadcast": (2, lambda r, n: r.broadcast(n)),
    "load": (2, lambda r, n: r.masked_load(n)),
    "call": (-1, lambda r, n: r.raw_call(n)),
}

_READ: dict[type[ast.AST], Callable[[ExprReader, Any], Value]] = {
    ast.Name: lambda r, n: r.name(n),
    ast.NamedExpr: lambda r, n: r.named(n),
    ast.Constant: lambda r, n: r.constant(n),
    ast.BinOp: lambda r, n: r.binary(n),
    ast.UnaryOp: lambda r, n: r.unary(n),
    ast.BoolOp: lambda r, n: r.logic(n),
    ast.Compare: lambda r, n: r.compare(n),
    ast.IfExp: lambda r, n: r.choice(n),
    ast.Subscript: lambda r, n: r.subscript(n),
    ast.Call: lambda r, n: r.call(n),
    ast.Attribute: lambda r, n: r.attribute(n),
}


def _described(node: ast.AST) -> str:
    return f"`{ast.unparse(node)}`"
