"""Small models that reproduce a failed conversion of a node, without the user's weights.

First the node alone, with inputs of the types that it had; then with the nodes before it; then the
whole model. A report uses the first that fails in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from tilewright.frontends.onnx.element_types import element_type, onnx_number
from tilewright.frontends.onnx.load import LoadedModel
from tilewright.frontends.onnx.order import used_names
from tilewright.frontends.onnx.package import onnx_package
from tilewright.graph import OptionalType, SequenceType, TensorType, Type, UnknownType, Value
from tilewright.ir import Const
from tilewright.support.errors import UserError
from tilewright.support.stand_ins import Filling, filled, stand_in

#: How many steps of preceding nodes each model includes.
_STEPS: Final = (0, 1, 2, 4, 8)
#: Lists of numbers or strings of at least this length in attributes are treated as data.
_LONG: Final = 9
#: Models with more elements in constants are too large for a report.
_MANY: Final = 1 << 24


class FailedNode:
    """A node that is being converted, and how its operands are found; no node: the model."""

    __slots__ = ("_find", "_model", "_node")

    def __init__(
        self, model: LoadedModel, find: Callable[[str], Value | None], node: Any = None
    ) -> None:
        self._model, self._find, self._node = model, find, node

    def models(self, filling: Filling) -> Iterator[bytes]:
        """Models from small to large, each in ONNX's binary form."""
        sizes = set[int]()
        for steps in _STEPS if self._node is not None else ():
            nodes = self._before(steps)
            if len(nodes) not in sizes:
                sizes.add(len(nodes))
                yield self._part(nodes, filling)
        whole = self._model.proto.graph
        if sum(math.prod(t.dims) for t in whole.initializer) <= _MANY:
            yield self._whole(whole, filling)

    def _before(self, steps: int) -> list[Any]:
        """The node, after the nodes within this many steps that it depends on."""
        makers = {o: n for n in self._model.proto.graph.node for o in n.output if o}
        found, front = [self._node], [self._node]
        for _ in range(steps):
            front = [makers[name] for node in front for name in used_names(node) if name in makers]
            found += [n for n in front if not any(n is f for f in found)]
        # In the order of the file; nodes of inner graphs are not in it, and come last.
        order = {id(n): k for k, n in enumerate(self._model.proto.graph.node)}
        return sorted(found, key=lambda n: order.get(id(n), len(order)))

    def _part(self, nodes: list[Any], filling: Filling) -> bytes:
        helper = onnx_package().helper
        made = {name for node in nodes for name in node.output}
        inputs, constants = list[Any](), list[Any]()
        for name in dict.fromkeys(n for node in nodes for n in used_names(node)):
            value = self._value(name) if name not in made else None
            if value is None:
                continue
            if value.constant is not None:
                constants.append(_tensor(stand_in(value.constant, name, filling), value, name))
            else:
                inputs.append(helper.make_value_info(name, _type(value.type)))
        graph = _graph(inputs, constants, list(self._node.output))
        return self._model_of(graph, nodes, filling)

    def _value(self, name: str) -> Value | None:
        try:
            return self._find(name)
        except UserError:
            return None

    def _whole(self, graph: Any, filling: Filling) -> bytes:
        dense = [self._initialiser(t, filling) for t in graph.initializer]
        sparse = [self._value(t.values.name) for t in graph.sparse_initializer]
        constants = dense + [
            _tensor(stand_in(v.constant, v.name, filling), v, v.name)
            for v in sparse
            if v is not None and v.constant is not None
        ]
        part = _graph(list(graph.input), constants, [o.name for o in graph.output])
        return self._model_of(part, list(graph.node), filling)

    def _initialiser(self, tensor: Any, filling: Filling) -> Any:
        value = self._value(tensor.name)
        if value is not None and value.constant is not None:
            array = stand_in(value.constant, tensor.name, filling)
            return _tensor(array, value, tensor.name)
        # It has not been read yet.
        dtype = element_type(tensor.data_type, tensor.name)
        array = filled(np.dtype(dtype.numpy), tuple(tensor.dims), tensor.name, filling)
        return _tensor(array, Value(tensor.name, TensorType(dtype, array.shape)), tensor.name)

    def _model_of(self, graph: Any, nodes: list[Any], filling: Filling) -> bytes:
        """A model of these nodes in a graph that has inputs, constants and outputs."""
        proto = self._model.proto
        model = onnx_package().helper.make_model(graph, opset_imports=proto.opset_import)
        model.ir_version = proto.ir_version
        for node in nodes:
            model.graph.node.add().CopyFrom(node)
        called = {(n.domain, n.op_type) for n in nodes}
        if any((f.domain, f.name) in called for f in proto.functions):
            model.functions.extend(proto.functions)
        for part in (model.graph, *model.functions):
            _disguise(part, filling)
        return model.SerializeToString()


