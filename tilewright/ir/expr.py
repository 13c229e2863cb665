"""Scalar expressions: one family for loop bodies, indices and the dimensions of tensor types.

Nodes
    Var(name, dtype)                 a unique object; its name is a hint
    Const(value, dtype)
    Unary(op, a)                     neg not bitnot
    Binary(op, a, b)                 add sub mul div floordiv floormod truncdiv truncmod min max;
                                     eq ne lt le gt ge; and or; bitand bitor bitxor shl shr
    Select(condition, a, b)          only the chosen side is evaluated; `and` and `or` are lazy too
    Cast(dtype, a)
    Load(buffer, indices, mask)
    Call(name, args, dtype)          an intrinsic (`ir.intrinsics`)
    Ramp(base, stride, lanes)        the vector base, base + stride, …
    Broadcast(a, lanes)

Meaning
    Integers wrap around, but those of type int64 also serve as indices, and proofs about them take
    their sums and products not to overflow. `floordiv`/`floormod` round to minus infinity,
    `truncdiv`/`truncmod` to zero; dividing an integer by zero gives 0, its remainder 0.
    Floats follow IEEE 754: NaN, infinities and signed zeros are kept; a multiplication and an
    addition may be contracted to a fused one. `min` and `max` hand on NaN, and of two zeros may
    give either. Comparisons with NaN are false, `ne` is true.
    Each operation on float16 and bfloat16 is computed in float32 and its result rounded to the
    type; the types under those (float8 and kin, integers under a byte) are only stored and
    converted.
    Casts: integer to narrower integer wraps; float to integer truncates and saturates, NaN gives 0;
    to a narrower float rounds the exact value once, to nearest even, and what is too large becomes
    infinity (NaN in formats without one, the greatest value in those without NaN); to bool asks
    "is it not zero?".
    A `Load` outside its buffer is an error that the build proves absent or checks at run time.

Expressions (but for `Var`) are interned: equal means identical, so `is` compares and hashing is a
pointer. `a == b` builds a comparison, whose truth value is that identity.
"""

from __future__ import annotations

import itertools
import math
import struct
from typing import TYPE_CHECKING, Any
from typing import cast as cast_type

import numpy as np

from tilewright.ir.intern import InternTable
from tilewright.ir.type_rules import Number, binary_type, fit, require_same, unary_type
from tilewright.support.dtype import DType, bool_, index
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.ir.buffer import Buffer

_table = InternTable()
_serials = itertools.count()


