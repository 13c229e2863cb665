"""Types of graph values: tensors with symbolic shapes, and types composed of them.

    f32[n, 3, 224, 224]      tensor; a dimension is an index expression, a symbolic one a `Var`
    (f32[n], i64[])          tuple
    fn(f32[n]) -> f32[n]     function
    seq[f32[_, 4]]           sequence; `_` is a dimension that differs from element to element
    seq[f32]                 sequence that has been empty so far
    seq[f32[...]]            sequence of tensors of different ranks
    opt[f32[4]]              optional
    List                     data type, declared in the module

Types are compared by structure; dimensions are interned, so equal ones are identical.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from tilewright.graph.sizes.naturals import simplify_size
from tilewright.ir import (
    Binary,
    Const,
    DType,
    Expr,
    Unary,
    Var,
    as_expr,
    as_extent,
    const,
    free_vars,
    substitute,
)
from tilewright.support.errors import UserError

#: A dimension as users may give it.
Dim: TypeAlias = int | Expr


class _String(DType):
    """The type of elements of string tensors; these stay on the host and are never compiled."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("string", "str", "string", 64)  # type: ignore[arg-type]

    @property
    def numpy(self) -> np.dtype[Any]:
        return np.dtype(object)


STRING: Final = _String()
#: The most dimensions of NumPy's arrays.
MOST_DIMENSIONS: Final = 64
#: A dimension that may differ between the elements of one sequence.
ANY: Final = Var("_")


def dtype_of(value: object) -> DType:
    """The element type that `value` names, strings included."""
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        return STRING if value in ("string", "str") else DType.of(value)
    return STRING if getattr(value, "kind", "") in ("O", "U", "S") else DType.of(value)


class Type:
    """Base class of all types; types of one class are equal if their `key` is."""

    __slots__ = ()

    @property
    def key(self) -> tuple[Any, ...]:
        raise NotImplementedError

    @property
    def parts(self) -> tuple[Type, ...]:
        """The types directly inside this one."""
        return ()

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        del parts
        return self

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is type(self) and self.key == other.key)

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        from tilewright.graph.text.type_text import type_text

        return type_text(self)


class TensorType(Type):
    """An array of `dtype`; its rank is always known, its extents may be symbolic."""

    __slots__ = ("dtype", "shape")

    dtype: DType
    shape: tuple[Expr, ...]

    def __init__(self, dtype: object, shape: Iterable[Any] = ()) -> None:
        self.dtype = dtype_of(dtype)
        self.shape = tuple(as_dim(d) for d in shape)
        if len(self.shape) > MOST_DIMENSIONS:
            raise UserError(
                f"a tensor of {len(self.shape)} dimensions",
                reason=f"arrays have {MOST_DIMENSIONS} at most",
            )

    @property
    def key(self) -> tuple[Any, ...]:
        # Interned expressions are equal if identical; `==` on them builds an expression.
        return (self.dtype, *map(id, self.shape))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, Const) for d in self.shape)

    @property
    def size(self) -> int | None:
        """How many elements it has, where that is known."""
        return math.prod(self.static_shape) if self.is_static else None

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as numbers; a symbolic dimension is an error."""
        for dim in self.shape:
            if not isinstance(dim, Const):
                raise UserError(f"{self} has the symbolic dimension {dim}")
        return tuple(int(d.value) for d in self.shape if isinstance(d, Const))

    def with_shape(self, shape: Iterable[Any]) -> TensorType:
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: object) -> TensorType:
        return TensorType(dtype, self.shape)


class UnknownType(Type):
    """Tensors of a known element type and unknown rank: the elements of an empty sequence.

    `differs` means that a sequence has items of different ranks.
    """

    __slots__ = ("differs", "dtype")

    def __init__(self, dtype: object, *, differs: bool = False) -> None:
        self.dtype, self.differs = dtype_of(dtype), differs

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.dtype, self.differs)


class TupleType(Type):
    __slots__ = ("items",)

    def __init__(self, items: Iterable[Type]) -> None:
        self.items = tuple(items)

    @property
    def key(self) -> tuple[Any, ...]:
        return self.items

    @property
    def parts(self) -> tuple[Type, ...]:
        return self.items

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        return TupleType(parts)


class FunctionType(Type):
    __slots__ = ("params", "results")

    def __init__(self, params: Iterable[Type], results: Iterable[Type]) -> None:
        self.params, self.results = tuple(params), tuple(results)

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.params, self.results)

    @property
    def parts(self) -> tuple[Type, ...]:
        return (*self.params, *self.results)

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        count = len(self.params)
        return FunctionType(parts[:count], parts[count:])


class _Wrapping(Type):
    """A type around one other type."""

    __slots__ = ("element",)

    def __init__(self, element: Type) -> None:
        self.element = element

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.element,)

    @property
    def parts(self) -> tuple[Type, ...]:
        return (self.element,)

    def with_parts(self, parts: tuple[Type, ...]) -> Type:
        return type(self)(*parts)


class SequenceType(_Wrapping):
    """Any number of values of one type, whose dimensions may be `ANY`."""

    __slots__ = ()


class OptionalType(_Wrapping):
    """A value or nothing."""

    __slots__ = ()


class DataType(Type):
    """An algebraic data type, by name; the module declares its constructors."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.name,)


