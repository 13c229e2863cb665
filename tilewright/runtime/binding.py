"""Checks and converts the inputs of a model.

An error names the input, what was expected and what was passed.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, cast

import numpy as np

from tilewright.runtime.arrays import Array, overlapping, type_name
from tilewright.runtime.dlpack import as_array
from tilewright.runtime.gpu.arrays import DeviceArray
from tilewright.runtime.lists import PassedList
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
        """The shape, if it has no symbolic dimensions; else None."""
        known = [d for d in self.shape if isinstance(d, int)]
        return tuple(known) if len(known) == len(self.shape) else None

    def sizes(self, dims: dict[str, int]) -> list[int]:
        """The shape for these dimensions."""
        found = [dim_value(d, dims) for d in self.shape]
        return [0 if d is None else d for d in found]


#: Types for inputs given in order.
_SEQUENCES: Final = (list, tuple)
#: A dimension that may differ between the items of a list.
ANY_SIZE: Final = "_"
ListKind = Literal["seq", "opt", "opt seq"]
LIST_KINDS: Final[dict[str, ListKind]] = {"seq": "seq", "opt": "opt", "opt seq": "opt seq"}


@dataclass(frozen=True)
class ListSpec:
    """An input or output that is a sequence of tensors, an optional one, or an optional sequence.

    `items` is the shape of its tensors, with `ANY_SIZE` for free dimensions; None for any rank.
    """

    name: str
    kind: ListKind
    dtype: DType
    items: tuple[Dim, ...] | None

    def __str__(self) -> str:
        shape = "" if self.items is None else f"[{', '.join(map(dim_text, self.items))}]"
        text = self.dtype.name + shape
        for kind in reversed(self.kind.split()):
            text = f"{kind}[{text}]"
        return f"{self.name}: {text}"

    @property
    def shape(self) -> tuple[Dim, ...] | None:
        """The shape of its tensors, as in `TensorSpec`."""
        return self.items

    @property
    def may_be_none(self) -> bool:
        return self.kind != "seq"

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        return self.dtype.numpy

    @cached_property
    def tells_dims(self) -> bool:
        """Whether the shape of its items has symbolic dimensions."""
        return any(not isinstance(d, int) and d != ANY_SIZE for d in self.items or ())

    @cached_property
    def _sizes(self) -> list[tuple[int, int]]:
        return [(k, d) for k, d in enumerate(self.items or ()) if isinstance(d, int)]

    def fits(self, value: Any) -> bool:
        """Whether an item can be passed as it is; symbolic dimensions are not checked."""
        if not isinstance(value, np.ndarray):
            return False
        array = cast("Array", value)
        has_rank = self.items is None or array.ndim == len(self.items)
        if not has_rank or array.dtype != self.numpy:
            return False
        is_plain = array.flags.c_contiguous and array.flags.aligned
        return is_plain and all(array.shape[axis] == size for axis, size in self._sizes)

    def item(self, number: int, array: Array | None) -> TensorSpec:
        """The spec for an item, given its value."""
        extents = () if array is None else array.shape
        fits = self.items is not None and len(self.items) == len(extents)
        dims = extents if self.items is None else self.items
        if fits:
            pairs = zip(dims, extents, strict=True)
            dims = tuple(n if d == ANY_SIZE else d for d, n in pairs)
        name = self.name if self.kind == "opt" else f"{self.name}[{number}]"
        return TensorSpec(name, self.dtype, dims)


@dataclass(frozen=True)
class ValueSpec:
    """A non-tensor input or output of a model that Python runs."""

    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


class UnsuitedError(UserError):
    """Inputs that a program does not accept; one for other sizes of the same model may."""


class DimensionsDifferError(UnsuitedError):
    """Inputs whose shapes give a symbolic dimension several extents."""


class StoppedError(UnsuitedError):
    """A check failed, in compiled code or before it runs."""


#: Inputs and outputs of compiled code.
NativeSpec = TensorSpec | ListSpec
Spec = NativeSpec | ValueSpec
#: An input in the form that compiled code takes.
Bound = Array | PassedList


def in_order(inputs: Any, specs: Sequence[Spec]) -> Sequence[Any]:
    """The inputs in the model's order, given by name or in order."""
    if isinstance(inputs, Mapping):
        return _by_name(cast("Mapping[str, Any]", inputs), specs)
    if not isinstance(inputs, _SEQUENCES):
        raise UserError(
            f"cannot run on {type(inputs).__name__}",
            remedy="pass a dict of arrays by name, or a list of them in order",
        )
    given = cast("Sequence[Any]", inputs)
    if len(given) != len(specs):
        raise UserError(f"{len(given)} inputs were given", reason=_wanted(specs))
    return given


