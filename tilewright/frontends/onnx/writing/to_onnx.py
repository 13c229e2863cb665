"""A module as a model of ONNX."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from tilewright.frontends.onnx.element_types import onnx_number
from tilewright.frontends.onnx.package import onnx_package
from tilewright.frontends.onnx.writing.writer import Writer
from tilewright.graph import Module, TensorType, Value
from tilewright.ir import Const, Var
from tilewright.support.errors import UserError
from tilewright.support.files import replacing

#: The first version of the operators with four-bit numbers and blockwise scales.
OPSET: Final = 21
_IR_VERSION: Final = 10
#: Protocol buffers are limited to 2 GiB; weights of larger models are in a file beside the model.
_MOST: Final = (1 << 31) - (1 << 24)


def to_onnx(module: Module) -> Any:
    """The module as an `onnx.ModelProto`; what ONNX cannot say is a `UserError`."""
    if list(module.functions) != ["main"]:
        raise UserError(
            "cannot write a module of several functions to ONNX",
            remedy="inline them first: graph.passes.inline_functions",
        )
    writer, main = Writer(), module.main
    names = _DimNames()
    # Names that callers know take precedence over all others.
    for name in dict.fromkeys((*_names(main.params), *main.outputs)):
        writer.fresh(name)
    inputs = [_info(writer, writer.define(p, p.name), p, names) for p in main.params]
    for binding in main.body:
        writer.binding(binding)
    results = [
        _info(writer, _result(writer, value, name), value, names)
        for value, name in zip(main.results, main.outputs, strict=True)
    ]
    helper = writer.onnx.helper
    graph = helper.make_graph(writer.nodes, "main", inputs, results, writer.initializers)
    imports = [helper.make_opsetid("", OPSET)]
    imports += [helper.make_opsetid(d, 1) for d in sorted(writer.domains) if d]
    return helper.make_model(
        graph, opset_imports=imports, ir_version=_IR_VERSION, producer_name="tilewright"
    )


def save_onnx(module: Module, path: str | os.PathLike[str]) -> None:
    """Write the module as an ONNX file; one of 2 GiB or more gets a second file with weights."""
    proto, place = to_onnx(module), Path(path)
    if proto.ByteSize() < _MOST:
        with replacing(place) as file:
            file.write(proto.SerializeToString())
        return
    onnx_package().save_model(
        proto, str(place), save_as_external_data=True, location=f"{place.name}.data"
    )


def _names(values: Any) -> list[str]:
    return [v.name for v in values]


def _result(writer: Writer, value: Value, name: str) -> str:
    return writer.node("Identity", [writer.name(value)], name)


class _DimNames:
    """Names of symbolic dimensions, different ones for different dimensions."""

    def __init__(self) -> None:
        self._names: dict[Var, str] = {}

    def __call__(self, dim: Var) -> str:
        if dim not in self._names:
            taken, name, count = set(self._names.values()), dim.name, 1
            while name in taken:
                name, count = f"{dim.name}_{count}", count + 1
            self._names[dim] = name
        return self._names[dim]


def _info(writer: Writer, name: str, value: Value, names: _DimNames) -> Any:
    if not isinstance(value.type, TensorType):
        raise UserError(
            f"cannot write {value} to ONNX", reason="only tensors are written as inputs and outputs"
        )
    shape: list[Any] = []
    for dim in value.type.shape:
        fixed = int(dim.value) if isinstance(dim, Const) else None
        shape.append(names(dim) if isinstance(dim, Var) else fixed)
    number = onnx_number(value.type.dtype)
    return writer.onnx.helper.make_tensor_value_info(name, number, shape)
