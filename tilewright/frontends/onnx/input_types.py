"""Types of a model's inputs as graph types, refined by the shapes that the caller gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

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
    fresh_dim,
)
from tilewright.ir import Expr
from tilewright.support.errors import UserError

#: A dimension as the caller gives it: a number, a name, or None for any size.
GivenDim = int | str | None
Shape = Sequence[GivenDim]
_MAX_DIM: Final = 1 << 48
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
            f"the model does not tell the rank of input {name}",
            reason="it must be known before the program can be built",
            shapes=[name],
        )
    shape = _merged(name, declared, given)
    return TensorType(dtype, [_dim(name, k, d, builder) for k, d in enumerate(shape)])


def _declared(name: str, proto: Any) -> list[GivenDim] | None:
    """The shape in the file; None where the rank is not told."""
    if not proto.HasField("shape"):
        return None
    return [_declared_dim(name, d) for d in proto.shape.dim]


def _declared_dim(name: str, proto: Any) -> GivenDim:
    if proto.WhichOneof("value") == "dim_value":
        # Exporters write -1 for a dimension that they do not know.
        return None if proto.dim_value == -1 else _checked(name, proto.dim_value)
    # Some exporters give all dimensions that they do not know this one name.
    return None if proto.dim_param in ("", "?") else proto.dim_param


def _checked(name: str, extent: int) -> int:
    if not 0 <= extent <= _MAX_DIM:
        raise UserError(f"input {name} has a dimension of {extent}")
    return extent


def _merged(name: str, declared: list[GivenDim] | None, given: Shape | None) -> list[GivenDim]:
    if given is None:
        return declared or []
    if declared is None:
        return list(given)
    if len(given) != len(declared):
        raise UserError(
            f"shapes gives input {name} the shape {list(given)}",
            reason=f"the model declares {len(declared)} dimensions: {declared}",
        )
    for old, new in zip(declared, given, strict=True):
        if isinstance(old, int) and isinstance(new, int) and old != new:
            raise UserError(
                f"shapes gives input {name} the shape {list(given)}",
                reason=f"the model declares {declared}",
            )
    # A name in place of a number frees a dimension that the exporter has fixed.
    return [d if g is None else g for d, g in zip(declared, given, strict=True)]


def _dim(name: str, axis: int, dim: GivenDim, builder: Builder) -> Expr | int:
    if dim is None:
        return fresh_dim(f"{name}_{axis}")
    return builder.dim(dim) if isinstance(dim, str) else _checked(name, int(dim))


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
    # Files write the empty shape, that of a scalar, for elements they do not know the rank of.
    if not declared and given is None:
        return UnknownType(dtype)
    shape = _merged(name, declared or None, given)
    return TensorType(dtype, [d if isinstance(d, int) else ANY for d in shape])