class Expr:
    """Base of all expressions; carries the operators that users write."""

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

    def astype(self, dtype: object) -> Expr:
        return cast(self, dtype)

    def __add__(self, other: Expr | Number) -> Expr:
        return binary("add", self, other)

    def __radd__(self, other: Number) -> Expr:
        return binary("add", other, self)

    def __sub__(self, other: Expr | Number) -> Expr:
        return binary("sub", self, other)

    def __rsub__(self, other: Number) -> Expr:
        return binary("sub", other, self)

    def __mul__(self, other: Expr | Number) -> Expr:
        return binary("mul", self, other)

    def __rmul__(self, other: Number) -> Expr:
        return binary("mul", other, self)

    def __truediv__(self, other: Expr | Number) -> Expr:
        return binary("div", self, other)

    def __rtruediv__(self, other: Number) -> Expr:
        return binary("div", other, self)

    def __floordiv__(self, other: Expr | Number) -> Expr:
        return binary("floordiv", self, other)

    def __rfloordiv__(self, other: Number) -> Expr:
        return binary("floordiv", other, self)

    def __mod__(self, other: Expr | Number) -> Expr:
        return binary("floormod", self, other)

    def __rmod__(self, other: Number) -> Expr:
        return binary("floormod", other, self)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def __pos__(self) -> Expr:
        return self

    def __and__(self, other: Expr | Number) -> Expr:
        return binary("and" if self.dtype.is_bool else "bitand", self, other)

    def __or__(self, other: Expr | Number) -> Expr:
        return binary("or" if self.dtype.is_bool else "bitor", self, other)

    def __xor__(self, other: Expr | Number) -> Expr:
        return binary("ne" if self.dtype.is_bool else "bitxor", self, other)

    def __invert__(self) -> Expr:
        return unary("not" if self.dtype.is_bool else "bitnot", self)

    def __lshift__(self, other: Expr | Number) -> Expr:
        return binary("shl", self, other)

    def __rshift__(self, other: Expr | Number) -> Expr:
        return binary("shr", self, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return binary("eq", self, other) if _is_operand(other) else NotImplemented

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return binary("ne", self, other) if _is_operand(other) else NotImplemented

    def __lt__(self, other: Expr | Number) -> Expr:
        return binary("lt", self, other)

    def __le__(self, other: Expr | Number) -> Expr:
        return binary("le", self, other)

    def __gt__(self, other: Expr | Number) -> Expr:
        return binary("gt", self, other)

    def __ge__(self, other: Expr | Number) -> Expr:
        return binary("ge", self, other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise UserError(
            f"the truth of `{self}` is not known while the program is being built",
            remedy="use if_then_else(condition, a, b), and `&`, `|`, `~` instead of and, or, not",
        )

    def __repr__(self) -> str:
        from tilewright.ir.text.printer import expr_text

        return expr_text(self)


_NO_VARIABLES: frozenset[Var] = frozenset()


def _either(a: frozenset[Var], b: frozenset[Var]) -> frozenset[Var]:
    """Both sets as one; one of the two where it holds the other, as most do."""
    if b <= a:
        return a
    return b if a <= b else a | b


def _any(operands: tuple[Expr, ...]) -> frozenset[Var]:
    found = _NO_VARIABLES
    for operand in operands:
        found = _either(found, operand.variables)
    return found


def _most_lanes(operands: tuple[Expr, ...]) -> int:
    most = 1
    for operand in operands:
        lanes = operand.dtype.lanes
        if lanes > most:
            most = lanes
    return most


class Var(Expr):
    """A variable: a loop index, a symbolic dimension, a scalar parameter. Never interned."""

    __slots__ = ("name", "serial")

    name: str
    serial: int

    def __init__(self, name: str, dtype: object = index) -> None:
        self.name, self.dtype = name, DType.of(dtype)
        self.operands, self.variables = (), frozenset([self])
        # Tells variables of one name apart wherever a canonical order is needed.
        self.serial = next(_serials)


class Const(Expr):
    __slots__ = ("value",)

    value: Number

    def __new__(cls, value: Number, dtype: object) -> Const:
        dtype = DType.of(dtype)
        known = _table.find((dtype, value)) if type(value) is int else None
        if known is not None:
            return known
        value = fit(value, dtype)
        # The bits tell 0.0 from -0.0, and the type tells 1 from True.
        key = (dtype, struct.pack("<d", value) if isinstance(value, float) else value)
        found = _table.find(key)
        if found is not None:
            return found
        self = object.__new__(cls)
        self.value, self.dtype = value, dtype
        self.operands, self.variables = (), _NO_VARIABLES
        return _table.add(key, self)

    def __bool__(self) -> bool:
        return bool(self.value)


class Unary(Expr):
    __slots__ = ("a", "op")

    op: str
    a: Expr

    def __new__(cls, op: str, a: Expr) -> Unary:
        key = (op, a)
        found = _table.find(key)
        if found is not None:
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
        found = _table.find(key)
        if found is not None:
            return found
        self = object.__new__(cls)
        self.op, self.a, self.b, self.dtype = op, a, b, binary_type(op, a, b)
        self.operands, self.variables = (a, b), _either(a.variables, b.variables)
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
        found = _table.find(key)
        if found is not None:
            return found
        require_same("select", a, b)
        if not condition.dtype.is_bool or condition.dtype.lanes not in (1, a.dtype.lanes):
            raise UserError(
                f"cannot select on `{condition}`",
                reason=f"it is {condition.dtype}, not bool",
                remedy="compare it with something",
            )
        self = object.__new__(cls)
        self.condition, self.a, self.b, self.dtype = condition, a, b, a.dtype
        self.operands = (condition, a, b)
        self.variables = _any(self.operands)
        return _table.add(key, self)

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        return Select(*operands)


class Cast(Expr):
    __slots__ = ("a",)

    a: Expr

    def __new__(cls, dtype: DType, a: Expr) -> Cast:
        key = ("cast", dtype, a)
        found = _table.find(key)
        if found is not None:
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
        found = _table.find(key)
        if found is not None:
            return found
        self = object.__new__(cls)
        self.buffer, self.indices, self.mask = buffer, indices, mask
        self.dtype = buffer.dtype.with_lanes(_most_lanes(indices))
        self.operands = indices if mask is None else (*indices, mask)
        self.variables = _any(self.operands)
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
        found = _table.find(key)
        if found is not None:
            return found
        self = object.__new__(cls)
        self.name, self.args, self.dtype = name, args, dtype
        self.operands, self.variables = args, _any(args)
        return _table.add(key, self)

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        before, after = _most_lanes(self.args), _most_lanes(operands)
        dtype = self.dtype if before == after else self.dtype.with_lanes(after)
        return Call(self.name, operands, dtype)


class Ramp(Expr):
    __slots__ = ("base", "stride")

    base: Expr
    stride: Expr

    def __new__(cls, base: Expr, stride: Expr, lanes: int) -> Ramp:
        key = ("ramp", base, stride, lanes)
        found = _table.find(key)
        if found is not None:
            return found
        self = object.__new__(cls)
        self.base, self.stride, self.dtype = base, stride, base.dtype.with_lanes(lanes)
        self.operands, self.variables = (base, stride), _either(base.variables, stride.variables)
        return _table.add(key, self)

    def with_operands(self, operands: tuple[Expr, ...]) -> Expr:
        base, stride = operands
        return Ramp(base, stride, self.dtype.lanes)


class Broadcast(Expr):
    __slots__ = ("a",)

    a: Expr

    def __new__(cls, a: Expr, lanes: int) -> Broadcast:
        key = ("broadcast", a, lanes)
        found = _table.find(key)
        if found is not None:
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
        b = _adapt(op, as_expr_or_number(b), a)
    if a.dtype.lanes == b.dtype.lanes:
        return a, b
    lanes = max(a.dtype.lanes, b.dtype.lanes)
    return broadcast(a, lanes), broadcast(b, lanes)


def as_expr_or_number(value: Any) -> Expr | Number:
    if hasattr(value, "as_expr"):
        return value.as_expr()
    return _plain(value)


def _plain(value: Any) -> Any:
    """A number of NumPy's as one of Python's; anything else as it is."""
    return cast_type("Any", value).item() if isinstance(value, np.generic) else value


def broadcast(a: Expr, lanes: int) -> Expr:
    return a if a.dtype.lanes == lanes else Broadcast(a, lanes)


def unary(op: str, a: Any) -> Expr:
    return Unary(op, as_expr(a))


def cast(a: Any, dtype: object) -> Expr:
    """`a` converted to `dtype`; nothing happens when it has that type already."""
    dtype = DType.of(dtype).scalar
    a = as_expr(a)
    if isinstance(a, Const):
        return _cast_const(a, dtype)
    return a if a.dtype.scalar is dtype else Cast(dtype, a)


def select(condition: Any, a: Any, b: Any) -> Expr:
    """`a` where `condition` holds, else `b`; the other side is not evaluated."""
    a, b = match_types("select", a, b)
    return Select(as_expr(condition), a, b)


def minimum(a: Any, b: Any) -> Expr:
    return binary("min", a, b)


def maximum(a: Any, b: Any) -> Expr:
    return binary("max", a, b)


def all_of(*conditions: Any) -> Expr:
    """The conjunction of all; true for none."""
    result: Expr | None = None
    for condition in conditions:
        condition = as_expr(condition)
        result = condition if result is None else Binary("and", result, condition)
    return result if result is not None else Const(True, bool_)


def any_of(*conditions: Any) -> Expr:
    """The disjunction of all; false for none."""
    result: Expr | None = None
    for condition in conditions:
        condition = as_expr(condition)
        result = condition if result is None else Binary("or", result, condition)
    return result if result is not None else Const(False, bool_)


def is_const(a: Expr, value: Number | None = None) -> bool:
    """Is `a` a constant (of this value)?"""
    return isinstance(a, Const) and (value is None or a.value == value)


def _adapt(op: str, value: Expr | Number, to: Expr) -> Expr:
    if isinstance(value, Expr):
        return value
    dtype = to.dtype.scalar
    if isinstance(value, float) and not dtype.is_float and not value.is_integer():
        raise UserError(
            f"cannot combine `{to}` and {value} by {op}",
            reason=f"`{to}` is {dtype}",
            remedy="convert it with .astype('float32') first",
        )
    return Const(value, dtype)


def _cast_const(a: Const, dtype: DType) -> Const:
    value = a.value
    if dtype.is_float or dtype.is_bool:
        return Const(value, dtype)
    if isinstance(value, float):
        low, high = dtype.min_value, dtype.max_value
        value = 0 if math.isnan(value) else int(max(low, min(high, value)))
        return Const(value, dtype)
    bits = int(value) & ((1 << dtype.bits) - 1)
    signed = dtype.kind == "int" and bits >> (dtype.bits - 1)
    return Const(bits - (1 << dtype.bits) if signed else bits, dtype)
