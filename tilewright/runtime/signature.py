"""The signature of a compiled function, and the check of its arguments.

A dimension is a number, the name of a symbolic dimension, or an operation over dimensions such as
`["mul", 4, "n"]`: plain data that can be stored in an artifact.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tilewright.runtime.arrays import overlapping, type_name
from tilewright.runtime.dlpack import as_array
from tilewright.support.dtype import DType
from tilewright.support.errors import UserError

Dim = int | str | tuple[str, "Dim", "Dim"]

DIM_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b if b else 0,
    "floormod": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
}
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%"}


def dim_value(dim: Dim, values: dict[str, int]) -> int | None:
    """The value of a dimension; None while a name in it has none."""
    if isinstance(dim, int):
        return dim
    if isinstance(dim, str):
        return values.get(dim)
    a, b = dim_value(dim[1], values), dim_value(dim[2], values)
    return None if a is None or b is None else DIM_OPERATIONS[dim[0]](a, b)


def dim_text(dim: Dim) -> str:
    if not isinstance(dim, tuple):
        return str(dim)
    op, a, b = dim[0], dim_text(dim[1]), dim_text(dim[2])
    return f"({a} {_SYMBOLS[op]} {b})" if op in _SYMBOLS else f"{op}({a}, {b})"


@dataclass(frozen=True)
class ArrayParam:
    """An array parameter; `strides` are in elements, None for a compact row-major array."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...] | None = None
    alignment: int = 1
    is_written: bool = True

    def __str__(self) -> str:
        return f"{self.dtype.name}[{', '.join(dim_text(d) for d in self.shape)}]"


@dataclass(frozen=True)
class ScalarParam:
    """A number passed by value."""

    name: str
    dtype: DType

    def __str__(self) -> str:
        return self.dtype.name


Param = ArrayParam | ScalarParam


@dataclass(frozen=True)
class Signature:
    """The parameters of a function in order, and the symbolic dimensions that they bind."""

    name: str
    params: tuple[Param, ...]
    dims: tuple[str, ...]

    def bind(self, args: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """The arguments as arrays and numbers, and the values of the dimensions, all checked."""
        if len(args) != len(self.params):
            names = ", ".join(p.name for p in self.params)
            raise UserError(
                f"{self.name} takes {len(self.params)} arguments ({names}), not {len(args)}"
            )
        values: dict[str, int] = {}
        bound = [_bind_one(self, p, a, values) for p, a in zip(self.params, args, strict=True)]
        self._check_dims(bound, values)
        _check_overlap(self, bound)
        return bound, [values[d] for d in self.dims]

    def _check_dims(self, bound: list[Any], values: dict[str, int]) -> None:
        """Checks that involve more than one argument."""
        for param, value in zip(self.params, bound, strict=True):
            if isinstance(param, ScalarParam):
                values.setdefault(param.name, value)
        for param, array in zip(self.params, bound, strict=True):
            if isinstance(param, ArrayParam):
                _check_shape(self, param, array, values)
                _check_strides(self, param, array, values)
        for dim in self.dims:
            if dim not in values:
                raise UserError(f"no argument of {self.name} determines the dimension {dim}")


def _bind_one(signature: Signature, param: Param, arg: Any, values: dict[str, int]) -> Any:
    if isinstance(param, ScalarParam):
        return _scalar(signature, param, arg)
    array = as_array(arg)
    if array is None:
        raise _refusal(signature, param, f"got {type(arg).__name__}", "pass a NumPy array")
    if array.dtype != param.dtype.numpy:
        remedy = f"convert it: .astype({param.dtype.name!r})"
        raise _refusal(signature, param, f"got {type_name(array)}", remedy)
    if array.ndim != len(param.shape):
        raise _refusal(signature, param, f"got {array.ndim} dimensions: {list(array.shape)}")
    for dim, extent in zip(param.shape, array.shape, strict=True):
        learn(dim, extent, values)
    if param.is_written and not array.flags.writeable:
        remedy = "pass a writable one, such as a copy"
        raise _refusal(signature, param, "the array is read-only", remedy)
    if not array.flags.aligned or array.ctypes.data % param.alignment:
        bytes_ = max(param.alignment, param.dtype.itemsize)
        reason = f"its data is not aligned to {bytes_} bytes"
        raise _refusal(signature, param, reason, "pass a copy")
    return array


def learn(dim: Dim, extent: int, values: dict[str, int]) -> None:
    """Take a symbolic dimension from the first extent that determines it."""
    if isinstance(dim, str):
        values.setdefault(dim, extent)
    elif isinstance(dim, tuple):
        op, a, b = dim
        if op == "mul" and isinstance(b, int) and b and extent % b == 0:
            learn(a, extent // b, values)
        elif op == "mul" and isinstance(a, int) and a and extent % a == 0:
            learn(b, extent // a, values)
        elif op == "add" and isinstance(b, int) and extent >= b:
            learn(a, extent - b, values)


def _check_shape(
    signature: Signature, param: ArrayParam, array: np.ndarray[Any, Any], values: dict[str, int]
) -> None:
    wanted = [dim_value(d, values) for d in param.shape]
    if wanted == list(array.shape):
        return
    known = {d: values[d] for d in signature.dims if d in values}
    where = " with " + ", ".join(f"{k} = {v}" for k, v in known.items()) if known else ""
    raise _refusal(signature, param, f"got the shape {list(array.shape)}{where}")


def _check_strides(
    signature: Signature, param: ArrayParam, array: np.ndarray[Any, Any], values: dict[str, int]
) -> None:
    if param.strides is None:
        if not array.flags.c_contiguous:
            remedy = f"pass np.ascontiguousarray({param.name})"
            if param.is_written:
                remedy = "pass a contiguous array to be written to"
            raise _refusal(signature, param, f"its strides {array.strides} have gaps", remedy)
        return
    wanted = [dim_value(s, values) for s in param.strides]
    found = [s // array.itemsize for s in array.strides]
    same = [w == f or n <= 1 for w, f, n in zip(wanted, found, array.shape, strict=True)]
    if not all(same):
        raise _refusal(signature, param, f"its strides are {found}, not {wanted}, in elements")


def _check_overlap(signature: Signature, bound: list[Any]) -> None:
    """Refuse written buffers that overlap others, as compiled code assumes they do not."""
    params = zip(signature.params, bound, strict=True)
    shared = overlapping((p.name, a, p.is_written) for p, a in params if isinstance(p, ArrayParam))
    if shared is not None:
        written, other = shared
        raise UserError(
            f"{signature.name}: {written} shares memory with {other}",
            reason=f"{written} is written while {other} is in use",
            remedy="pass separate arrays",
        )


def _scalar(signature: Signature, param: ScalarParam, arg: Any) -> Any:
    value: Any = cast("Any", arg).item() if isinstance(arg, np.generic) else arg
    kinds = (int, float) if param.dtype.is_float else (int,)
    if not isinstance(value, kinds) or (isinstance(value, float) and param.dtype.is_integer):
        raise _refusal(signature, param, f"got {arg!r}")
    low, high = param.dtype.min_value, param.dtype.max_value
    if not param.dtype.is_float and not low <= value <= high:
        raise _refusal(signature, param, f"got {arg!r}, which it cannot hold")
    return value if not param.dtype.is_float or not math.isnan(value) else math.nan


def _refusal(signature: Signature, param: Param, reason: str, remedy: str = "") -> UserError:
    return UserError(
        f"{signature.name}: argument {param.name} must be {param}", reason=reason, remedy=remedy
    )
