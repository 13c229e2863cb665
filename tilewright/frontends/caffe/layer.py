"""What a converter sees of a layer: operands, its parameter message, its weights, the builder."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.frontends.caffe.net import LayerDef
from tilewright.frontends.caffe.prototxt import Message
from tilewright.graph import Array, Builder, Dim, Value
from tilewright.support.errors import UserError


class Layer:
    """One layer while it is converted: `n[0]` is an operand, `n.param("lrn_param")` a message."""

    def __init__(
        self,
        definition: LayerDef,
        inputs: Sequence[Value],
        blobs: Sequence[Array],
        builder: Builder,
    ) -> None:
        self.definition, self.inputs, self.blobs = definition, tuple(inputs), blobs
        self.builder = builder

    def __getitem__(self, index: int) -> Value:
        if index >= len(self.inputs):
            raise UserError(
                f"it has {len(self.inputs)} bottoms", reason=f"it takes at least {index + 1}"
            )
        return self.inputs[index]

    @property
    def type(self) -> str:
        return self.definition.type

    @property
    def outputs(self) -> int:
        return len(self.definition.tops)

    def param(self, name: str) -> Message:
        """The message with the parameters of the layer; old texts have some in the layer itself."""
        return self.definition.message.message(name)

    def blob(self, index: int, *shape: int) -> Array:
        """Weights by their number, in this shape; -1 takes what is left."""
        if index >= len(self.blobs):
            raise UserError(
                f"{len(self.blobs)} blobs of weights are given",
                reason=f"the layer needs {index + 1} at least",
                remedy="pass params='….caffemodel', the one that belongs to the network",
            )
        found = self.blobs[index]
        known = math.prod(s for s in shape if s >= 0)
        if -1 in shape and known and found.size % known == 0:
            shape = tuple(found.size // known if s < 0 else s for s in shape)
        if -1 in shape or math.prod(shape) != found.size:
            raise UserError(
                f"blob {index} of the weights has the shape {list(found.shape)}",
                reason=f"the layer needs {list(shape)}",
                remedy="check that prototxt and caffemodel belong together",
            )
        return found.reshape(shape)

    def axis(self, value: int, rank: int, *, end: bool = False) -> int:
        """An axis counted from the front; with `end`, the one after the last counts too."""
        if not -rank <= value < rank + end:
            raise UserError(f"axis {value} of a blob with {rank} dimensions")
        return value + rank if value < 0 else value

    def constant(self, value: float) -> Value:
        return self.builder.constant(np.float32(value))

    def extent(self, x: Value, axis: int) -> int:
        """A size that must be a number."""
        return _number(x.shape[axis], x)


def _number(dim: Dim, x: Value) -> int:
    found = getattr(dim, "value", dim)
    if not isinstance(found, int):
        raise UserError(f"the sizes of {x} must be known", remedy="give them as numbers in shapes")
    return found
