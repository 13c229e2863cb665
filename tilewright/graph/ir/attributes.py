"""Typed attributes of operators: their kinds, and how given values are converted to these."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import numpy as np

from tilewright.graph.ir.types import dtype_of
from tilewright.graph.sizes.naturals import simplify_size
from tilewright.ir import Const, Expr
from tilewright.support.errors import UserError, nearest

Array: TypeAlias = "np.ndarray[Any, Any]"
Ints: TypeAlias = tuple[int, ...]
Floats: TypeAlias = tuple[float, ...]
Strings: TypeAlias = tuple[str, ...]
#: An integer that may be an expression over symbolic dimensions.
Dim: TypeAlias = int | Expr
Dims: TypeAlias = tuple[Dim, ...]

REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute; `kind` is the name of its type as the declaration writes it."""

    name: str
    kind: str
    default: Any = REQUIRED
    optional: bool = False

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    def coerce(self, op: str, value: Any) -> Any:
        """The value in the form in which attributes of this kind are stored."""
        if value is None and (self.optional or self.default is None):
            return None
        try:
            return KINDS[self.kind](value)
        except (TypeError, ValueError):
            raise UserError(
                f"{op} has the attribute {self.name} = {value!r}", reason=f"it takes {self.kind}"
            ) from None


def attribute(op: str, name: str, annotation: str, default: Any) -> Attribute:
    """The attribute that a keyword parameter of a declaration declares."""
    kind, _, rest = annotation.partition(" | ")
    if kind not in KINDS or rest not in ("", "None"):
        raise UserError(
            f"operator {op} declares the attribute {name}: {annotation}",
            remedy=nearest(kind, KINDS),
        )
    result = Attribute(name, kind, default, rest == "None")
    if default is REQUIRED:
        return result
    return Attribute(name, kind, result.coerce(op, default), rest == "None")


def same_attribute(a: Any, b: Any) -> bool:
    """Whether two attribute values are equal, expressions and arrays included."""
    return attribute_key(a) == attribute_key(b)


def attribute_key(value: Any) -> Any:
    """A hashable key that is equal for equal attribute values only."""
    if isinstance(value, Expr):
        return ("expr", id(value))
    if isinstance(value, np.ndarray):
        return _array_key(cast(Array, value))
    if isinstance(value, tuple):
        return tuple(attribute_key(v) for v in attribute_parts(value))
    # 1, 1.0 and True are equal in Python; NaN is not equal to itself.
    return (type(value).__name__, repr(value) if isinstance(value, float) else value)


def attribute_parts(value: Any) -> tuple[Any, ...]:
    """The items of an attribute that is a list; else the attribute as the only item."""
    return cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)


def _array_key(array: Array) -> Any:
    if array.dtype == object:
        return ("array", array.shape, tuple(array.ravel().tolist()))
    return ("array", str(array.dtype), array.shape, array.tobytes())


def _int(value: Any) -> int:
    if isinstance(value, Const) and not value.dtype.is_float:
        return int(value.value)
    if not isinstance(value, bool | int | np.integer | np.bool_):
        raise TypeError
    return int(cast(int, value))


def _float(value: Any) -> float:
    if not isinstance(value, int | float | np.number):
        raise TypeError
    return float(cast(float, value))


def _bool(value: Any) -> bool:
    if value not in (0, 1):
        raise TypeError
    return bool(value)


def _str(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode()
    if not isinstance(value, str):
        raise TypeError
    return value


def _dim(value: Any) -> Dim:
    if not isinstance(value, Expr):
        return _int(value)
    simple = simplify_size(value)
    return int(simple.value) if isinstance(simple, Const) else simple


def _several(item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def coerce(values: Iterable[Any]) -> tuple[Any, ...]:
        if isinstance(values, str):
            raise TypeError
        return tuple(item(v) for v in values)

    return coerce


#: The kinds of attributes, by the names that declarations use.
KINDS: Final[dict[str, Callable[[Any], Any]]] = {
    "int": _int,
    "float": _float,
    "bool": _bool,
    "str": _str,
    "DType": dtype_of,
    "Array": np.asarray,
    "Dim": _dim,
    "Ints": _several(_int),
    "Floats": _several(_float),
    "Strings": _several(_str),
    "Dims": _several(_dim),
}
