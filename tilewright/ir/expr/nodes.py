"""The nodes of expressions, and functions that make them from operands of any kind."""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING, Any
from typing import cast as cast_type

import numpy as np

from tilewright.ir.expr.operands import NO_VARIABLES, most_lanes, union, variables_in
from tilewright.ir.expr.operators import Operators
from tilewright.ir.intern import InternTable
from tilewright.ir.type_rules import (
    Number,
    binary_type,
    converted,
    fit,
    require_condition,
    require_same,
    unary_type,
)
from tilewright.support.dtype import DType, bool_, index
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.ir.buffer import Buffer

_table = InternTable()
_serials = itertools.count()


class Expr(Operators):
    """Base class of all expressions."""

    __slots__ = ("dtype", "operands", "variables")

    dtype: DType
    #: The expressions directly below this one.
    operands: tuple[Expr, ...]
    #: The variables in it.
    variables: frozenset[Var]

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        """The same node over other operands."""
        del operands
        return self

    def as_expr(self) -> Expr:
        return self

    def astype(self, dtype: object) -> Expr:
        return cast(self, dtype)

    def _binary(self, op: str, a: Any, b: Any) -> Expr:
        return binary(op, a, b)

    def _unary(self, op: str) -> Expr:
        return unary(op, self)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return binary("eq", self, other) if _is_operand(other) else NotImplemented

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return binary("ne", self, other) if _is_operand(other) else NotImplemented

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise UserError(
            f"the truth of `{self}` is not known while the program is being built",
            remedy="use if_then_else(condition, a, b), and `&`, `|`, `~` instead of and, or, not",
        )

    def __repr__(self) -> str:
        from tilewright.ir.text.printer import expr_text

        return expr_text(self)


class Var(Expr):
    """A variable: a loop index, a symbolic dimension, a scalar parameter. Never interned."""

    __slots__ = ("name", "serial")

    name: str
    serial: int

    def __init__(self, name: str, dtype: object = index) -> None:
        self.name, self.dtype = name, DType.of(dtype)
        self.operands, self.variables = (), frozenset([self])
        # Orders variables of one name wherever a canonical order is needed.
        self.serial = next(_serials)


class Const(Expr):
    __slots__ = ("value",)

    value: Number

    def __new__(cls, value: Number, dtype: object) -> Const:
        known = _table.find((dtype, value)) if type(value) is int else None
        if known is not None:
            return known
        dtype = DType.of(dtype)
        value = fit(value, dtype)
        # The bits distinguish 0.0 from -0.0, and the type distinguishes 1 from True.
        key = (dtype, struct.pack("<d", value) if isinstance(value, float) else value)
        if (found := _table.find(key)) is not None:
            return found
        self = object.__new__(cls)
        self.value, self.dtype = value, dtype
        self.operands, self.variables = (), NO_VARIABLES
        return _table.add(key, self)

    def __bool__(self) -> bool:
        return bool(self.value)


class Unary(Expr):
    __slots__ = ("a", "op")

    op: str
    a: Expr

    def __new__(cls, op: str, a: Expr) -> Unary:
        key = (op, a)
        if (found := _table.find(key)) is not None:
            return found
        self = object.__new__(cls)
        self.op, self.a, self.dtype = op, a, unary_type(op, a)
        self.operands, self.variables = (a,), a.variables
        return _table.add(key, self)

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        return Unary(self.op, *operands)


class Binary(Expr):
    __slots__ = ("a", "b", "op")

    op: str
    a: Expr
    b: Expr

    def __new__(cls, op: str, a: Expr, b: Expr) -> Binary:
        key = (op, a, b)
        if (found := _table.find(key)) is not None:
            return found
        self = object.__new__(cls)
        self.op, self.a, self.b, self.dtype = op, a, b, binary_type(op, a, b)
        self.operands, self.variables = (a, b), union(a.variables, b.variables)
        return _table.add(key, self)

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        return Binary(self.op, *operands)

    def __bool__(self) -> bool:
        if self.op == "eq":
            return self.a is self.b
        if self.op == "ne":
            return self.a is not self.b
        return super().__bool__()


class Select(Expr):
    __slots__ = ("a", "b", "condition")

    condition: Expr
    a: Expr
    b: Expr

    def __new__(cls, condition: Expr, a: Expr, b: Expr) -> Select:
        key = ("select", condition, a, b)
        if (found := _table.find(key)) is not None:
            return found
        require_same("select", a, b)
        require_condition(condition, a.dtype.lanes)
        self = object.__new__(cls)
        self.condition, self.a, self.b, self.dtype = condition, a, b, a.dtype
        self.operands = (condition, a, b)
        self.variables = variables_in(self.operands)
        return _table.add(key, self)

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        return Select(*operands)


class Cast(Expr):
    __slots__ = ("a",)

    a: Expr

    def __new__(cls, dtype: DType, a: Expr) -> Cast:
        key = ("cast", dtype, a)
        if (found := _table.find(key)) is not None:
            return found
        self = object.__new__(cls)
        self.a, self.dtype = a, dtype.with_lanes(a.dtype.lanes)
        self.operands, self.variables = (a,), a.variables
        return _table.add(key, self)

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        return Cast(self.dtype.scalar, *operands)