def _by_name(inputs: Mapping[str, Any], specs: Sequence[Spec]) -> Sequence[Any]:
    if len(inputs) == len(specs):
        try:
            return [inputs[s.name] for s in specs]
        except KeyError:
            pass  # missing or unknown names are reported below
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
    """The inputs as contiguous arrays, and the values of symbolic dimensions."""
    arrays = [_bound(spec, value) for spec, value in zip(specs, inputs, strict=True)]
    return arrays, _dims_of_inputs(list(zip(specs, arrays, strict=True)))


def native_inputs(inputs: Sequence[Any], specs: Sequence[NativeSpec]) -> list[Bound]:
    """The inputs in the form that compiled code takes; dimensions are not determined."""
    return [
        _bound(spec, value) if isinstance(spec, TensorSpec) else _passed(spec, value)
        for spec, value in zip(specs, inputs, strict=True)
    ]


def _passed(spec: ListSpec, value: Any) -> PassedList:
    if value is None and spec.may_be_none:
        return PassedList(None)
    if spec.kind != "opt" and not isinstance(value, list | tuple):
        reason, remedy = f"got {type(value).__name__}", "pass a list of arrays"
        raise _refusal(spec, reason, f"{remedy}, or None" if spec.may_be_none else remedy)
    items: Sequence[Any] = [value] if spec.kind == "opt" else cast("Sequence[Any]", value)
    return PassedList([v if spec.fits(v) else _item(spec, k, v) for k, v in enumerate(items)])


def _item(spec: ListSpec, number: int, value: Any) -> Array:
    """An item, converted or refused."""
    array = np.asarray(value) if np.isscalar(value) else as_array(value)
    return _bound(spec.item(number, array), value)


def dims_of(inputs: Sequence[Bound], specs: Sequence[NativeSpec]) -> dict[str, int]:
    """The symbolic dimensions, from the shapes of the inputs, which must agree."""
    tensors: list[tuple[TensorSpec, Array]] = []
    for spec, value in zip(specs, inputs, strict=True):
        if isinstance(value, PassedList):
            assert isinstance(spec, ListSpec)
            items = enumerate(value.arrays if spec.tells_dims else ())
            tensors += [(spec.item(k, a), a) for k, a in items]
        elif isinstance(spec, TensorSpec):
            tensors.append((spec, value))
    return _dims_of_inputs(tensors)


def _dims_of_inputs(tensors: Sequence[tuple[TensorSpec, Array]]) -> dict[str, int]:
    dims: dict[str, int] = {}
    free = [(s, a) for s, a in tensors if s.static_shape is None]
    for spec, array in free:
        for dim, extent in zip(spec.shape, array.shape, strict=True):
            learn(dim, extent, dims)
    for spec, array in free:
        if spec.sizes(dims) != list(array.shape):
            raise _wrong_shape(spec, array, dims)
    return dims


def _bound(spec: TensorSpec, value: Any) -> Array:
    is_array = isinstance(value, np.ndarray | DeviceArray)
    array = cast("Array", value) if is_array else _from_other(spec, value)
    if array.dtype != spec.numpy:
        remedy = f"convert it: .astype({spec.dtype.name!r})"
        raise _refusal(spec, f"got {type_name(array)}{list(array.shape)}", remedy)
    if array.ndim != len(spec.shape):
        raise _refusal(spec, f"got {array.ndim} dimensions: {list(array.shape)}")
    if spec.static_shape is not None and array.shape != spec.static_shape:
        raise _refusal(spec, f"got the shape {list(array.shape)}")
    if isinstance(value, DeviceArray):
        return array
    plain = array.flags.c_contiguous and array.flags.aligned
    return array if plain else np.array(array, order="C")


def _from_other(spec: TensorSpec, value: Any) -> Array:
    if isinstance(value, bool | int | float | list | tuple):
        try:
            made = np.asarray(value, spec.numpy)
        except (TypeError, ValueError, OverflowError) as error:
            raise _refusal(spec, str(error)) from None
        if made.dtype.kind in "iub" and np.any(made != np.asarray(value)):
            raise _refusal(spec, "got numbers that this type does not hold")
        return made
    array: Array | None = np.asarray(value) if np.isscalar(value) else as_array(value)
    if array is None:
        raise _refusal(spec, f"got {type(value).__name__}", "pass a NumPy array")
    return array