def _graph(inputs: list[Any], constants: list[Any], outputs: list[str]) -> Any:
    onnx = onnx_package()
    results = [onnx.helper.make_value_info(o, onnx.TypeProto()) for o in outputs if o]
    return onnx.helper.make_graph([], "fault", inputs, results, constants)


def _disguise(graph: Any, filling: Filling) -> None:
    """Replace possible data in the attributes of all nodes, and drop their documentation."""
    pending = [graph]
    while pending:
        current = pending.pop()
        for node in current.node:
            for field in ("doc_string", "metadata_props"):
                if field in node.DESCRIPTOR.fields_by_name:
                    node.ClearField(field)
            for attribute in node.attribute:
                _disguise_attribute(attribute, filling)
                pending += [*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs]
        for default in getattr(current, "attribute_proto", ()):
            _disguise_attribute(default, filling)
        if current is not graph:
            sparse = [s.values for s in current.sparse_initializer]
            for tensor in (*current.initializer, *sparse):
                _disguise_tensor(tensor, filling)


def _disguise_attribute(attribute: Any, filling: Filling) -> None:
    if attribute.HasField("t"):
        _disguise_tensor(attribute.t, filling)
    if attribute.HasField("sparse_tensor"):
        _disguise_tensor(attribute.sparse_tensor.values, filling)
    for tensor in (*attribute.tensors, *(s.values for s in attribute.sparse_tensors)):
        _disguise_tensor(tensor, filling)
    if len(attribute.floats) >= _LONG:
        shape = (len(attribute.floats),)
        numbers = filled(np.dtype(np.float32), shape, attribute.name, filling).tolist()
        attribute.floats[:] = numbers
    if len(attribute.strings) >= _LONG:
        attribute.strings[:] = [f"s{k}".encode() for k in range(len(attribute.strings))]


def _disguise_tensor(tensor: Any, filling: Filling) -> None:
    from tilewright.frontends.onnx.external import ExternalFiles
    from tilewright.frontends.onnx.tensors import read_tensor

    array, dtype = read_tensor(tensor, ExternalFiles(None, None))
    name = tensor.name or "value"
    value = Value(name, TensorType(dtype, array.shape))
    tensor.CopyFrom(_tensor(stand_in(array, name, filling), value, tensor.name))


def _tensor(array: Any, value: Value, name: str) -> Any:
    """A TensorProto of these elements."""
    onnx = onnx_package()
    number = onnx_number(value.dtype)
    if array.dtype.kind in "OU":
        strings = [str(s).encode() for s in array.ravel()]
        return onnx.helper.make_tensor(name, number, array.shape, strings)
    return onnx.helper.make_tensor(name, number, array.shape, array.ravel().tolist())


def _type(type_: Type) -> Any:
    """A graph type in ONNX's form."""
    helper = onnx_package().helper
    if isinstance(type_, TensorType):
        dims = [d.value if isinstance(d, Const) else str(d) for d in type_.shape]
        return helper.make_tensor_type_proto(onnx_number(type_.dtype), dims)
    if isinstance(type_, UnknownType):
        return helper.make_tensor_type_proto(onnx_number(type_.dtype), None)
    if isinstance(type_, SequenceType):
        return helper.make_sequence_type_proto(_type(type_.element))
    assert isinstance(type_, OptionalType)
    return helper.make_optional_type_proto(_type(type_.element))
