"""Inputs and outputs of models as data: a tree for the header, and arrays for the body.

In a tree, `{"array": k}` is the k-th array, a list is a list, null is None, `{"number": …}` is a
number and `{"strings": …, "shape": […]}` an array of strings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, cast

import numpy as np

from tilewright.rpc.wire.channel import Channel
from tilewright.rpc.wire.errors import ProtocolError
from tilewright.runtime import aligned_empty, as_array
from tilewright.support.dtype import DType
from tilewright.support.errors import UserError

Array = np.ndarray[Any, Any]
_MOST_ARRAYS: Final = 4096
_MOST_DIMS: Final = 64


class Packed:
    """Values to be sent."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []

    def tree(self, value: Any) -> Any:
        """The tree of a value for the header; its arrays are kept for the body."""
        if value is None:
            return None
        if isinstance(value, bool | int | float):
            return {"number": value.hex() if isinstance(value, float) else value}
        if isinstance(value, list | tuple):
            return [self.tree(v) for v in cast("Sequence[Any]", value)]
        array = np.asarray(value) if isinstance(value, str | bytes) else as_array(value)
        if array is None:
            raise UserError(
                f"cannot send {type(value).__name__} to a device",
                remedy="pass NumPy arrays, numbers, or lists of them",
            )
        return self._strings(array) if array.dtype.kind in "OUS" else self._array(array)

    def named(self, values: Any) -> Any:
        """The tree of values by name or in order."""
        if isinstance(values, Mapping):
            items = cast("Mapping[str, Any]", values).items()
            return {"named": {str(name): self.tree(v) for name, v in items}}
        return {"listed": self.tree(values)}

    def _strings(self, array: Array) -> Any:
        texts = array.ravel().tolist()
        if any(not isinstance(t, str) for t in texts):
            raise UserError(f"cannot send an array of {array.dtype} to a device")
        return {"strings": texts, "shape": list(array.shape)}

    def _array(self, array: Array) -> Any:
        if not array.dtype.isnative or _dtype_name(array.dtype) is None:
            raise UserError(
                f"cannot send an array of {array.dtype} to a device",
                remedy="convert it to the type that the model takes",
            )
        self.arrays.append(np.ascontiguousarray(array).reshape(array.shape))
        return {"array": len(self.arrays) - 1}

    def specs(self) -> list[Any]:
        """The element type and shape of each array."""
        return [[_dtype_name(a.dtype), list(a.shape)] for a in self.arrays]

    def parts(self) -> list[memoryview]:
        """The bytes of the arrays, one after the other."""
        return [bytes_of(a) for a in self.arrays]


def bytes_of(array: Array) -> memoryview:
    """The memory of a contiguous array of any type."""
    return cast("Any", array.reshape(-1).view(np.uint8)).data


def received(channel: Channel, specs: Any, body_bytes: int) -> list[Array]:
    """The arrays of a message, whose sizes must add up to the body's."""
    if specs == [] and not body_bytes:
        return []
    wanted = [_spec(s) for s in _list(specs, _MOST_ARRAYS)]
    total = sum(math.prod(shape) * dtype.itemsize for dtype, shape in wanted)
    if total != body_bytes:
        raise _wrong(f"its arrays take {total} bytes, and its body has {body_bytes}")
    arrays = [aligned_empty(shape, dtype) for dtype, shape in wanted]
    channel.read_body([bytes_of(a) for a in arrays])
    return arrays


def unpacked(tree: Any, arrays: Sequence[Array]) -> Any:
    """The value of a tree."""
    if tree is None:
        return None
    if isinstance(tree, list):
        return [unpacked(t, arrays) for t in cast("list[Any]", tree)]
    if not isinstance(tree, dict):
        raise _wrong("a value is neither list nor object")
    fields = cast("dict[str, Any]", tree)
    if set(fields) == {"array"}:
        return arrays[_natural(fields["array"], len(arrays) - 1)]
    if set(fields) == {"number"}:
        return _number(fields["number"])
    if set(fields) == {"strings", "shape"}:
        return _strings(fields)
    raise _wrong("a value is of an unknown kind")


def unpacked_inputs(tree: Any, arrays: Sequence[Array]) -> Any:
    """Values by name or in order, from their tree."""
    fields = cast("dict[str, Any]", tree) if isinstance(tree, dict) else {}
    if set(fields) == {"listed"}:
        return unpacked(fields["listed"], arrays)
    if set(fields) == {"named"} and isinstance(fields["named"], dict):
        named = cast("dict[str, Any]", fields["named"])
        return {name: unpacked(value, arrays) for name, value in named.items()}
    raise _wrong("inputs are neither by name nor in order")


def _number(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return float.fromhex(value[:64])
        except (ValueError, OverflowError):
            raise _wrong("a number is none") from None
    if not isinstance(value, int) or not -(1 << 64) < value < 1 << 64:
        raise _wrong("a number is none")
    return value


def _strings(fields: dict[str, Any]) -> Array:
    texts = _list(fields["strings"], 1 << 20)
    shape = [_natural(d, 1 << 40) for d in _list(fields["shape"], _MOST_DIMS)]
    if math.prod(shape) != len(texts) or any(not isinstance(t, str) for t in texts):
        raise _wrong("an array of texts does not have as many as its shape says")
    made: Array = np.empty(len(texts), object)
    made[:] = texts
    return made.reshape(shape)


@lru_cache(256)
def _dtype_name(dtype: np.dtype[Any]) -> str | None:
    """The name of a type in the protocol; None for unsupported ones."""
    try:
        return DType.of(dtype).name
    except UserError:
        return None


@lru_cache(256)
def _dtype(name: str) -> np.dtype[Any]:
    try:
        found = DType.of(name) if len(name) < 32 else None
    except UserError:
        found = None
    if found is None or found.is_vector:
        raise _wrong("an array is of an unknown type")
    return found.numpy


def _spec(value: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    pair = _list(value, 2)
    if len(pair) != 2 or not isinstance(pair[0], str):
        raise _wrong("an array has other than a type and a shape")
    dims = _list(pair[1], _MOST_DIMS)
    return _dtype(pair[0]), tuple(_natural(d, 1 << 62) for d in dims)


def _list(value: Any, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong("a list is missing")
    found = cast("list[Any]", value)
    if len(found) > most:
        raise _wrong(f"a list has {len(found)} elements, and {most} are allowed")
    return found


def _natural(value: Any, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise _wrong("a number is out of range")
    return value


def _wrong(reason: str) -> ProtocolError:
    return ProtocolError("a message is damaged", reason=reason)