def _wrong_shape(spec: TensorSpec, array: Array, dims: dict[str, int]) -> UserError:
    known = ", ".join(f"{k} = {v}" for k, v in dims.items())
    reason = f"got the shape {list(array.shape)}"
    pairs = zip(spec.shape, array.shape, strict=True)
    differ = all(dim == extent for dim, extent in pairs if isinstance(dim, int))
    kind = DimensionsDifferError if differ else UserError
    return kind(
        _must_be(spec), reason=f"{reason} with {known} from the inputs" if known else reason
    )


def _refusal(spec: NativeSpec, reason: str, remedy: str = "") -> UserError:
    return UserError(_must_be(spec), reason=reason, remedy=remedy)


def _must_be(spec: NativeSpec) -> str:
    return f"input {spec.name} must be {str(spec).partition(': ')[2]}"


def bind_outputs(
    outputs: Mapping[str, Any] | Sequence[Any],
    specs: Sequence[NativeSpec],
    dims: dict[str, int],
    handed_over: Container[int],
) -> list[Array | None]:
    """The caller's arrays for the outputs; None for those the model allocates.

    `handed_over` are the outputs whose memory the code allocates, for which none may be given.
    """
    names = [s.name for s in specs]
    if not isinstance(outputs, Mapping | list | tuple):
        raise UserError(
            f"outputs cannot be written to {type(outputs).__name__}",
            remedy="pass a dict of arrays by name, or a list of them in order",
        )
    if isinstance(outputs, Mapping):
        for name in outputs:
            if name not in names:
                raise UserError(f"the model has no output {name}", remedy=nearest(name, names))
        given = [outputs.get(n) for n in names]
    else:
        if len(outputs) > len(specs):
            raise UserError(f"{len(outputs)} arrays were given for {len(specs)} outputs")
        given = [*outputs, *[None] * (len(specs) - len(outputs))]
    for k, spec in enumerate(specs):
        if given[k] is not None and k in handed_over:
            what = f"it is {str(spec).partition(': ')[2]}"
            size = "how large it gets is known only when the model has run"
            raise UserError(
                f"output {spec.name} cannot be written to an array",
                reason=what if isinstance(spec, ListSpec) else size,
                remedy="leave it out of the arrays for outputs",
            )
    return [
        _own_output(s, g, dims) if isinstance(s, TensorSpec) and g is not None else None
        for s, g in zip(specs, given, strict=True)
    ]


def require_apart(
    inputs: Sequence[Bound],
    takes: Sequence[NativeSpec],
    outputs: Sequence[Array | None],
    gives: Sequence[NativeSpec],
) -> None:
    """Refuse arrays for outputs that share memory with each other or with inputs.

    An output may be written while inputs are still read, and before other outputs.
    """
    written = [
        (f"output {s.name}", a, True) for s, a in zip(gives, outputs, strict=True) if a is not None
    ]
    read = [
        (f"input {s.name}", array, False)
        for s, value in zip(takes, inputs, strict=True)
        for array in (value.arrays if isinstance(value, PassedList) else (value,))
    ]
    shared = overlapping([*written, *read])
    if shared is not None:
        raise UserError(
            f"{shared[0]} cannot be written to its array",
            reason=f"it shares memory with that of {shared[1]}",
            remedy="pass separate arrays",
        )


def _own_output(spec: TensorSpec, given: Any, dims: dict[str, int]) -> Array:
    wanted = spec.sizes(dims)
    array = cast("Array", given) if isinstance(given, DeviceArray) else as_array(given)
    if array is None or array.dtype != spec.numpy or list(array.shape) != wanted:
        found = f"{given!r}" if array is None else f"{array.dtype}{list(array.shape)}"
        raise UserError(
            f"output {spec.name} must be an array {spec.dtype.name}{wanted}", reason=f"got {found}"
        )
    if isinstance(given, DeviceArray):
        return array
    if not array.flags.c_contiguous or not array.flags.writeable or not array.flags.aligned:
        raise UserError(
            f"output {spec.name} cannot be written to its array",
            reason="it has gaps, is not aligned, or is read-only",
            remedy="pass one from np.empty",
        )
    return array
