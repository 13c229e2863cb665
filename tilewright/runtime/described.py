"""Signatures and targets as plain data.

Data is checked when it is read, since it comes from the network or from files.
"""

from __future__ import annotations

from typing import Any, Final, cast

from tilewright.runtime.program import TargetInfo
from tilewright.runtime.signature import DIM_OPERATIONS, ArrayParam, Dim, ScalarParam, Signature
from tilewright.support.dtype import DType
from tilewright.support.errors import UserError

#: Deepest nesting of operations in a dimension.
_DEEPEST: Final = 16
_LONGEST_TEXT: Final = 4096


class UnreadableError(ValueError):
    """Data that is no valid signature or target; `what` names the part."""

    def __init__(self, what: str) -> None:
        super().__init__(f"a {what} makes no sense")
        self.what = what


def signature_data(signature: Signature) -> dict[str, Any]:
    """A signature, in JSON types."""
    return {
        "name": signature.name,
        "params": [_param_data(p) for p in signature.params],
        "dims": list(signature.dims),
    }


def signature_from(data: Any) -> Signature:
    """The signature from `signature_data`."""
    fields = _fields(data)
    params = tuple(_param(p) for p in _parts(fields.get("params")))
    dims = tuple(map(_text, _parts(fields.get("dims"))))
    return Signature(_text(fields.get("name")), params, dims)


def target_data(target: TargetInfo) -> list[Any]:
    """A target, in JSON types."""
    return [target.text, target.triple, sorted(target.features)]


def target_from(data: Any) -> TargetInfo:
    """The target from `target_data`."""
    text, triple, features = _parts(data, 3)
    return TargetInfo(_text(text), _text(triple), frozenset(map(_text, _parts(features))))


def _param_data(param: ArrayParam | ScalarParam) -> list[Any]:
    if isinstance(param, ScalarParam):
        return [param.name, param.dtype.name]
    strides = None if param.strides is None else list(param.strides)
    shape = list(param.shape)
    return [param.name, param.dtype.name, shape, strides, param.alignment, param.is_written]


def _param(value: Any) -> ArrayParam | ScalarParam:
    parts = _parts(value)
    if len(parts) == 2:
        return ScalarParam(_text(parts[0]), _dtype(parts[1]))
    name, dtype, shape, strides, alignment, written = _parts(value, 6)
    steps = None if strides is None else tuple(_dim(s) for s in _parts(strides))
    if not isinstance(alignment, int) or not 0 < alignment <= 1 << 20:
        raise UnreadableError("alignment")
    dims = tuple(_dim(d) for d in _parts(shape))
    return ArrayParam(_text(name), _dtype(dtype), dims, steps, alignment, written is True)


def _dim(value: Any, depth: int = _DEEPEST) -> Dim:
    if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    op, a, b = _parts(value, 3)
    if op not in DIM_OPERATIONS or not depth:
        raise UnreadableError("dimension")
    return (op, _dim(a, depth - 1), _dim(b, depth - 1))


def _dtype(value: Any) -> DType:
    try:
        return DType.of(_text(value))
    except UserError:
        raise UnreadableError("type") from None


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise UnreadableError("text")
    return value


def _fields(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnreadableError("signature")
    return cast("dict[str, Any]", value)


def _parts(value: Any, count: int | None = None) -> list[Any]:
    parts = cast("list[Any]", value) if isinstance(value, list | tuple) else None
    if parts is None or (count is not None and len(parts) != count):
        raise UnreadableError("list")
    return parts