# ---- dimensions ---------------------------------------------------------------------------------


def as_dim(value: Any) -> Expr:
    """A dimension as a simplified index expression."""
    if isinstance(value, Var):
        return value
    extent = as_extent(value, "a tensor type")
    return extent if isinstance(extent, Const) else simplify_size(extent)


#: Operations by which callers can compute sizes before a program runs.
_PLAIN: Final = frozenset({"add", "sub", "mul", "floordiv", "floormod", "min", "max"})


def is_plain_dim(dim: Expr) -> bool:
    """Whether a dimension consists of integers and `_PLAIN` operations: no casts or selects."""
    if isinstance(dim, Const | Var):
        return True
    if isinstance(dim, Unary):
        return dim.op == "neg" and is_plain_dim(dim.a)
    return isinstance(dim, Binary) and dim.op in _PLAIN and all(map(is_plain_dim, dim.operands))


def known_dim(dim: Dim) -> int | None:
    """The dimension as a number, if it is one."""
    if isinstance(dim, Const):
        return int(dim.value)
    return dim if isinstance(dim, int) else None


def fresh_dim(hint: str = "d") -> Var:
    """A symbolic dimension that is known only when the program runs."""
    return Var(hint)


def product(dims: Iterable[Any]) -> Expr:
    """The product of all dimensions."""
    result: Expr = const(1)
    for dim in dims:
        result = result * as_expr(dim)
    return simplify_size(result)


def is_single(shape: Sequence[Dim]) -> bool:
    """Whether a shape is that of a single element, with or without an axis."""
    return not shape or (len(shape) == 1 and known_dim(shape[0]) == 1)


def dims_of(type_: Type) -> list[Var]:
    """The symbolic dimensions that a type mentions, in order, each once."""
    found: dict[Var, None] = {}
    pending = [type_]
    while pending:
        node = pending.pop()
        if isinstance(node, TensorType):
            for variables in filter(None, map(free_vars, node.shape)):
                found.update(dict.fromkeys(sorted(variables, key=lambda v: v.serial)))
        pending.extend(reversed(node.parts))
    found.pop(ANY, None)
    return list(found)


def substitute_type(type_: Type, values: Mapping[Var, Expr]) -> Type:
    """The type with other expressions for some of its dimensions."""
    if not values:
        return type_
    if isinstance(type_, TensorType):
        shape = tuple(substitute(d, values) for d in type_.shape)
        same = all(a is b for a, b in zip(shape, type_.shape, strict=True))
        return type_ if same else TensorType(type_.dtype, shape)
    parts = tuple(substitute_type(p, values) for p in type_.parts)
    same = all(a is b for a, b in zip(parts, type_.parts, strict=True))
    return type_ if same else type_.with_parts(parts)
