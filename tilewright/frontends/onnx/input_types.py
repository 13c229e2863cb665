"""Types of a model's inputs as graph types, refined by the shapes that the caller gives."""

from __future__ import annotations

from typing import Any, Final

from tilewright.frontends.common.input_shapes import (
    GivenDim,
    Shape,
    checked_dim,
    input_shape,
    merged_shape,
)
from tilewright.frontends.common.structure import UnspecialisedError
from tilewright.frontends.onnx.element_types import element_type
from tilewright.graph import (
    ANY,
    Builder,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    UnknownType,
)
from tilewright.support.errors import UserError

_MAX_NESTING: Final = 16


def input_type(name: str, proto: Any, builder: Builder, given: Shape | None) -> Type:
    """The type of an input; a tensor's rank must be known."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        return _tensor(name, proto.tensor_type, builder, given)
    return _inner(name, proto, builder, given, 0)


def _tensor(name: str, proto: Any, builder: Builder, given: Shape | None) -> TensorType:
    dtype = element_type(proto.elem_type, f"input {name}")
    declared = _declared(name, proto)
    if declared is None and given is None:
        raise UnspecialisedError(
            f"the model does not declare the rank of input {name}",
            reason="it must be known before the program can be built",
            shapes=[name],
        )
    return TensorType(dtype, input_shape(name, declared, given, builder))


def _declared(name: str, proto: Any) -> list[GivenDim] | None:
    """The shape in the file; None where the rank is not declared."""
    if not proto.HasField("shape"):
        return None
    return [_declared_dim(name, d) for d in proto.shape.dim]


def _declared_dim(name: str, proto: Any) -> GivenDim:
    if proto.WhichOneof("value") == "dim_value":
        # Exporters write -1 for an unknown dimension.
        return None if proto.dim_value == -1 else checked_dim(name, proto.dim_value)
    # Some exporters give all unknown dimensions this one name.
    return None if proto.dim_param in ("", "?") else proto.dim_param


# ---- sequences and optionals --------------------------------------------------------------------


def _inner(name: str, proto: Any, builder: Builder, given: Shape | None, depth: int) -> Type:
    if depth > _MAX_NESTING:
        raise UserError(f"input {name} has a type that is nested too deeply")
    kind = proto.WhichOneof("value")
    if kind == "sequence_type":
        element = _inner(name, proto.sequence_type.elem_type, builder, given, depth + 1)
        return SequenceType(element)
    if kind == "optional_type":
        element = _inner(name, proto.optional_type.elem_type, builder, given, depth + 1)
        return OptionalType(element)
    if kind == "tensor_type":
        return element_tensor(name, proto.tensor_type, given)
    raise UserError(
        f"input {name} has the type {kind or 'nothing'}", reason="no such type is known"
    )


def element_tensor(name: str, proto: Any, given: Shape | None = None) -> Type:
    """A tensor inside a sequence or an optional: its dimensions may differ between values."""
    dtype = element_type(proto.elem_type, name)
    declared = _declared(name, proto)
    # Files have an empty shape, that of a scalar, for elements of unknown rank.
    if not declared and given is None:
        return UnknownType(dtype)
    shape = merged_shape(name, declared or None, given)
    return TensorType(dtype, [d if isinstance(d, int) else ANY for d in shape])
