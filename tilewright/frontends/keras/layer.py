"""The interface of layers for converters: configuration, weights, arguments, masks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.frontends.common.operands import Operands
from tilewright.frontends.keras.config import LayerSpec, as_dict, as_list
from tilewright.frontends.keras.weights import Weights
from tilewright.graph import Array, Value
from tilewright.ir import DType
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.frontends.keras.importer import Importer


#: The element types that layers compute in, by the names of Keras's policies.
_TYPES: Final = {name: DType.of(name) for name in ("float16", "bfloat16", "float32", "float64")}


class Layer(Operands):
    """One call of a layer during its conversion.

    `n[0]` is the first tensor of the first argument; `n.argument(1, "value")` another argument, if
    it is given. `n.config` has the entries of the configuration, `n.weights("kernel", "bias")` the
    arrays in the order in which the layer creates them.
    """

    def __init__(
        self,
        importer: Importer,
        spec: LayerSpec,
        stored: Weights,
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> None:
        first = args[0] if args else next(iter(kwargs.values()), None)
        super().__init__(importer.builder, importer.structure, list(tensors(first)))
        self.importer, self.spec, self.stored = importer, spec, stored
        self.config, self.kind, self.name = spec.config, spec.kind, spec.name
        self.args, self.kwargs = args, kwargs

    # ---- arguments ------------------------------------------------------------------------------

    def argument(self, index: int, name: str) -> Any:
        """An argument by its position or its name; None where it is not given."""
        return self.args[index] if index < len(self.args) else self.kwargs.get(name)

    def tensor_argument(self, index: int, name: str) -> Value | None:
        found = self.argument(index, name)
        if found is not None and not isinstance(found, Value):
            raise UserError(f"the argument {name} is {str(found)[:80]}")
        return found

    def required_argument(self, index: int, name: str) -> Value:
        """A tensor that must be given."""
        found = self.tensor_argument(index, name)
        if found is None:
            raise UserError(f"the argument {name} is missing")
        return found

    # ---- weights --------------------------------------------------------------------------------

    def weights(self, *names: str | None) -> list[Array]:
        """The layer's own weights by Keras's names, in the order in which it creates them; None
        stands for weights that do not exist."""
        return self.stored.arrays([n for n in names if n is not None])

    def weight(self, array: Array, axes: Sequence[int] | None = None) -> Value:
        """A constant of the type that the layer computes in, with its axes in another order."""
        found = array if axes is None else np.transpose(array, axes)
        wanted = self.compute_type
        if found.dtype.kind in "fV" and wanted is not None and found.dtype != wanted.numpy:
            found = found.astype(wanted.numpy)
        return self.builder.constant(np.ascontiguousarray(found), name=self.name)

    @property
    def compute_type(self) -> DType | None:
        """The element type that the layer computes in."""
        policy = self.config.raw("dtype", "float32")
        if (entries := as_dict(policy)) is not None:
            policy = (as_dict(entries.get("config")) or {}).get("name", policy)
        return _TYPES.get(str(policy).removeprefix("mixed_"))

    def computed(self, value: Value) -> Value:
        """A tensor of floats in the type that the layer computes in; integers become floats."""
        wanted = self.compute_type
        if wanted is None or value.dtype is wanted:
            return value
        return self.builder.cast(value, dtype=wanted)

    # ---- masks ----------------------------------------------------------------------------------

    @property
    def mask(self) -> Value | None:
        """Which time steps of the first input count; None where all do."""
        given = self.kwargs.get("mask")
        if isinstance(given, Value):
            return given
        return self.mask_of(self.inputs[0]) if self.inputs else None

    def mask_of(self, value: Value | None) -> Value | None:
        return None if value is None else self.importer.masks.get(value)

    def masked(self, value: Value, mask: Value | None) -> Value:
        """The value, after setting its mask."""
        if mask is None:
            self.importer.masks.pop(value, None)
        else:
            self.importer.masks[value] = mask
        return value

    # ---- layers inside --------------------------------------------------------------------------

    def call(
        self, spec: LayerSpec, stored: Weights, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """The results of a layer inside this one."""
        return self.importer.call(spec, stored, args, kwargs)


def tensors(value: Any) -> Iterator[Value]:
    """All tensors inside an argument."""
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, Value):
            yield current
        else:
            inner = as_list(current) or list((as_dict(current) or {}).values())
            pending += reversed(inner)