class Load(Expr):
    """One element of a buffer; a vector of elements when an index is a vector."""

    __slots__ = ("buffer", "indices", "mask")

    buffer: Buffer
    indices: tuple[Expr, ...]
    mask: Expr | None

    def __new__(cls, buffer: Buffer, indices: tuple[Expr, ...], mask: Expr | None = None) -> Load:
        key = ("load", buffer, indices, mask)
        if (found := _table.find(key)) is not None:
            return found
        self = object.__new__(cls)
        self.buffer, self.indices, self.mask = buffer, indices, mask
        self.dtype = buffer.dtype.with_lanes(most_lanes(indices))
        self.operands = indices if mask is None else (*indices, mask)
        self.variables = variables_in(self.operands)
        return _table.add(key, self)

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        if self.mask is None:
            return Load(self.buffer, operands)
        return Load(self.buffer, operands[:-1], operands[-1])


class Call(Expr):
    __slots__ = ("args", "name")

    name: str
    args: tuple[Expr, ...]

    def __new__(cls, name: str, args: tuple[Expr, ...], dtype: DType) -> Call:
        key = ("call", name, args, dtype)
        if (found := _table.find(key)) is not None:
            return found
        self = object.__new__(cls)
        self.name, self.args, self.dtype = name, args, dtype
        self.operands, self.variables = args, variables_in(args)
        return _table.add(key, self)

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        before, after = most_lanes(self.args), most_lanes(operands)
        dtype = self.dtype if before == after else self.dtype.with_lanes(after)
        return Call(self.name, operands, dtype)


class Ramp(Expr):
    __slots__ = ("base", "stride")

    base: Expr
    stride: Expr

    def __new__(cls, base: Expr, stride: Expr, lanes: int) -> Ramp:
        key = ("ramp", base, stride, lanes)
        if (found := _table.find(key)) is not None:
            return found
        self = object.__new__(cls)
        self.base, self.stride, self.dtype = base, stride, base.dtype.with_lanes(lanes)
        self.operands, self.variables = (base, stride), union(base.variables, stride.variables)
        return _table.add(key, self)

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        base, stride = operands
        return Ramp(base, stride, self.dtype.lanes)


class Broadcast(Expr):
    __slots__ = ("a",)

    a: Expr

    def __new__(cls, a: Expr, lanes: int) -> Broadcast:
        key = ("broadcast", a, lanes)
        if (found := _table.find(key)) is not None:
            return found
        self = object.__new__(cls)
        self.a, self.dtype = a, a.dtype.with_lanes(lanes)
        self.operands, self.variables = (a,), a.variables
        return _table.add(key, self)

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        (a,) = operands
        return Broadcast(a, self.dtype.lanes)


# ---- building expressions -----------------------------------------------------------------------


def const(value: Number, dtype: object = None) -> Const:
    """A constant; without a type, Python's int, float and bool give index, float32 and bool."""
    if dtype is not None:
        return Const(value, dtype)
    if isinstance(value, bool | np.bool_):
        return Const(bool(value), bool_)
    return Const(value, "float32" if isinstance(value, float | np.floating) else index)


def as_expr(value: Any, dtype: DType | None = None) -> Expr:
    """`value` as an expression: numbers become constants (of `dtype` where it is given)."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, bool | int | float | np.number | np.bool_):
        return const(_plain(value), dtype)
    if hasattr(value, "as_expr"):
        return value.as_expr()
    raise UserError(f"{value!r} is no expression", remedy="use a number or a scalar expression")


def _is_operand(value: object) -> bool:
    return isinstance(value, Expr | bool | int | float | np.generic) or hasattr(value, "as_expr")


def binary(op: str, a: Any, b: Any) -> Expr:
    """`op` over two operands, at least one an expression; a number takes the other's type."""
    a, b = match_types(op, a, b)
    return Binary(op, a, b)


def match_types(op: str, a: Any, b: Any) -> tuple[Expr, Expr]:
    """Both as expressions of one type: numbers adapt, scalars are broadcast to vectors."""
    if not isinstance(a, Expr) and isinstance(b, Expr):
        b, a = match_types(op, b, a)
        return a, b
    a = as_expr(a)
    if type(b) is int and a.dtype.is_integer:
        b = Const(b, a.dtype.scalar)
    elif not isinstance(b, Expr):
        b = _adapt(op, b, a)
    if a.dtype.lanes == b.dtype.lanes:
        return a, b
    lanes = max(a.dtype.lanes, b.dtype.lanes)
    return broadcast(a, lanes), broadcast(b, lanes)


def _plain(value: Any) -> Any:
    """A NumPy number as a Python one; anything else as it is."""
    return cast_type("Any", value).item() if isinstance(value, np.generic) else value


def broadcast(a: Expr, lanes: int) -> Expr:
    return a if a.dtype.lanes == lanes else Broadcast(a, lanes)


def unary(op: str, a: Any) -> Expr:
    return Unary(op, as_expr(a))


def cast(a: Any, dtype: object) -> Expr:
    """`a` converted to `dtype`; itself if it has that type already."""
    dtype = DType.of(dtype).scalar
    a = as_expr(a)
    if isinstance(a, Const):
        return Const(converted(a.value, dtype), dtype)
    return a if a.dtype.scalar is dtype else Cast(dtype, a)


def _adapt(op: str, given: Any, to: Expr) -> Expr:
    """A value that is not an expression as one: a number takes the other operand's type."""
    if hasattr(given, "as_expr"):
        return given.as_expr()
    value: Number = _plain(given)
    dtype = to.dtype.scalar
    if isinstance(value, float) and not dtype.is_float and not value.is_integer():
        raise UserError(
            f"cannot combine `{to}` and {value} by {op}",
            reason=f"`{to}` is {dtype}",
            remedy="convert it with .astype('float32') first",
        )
    return Const(value, dtype)
