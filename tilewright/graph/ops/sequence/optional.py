"""Optionals: a value or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import (
    ANY,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    UnknownType,
    fresh_dim,
)
from tilewright.ir import DType
from tilewright.support.errors import UserError


@op(structural=True)
def optional(x: Value) -> Type:
    """An optional that holds `x`."""
    return OptionalType(x.type)


@optional.reference
def optional_reference(x: Any) -> Any:
    return (x,)


@optional.item
def optional_item(x: Value) -> bool:
    """A sequence is shared; a tensor is copied into the optional."""
    return not isinstance(x.type, TensorType)


@op(structural=True)
def optional_none(*, dtype: DType, sequence: bool = False) -> Type:
    """An optional tensor, or sequence of tensors, that is not there."""
    element = UnknownType(dtype)
    return OptionalType(SequenceType(element) if sequence else element)


@optional_none.reference
def optional_none_reference(*, dtype: DType, sequence: bool) -> Any:
    del dtype, sequence
    return (None,)


@op(structural=True)
def optional_has(x: Value) -> Type:
    """Whether there is something; of anything but an optional, there is."""
    del x
    return TensorType("bool")


@optional_has.reference
def optional_has_reference(x: Any) -> Array:
    return np.asarray(x is not None)


@op(structural=True)
def optional_get(x: Value) -> Type:
    """What an optional holds; anything but an optional is itself."""
    if not isinstance(x.type, OptionalType):
        return x.type
    element = x.type.element
    if isinstance(element, UnknownType):
        raise UserError(f"{x.name} holds nothing, or something of unknown rank")
    if not isinstance(element, TensorType):
        return element
    return element.with_shape(fresh_dim() if d is ANY else d for d in element.shape)


@optional_get.reference
def optional_get_reference(x: Any) -> Any:
    if x is None:
        raise UserError("an optional that holds nothing was opened")
    return (x,)


@optional_get.item
def optional_get_item(x: Value) -> bool:
    del x
    return True
