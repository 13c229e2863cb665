"""The inputs of a model, checked against what it takes.

A refusal names the input, what was expected and what came.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from tilewright.runtime.arrays import Array
from tilewright.runtime.dlpack import as_array
from tilewright.runtime.signature import Dim, dim_text, dim_value, learn
from tilewright.support.dtype import DType
from tilewright.support.errors import UserError, nearest


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a model: its name, element type and shape."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}[{', '.join(dim_text(d) for d in self.shape)}]"

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        return self.dtype.numpy

    @cached_property
    def static_shape(self) -> tuple[int, ...] | None:
        """The shape, where it is all numbers."""
        known = [d for d in self.shape if isinstance(d, int)]
        return tuple(known) if len(known) == len(self.shape) else None

    def sizes(self, dims: dict[str, int]) -> list[int]:
        """The shape for these dimensions."""
        found = [dim_value(d, dims) for d in self.shape]
        return [0 if d is None else d for d in found]


@dataclass(frozen=True)
class ValueSpec:
    """An input or output that is no tensor: a sequence, an optional value."""

    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


Spec = TensorSpec | ValueSpec


def in_order(inputs: Any, specs: Sequence[Spec]) -> Sequence[Any]:
    """The inputs in the order of the model's, given by name or in order."""
    if isinstance(inputs, Mapping):
        return _by_name(cast("Mapping[str, Any]", inputs), specs)
    if not isinstance(inputs, list | tuple):
        raise UserError(
            f"cannot run on {type(inputs).__name__}",
            remedy="pass a dict of arrays by name, or a list of them in order",
        )
    given = cast("Sequence[Any]", inputs)
    if len(given) != len(specs):
        raise UserError(f"{len(given)} inputs were given", reason=_wanted(specs))
    return given


def _by_name(inputs: Mapping[str, Any], specs: Sequence[Spec]) -> Sequence[Any]:
    names = [s.name for s in specs]
    for name in inputs:
        if name not in names:
            remedy = nearest(str(name), names)
            raise UserError(f"the model has no input {name}", reason=_wanted(specs), remedy=remedy)
    missing = [n for n in names if n not in inputs]
    if missing:
        raise UserError(f"input {', '.join(missing)} is missing", reason=_wanted(specs))
    return [inputs[n] for n in names]


def _wanted(specs: Sequence[Spec]) -> str:
    return f"the model takes {', '.join(map(str, specs)) or 'none'}"


def bind_inputs(
    inputs: Sequence[Any], specs: Sequence[TensorSpec]
) -> tuple[list[Array], dict[str, int]]:
    """The inputs as arrays without gaps, and the dimensions that they tell."""
    arrays = input_arrays(inputs, specs)
    return arrays, dims_of(arrays, specs)


def input_arrays(inputs: Sequence[Any], specs: Sequence[TensorSpec]) -> list[Array]:
    """The inputs as arrays without gaps; what dimensions they tell is not looked at."""
    return [_bound(spec, value) for spec, value in zip(specs, inputs, strict=True)]


def dims_of(arrays: Sequence[Array], specs: Sequence[TensorSpec]) -> dict[str, int]:
    """The dimensions that the shapes of the inputs tell, which must agree on them."""
    dims: dict[str, int] = {}
    free = [(s, a) for s, a in zip(specs, arrays, strict=True) if s.static_shape is None]
    for spec, array in free:
        for dim, extent in zip(spec.shape, array.shape, strict=True):
            learn(dim, extent, dims)
    for spec, array in free:
        if spec.sizes(dims) != list(array.shape):
            raise _wrong_shape(spec, array, dims)
    return dims


def _bound(spec: TensorSpec, value: Any) -> Array:
    array = cast("Array", value) if isinstance(value, np.ndarray) else _from_other(spec, value)
    if array.dtype != spec.numpy:
        remedy = f"convert it: .astype({spec.dtype.name!r})"
        raise _refusal(spec, f"got {array.dtype.name}{list(array.shape)}", remedy)
    if array.ndim != len(spec.shape):
        raise _refusal(spec, f"got {array.ndim} dimensions: {list(array.shape)}")
    if spec.static_shape is not None and array.shape != spec.static_shape:
        raise _refusal(spec, f"got the shape {list(array.shape)}")
    plain = array.flags.c_contiguous and array.flags.aligned
    return array if plain else np.array(array, order="C")


def _from_other(spec: TensorSpec, value: Any) -> Array:
    if isinstance(value, bool | int | float | list | tuple):
        try:
            return np.asarray(value, spec.numpy)
        except (TypeError, ValueError, OverflowError) as error:
            raise _refusal(spec, str(error)) from None
    array: Array | None = np.asarray(value) if np.isscalar(value) else as_array(value)
    if array is None:
        raise _refusal(spec, f"got {type(value).__name__}", "pass a NumPy array")
    return array


def _wrong_shape(spec: TensorSpec, array: Array, dims: dict[str, int]) -> UserError:
    known = ", ".join(f"{k} = {v}" for k, v in dims.items())
    reason = f"got the shape {list(array.shape)}"
    return _refusal(spec, f"{reason} with {known} from the inputs" if known else reason)


def _refusal(spec: TensorSpec, reason: str, remedy: str = "") -> UserError:
    wanted = str(spec).partition(": ")[2]
    return UserError(f"input {spec.name} must be {wanted}", reason=reason, remedy=remedy)


def bind_outputs(
    outputs: Mapping[str, Any] | Sequence[Any], specs: Sequence[TensorSpec], dims: dict[str, int]
) -> list[Array | None]:
    """The caller's own arrays for the outputs; None for those the model makes."""
    names = [s.name for s in specs]
    if isinstance(outputs, Mapping):
        for name in outputs:
            if name not in names:
                raise UserError(f"the model has no output {name}", remedy=nearest(name, names))
        given = [outputs.get(n) for n in names]
    else:
        if len(outputs) > len(specs):
            raise UserError(f"{len(outputs)} arrays were given for {len(specs)} outputs")
        given = [*outputs, *[None] * (len(specs) - len(outputs))]
    return [
        None if g is None else _own_output(s, g, dims) for s, g in zip(specs, given, strict=True)
    ]


def _own_output(spec: TensorSpec, given: Any, dims: dict[str, int]) -> Array:
    wanted = spec.sizes(dims)
    array = as_array(given)
    if array is None or array.dtype != spec.numpy or list(array.shape) != wanted:
        found = f"{given!r}" if array is None else f"{array.dtype}{list(array.shape)}"
        raise UserError(
            f"output {spec.name} must be an array {spec.dtype.name}{wanted}", reason=f"got {found}"
        )
    if not array.flags.c_contiguous or not array.flags.writeable or not array.flags.aligned:
        raise UserError(
            f"output {spec.name} cannot be written to its array",
            reason="it has gaps, is not aligned, or is read-only",
            remedy="pass one from np.empty",
        )
    return array
