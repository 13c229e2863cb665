"""Inputs and outputs of a model, by the names in its file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np

from tilewright.graph import Array, Builder, TensorType, Value
from tilewright.support.errors import UserError, nearest


def given_array(value: Value, given: Any) -> Array:
    """The value that a program is specialised for, which must fit the input."""
    array = np.asarray(given)
    type_ = value.type
    if not isinstance(type_, TensorType) or array.ndim != type_.ndim:
        raise UserError(f"values gives input {value} an array of shape {list(array.shape)}")
    if type_.dtype.numpy != array.dtype and array.dtype.kind not in "OU":
        raise UserError(f"values gives input {value} an array of {array.dtype}")
    return array


def require_names(what: str, given: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse shapes or values for inputs that a model does not have."""
    known = list(names)
    for name in given:
        if name not in known:
            raise UserError(
                f"{what} names the input {name}",
                reason="the model has no such input",
                remedy=nearest(name, known),
            )


def named_output(
    builder: Builder, name: str, value: Value | None, taken: Set[Value | None]
) -> Value:
    """The value of an output, by its name; a tensor whose name must stay is copied."""
    if value is None:
        raise UserError(f"output {name} of the model is nothing")
    if value not in taken and value.constant is None:
        value.name = name
    if value.name == name or not isinstance(value.type, TensorType):
        return value
    builder.origin = f"output {name}"
    return builder.emit("identity", value, name=name)


def add_output(builder: Builder, name: str, value: Value, taken: set[Value]) -> None:
    """Make a value an output of the model by this name."""
    result = named_output(builder, name, value, taken)
    builder.output(result)
    taken.add(result)
