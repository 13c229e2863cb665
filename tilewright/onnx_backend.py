"""Tilewright behind ONNX's own interface for back ends, `onnx.backend.base`.

import tilewright.onnx_backend as backend

prepared = backend.prepare(onnx.load("model.onnx"))
outputs = prepared.run([x])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from tilewright.compile import compile as compile_model
from tilewright.runtime import RunnableModel
from tilewright.support.errors import UserError

#: Names that ONNX's base class gives to untyped arguments.
Options = Any


class TilewrightRep(BackendRep):
    """A model that is compiled and can be run."""

    def __init__(self, model: RunnableModel, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.model = model
        self._inputs, self._outputs = list(inputs), list(outputs)

    def run(self, inputs: Any, **kwargs: Options) -> tuple[Any, ...]:
        """The outputs for inputs as a sequence, by name, or a single array for the only input."""
        del kwargs
        by_name = isinstance(inputs, Mapping)
        results = self.model.run(cast("Any", inputs) if by_name else _listed(inputs))
        return namedtupledict("Outputs", self._outputs)(*results)


class TilewrightBackend(Backend):
    """Compiles models for the CPU of this machine."""

    @classmethod
    def prepare(
        cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Options
    ) -> TilewrightRep:
        """The compiled model; options are those of `tilewright.compile`."""
        if not cls.supports_device(device):
            raise UserError(f"cannot run on the device {device}", remedy="ask for CPU")
        constants = {t.name for t in model.graph.initializer}
        inputs = [v.name for v in model.graph.input if v.name not in constants]
        outputs = [v.name for v in model.graph.output]
        return TilewrightRep(compile_model(model, **kwargs), inputs, outputs)

    @classmethod
    def run_model(
        cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Options
    ) -> tuple[Any, ...]:
        """The outputs of a model that is compiled for this one run."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Any = None,
        **kwargs: Options,
    ) -> tuple[Any, ...]:
        """The outputs of one operator; `opset_version` defaults to the newest."""
        del outputs_info
        arrays = _in_order(node, inputs)
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        infos = [_info(name, array) for name, array in arrays.items()]
        outputs = [helper.make_value_info(n, onnx.TypeProto()) for n in node.output if n]
        graph = helper.make_graph([node], "node", infos, outputs)
        imports = [helper.make_opsetid(node.domain, version)]
        model = helper.make_model(graph, opset_imports=imports)
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Only device 0 of the kind "CPU"."""
        kind, _, number = device.partition(":")
        return kind == "CPU" and number in ("", "0")


def _in_order(node: onnx.NodeProto, inputs: Any) -> dict[str, Any]:
    names = list(dict.fromkeys(n for n in node.input if n))
    if isinstance(inputs, Mapping):
        return {n: cast("Any", inputs)[n] for n in names}
    given = _listed(inputs)
    if len(given) != len(names):
        raise UserError(
            f"{len(given)} inputs were given", reason=f"the node takes {', '.join(names)}"
        )
    return dict(zip(names, given, strict=True))


def _listed(inputs: Any) -> list[Any]:
    """The inputs as a list; a single input may be given without one."""
    return list(cast("list[Any]", inputs)) if isinstance(inputs, list | tuple) else [inputs]


def _info(name: str, array: Any) -> Any:
    import numpy as np

    value: Any = np.asarray(array)
    is_text = value.dtype.kind in "OUS"
    kind = onnx.TensorProto.STRING if is_text else helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, kind, value.shape)


prepare = TilewrightBackend.prepare
run_model = TilewrightBackend.run_model
run_node = TilewrightBackend.run_node
supports_device = TilewrightBackend.supports_device
