"""Operators that are defined by other operators: a model's own functions, and ONNX's."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tilewright.frontends.onnx.element_types import onnx_number
from tilewright.frontends.onnx.load import NEWEST, plain_domain
from tilewright.frontends.onnx.package import onnx_package
from tilewright.graph import OptionalType, SequenceType, TensorType, Type
from tilewright.ir import Const
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.frontends.onnx.node import Node

#: Deepest nesting of graphs and functions.
MAX_DEPTH: Final = 64


class FunctionTable:
    """The functions of a model by domain, name and overload."""

    def __init__(self, protos: Any) -> None:
        self._protos: dict[tuple[str, str, str], Any] = {}
        self._counts: dict[tuple[str, str, str], int] = {}
        for proto in protos:
            key = (plain_domain(proto.domain), proto.name, proto.overload)
            if key in self._protos:
                raise UserError(f"two definitions of the function {proto.name}")
            self._protos[key] = proto

    def find(self, domain: str, name: str, overload: str = "") -> Any:
        return self._protos.get((domain, name, overload))

    def __iter__(self) -> Any:
        return iter(self._protos.values())

    def count_nodes(self, nodes: Any, depth: int = MAX_DEPTH) -> int:
        """The number of nodes if each call of a function is replaced by its body.

        Nesting that is too deep, or endless, is refused during the conversion.
        """
        return sum(1 + self._count_body(node, depth - 1) for node in nodes)

    def _count_body(self, node: Any, depth: int) -> int:
        key = (plain_domain(node.domain), node.op_type, node.overload)
        if depth < 0 or key not in self._protos:
            return 0
        if key not in self._counts:
            self._counts[key] = 0
            self._counts[key] = self.count_nodes(self._protos[key].node, depth)
        return self._counts[key]


def standard_function(node: Node, domain: str) -> Any:
    """ONNX's own definition of an operator by simpler ones, or None."""
    schema = find_schema(node.op, node.version, domain)
    if schema is None:
        return None
    for declared in schema.attributes.values():
        if declared.default_value.name:
            node.attributes.set_default(declared.default_value)
    if schema.has_function:
        return schema.function_body
    if not schema.has_context_dependent_function:
        return None
    types = [_type_bytes(v.type) if v is not None else b"" for v in node.inputs]
    # The definition that applies depends on the version, which grows with the operator's.
    for version in reversed(schema.context_dependent_function_opset_versions):
        if version <= node.version or version == schema.since_version:
            data = schema.get_context_dependent_function_with_opset_version(
                version, _with_attributes(node).SerializeToString(), types
            )
            return onnx_package().FunctionProto.FromString(data)
    return None


def _with_attributes(node: Node) -> Any:
    """The node with values in place of references to a function's attributes."""
    proto = onnx_package().NodeProto()
    proto.CopyFrom(node.proto)
    del proto.attribute[:]
    for name in node.attributes:
        proto.attribute.add().CopyFrom(node.attributes.find(name))
        proto.attribute[-1].name = name
    return proto


@lru_cache(maxsize=4096)
def find_schema(name: str, version: int, domain: str) -> Any:
    """ONNX's declaration of a version of an operator, or None."""
    if domain not in NEWEST:
        return None
    defs = onnx_package().defs
    try:
        return defs.get_schema(name, version, domain)
    except defs.SchemaError:
        return None


def has_standard_function(name: str, version: int, domain: str) -> bool:
    schema = find_schema(name, version, domain)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _type_bytes(type_: Type) -> bytes:
    return _type_proto(type_).SerializeToString()


def _type_proto(type_: Type) -> Any:
    helper = onnx_package().helper
    if isinstance(type_, TensorType):
        shape = [int(d.value) if isinstance(d, Const) else None for d in type_.shape]
        return helper.make_tensor_type_proto(onnx_number(type_.dtype), shape)
    if isinstance(type_, SequenceType):
        return helper.make_sequence_type_proto(_type_proto(type_.element))
    if isinstance(type_, OptionalType):
        return helper.make_optional_type_proto(_type_proto(type_.element))
    raise UserError(f"{type_} has no type in ONNX")
