"""Small models for tests, and what they give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from tests.conformance.runners import evaluated
from tilewright.frontends import from_onnx
from tilewright.graph import Module

Array = np.ndarray[Any, Any]


def info(name: str, dtype: Any = "float32", shape: Sequence[Any] | None = ()) -> Any:
    """An input or output: a tensor, of unknown rank where the shape is None."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) if dtype != "string" else 8
    return helper.make_tensor_value_info(name, number, shape)


def out(name: str) -> Any:
    """An output whose type the file does not tell."""
    return helper.make_value_info(name, onnx.TypeProto())


def make(
    nodes: Iterable[Any],
    inputs: Iterable[Any],
    outputs: Iterable[str],
    constants: Mapping[str, Any] | None = None,
    functions: Iterable[Any] = (),
    opset: int = 18,
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A model of these nodes."""
    tensors = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "g", list(inputs), [out(o) for o in outputs], tensors)
    imports = [helper.make_opsetid(d, v) for d, v in {"": opset, **(domains or {})}.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    model.functions.extend(functions)
    return model


def node(op: str, inputs: Sequence[str], outputs: Sequence[str] = ("y",), **attrs: Any) -> Any:
    return helper.make_node(op, list(inputs), list(outputs), **attrs)


def one(op: str, arrays: Sequence[Any], count: int = 1, opset: int = 18, **attrs: Any) -> Any:
    """A model of one operator whose operands are all inputs; None leaves one out."""
    names = ["" if a is None else f"x{k}" for k, a in enumerate(arrays)]
    outputs = [f"y{k}" for k in range(count)]
    given = [(n, np.asarray(a)) for n, a in zip(names, arrays, strict=True) if n]
    infos = [info(n, a.dtype if a.dtype != object else "string", a.shape) for n, a in given]
    domain = attrs.get("domain", "")
    versions = {domain: attrs.pop("version", 1)} if domain else {}
    return make([node(op, names, outputs, **attrs)], infos, outputs, opset=opset, domains=versions)


def results(model: Any, *arrays: Any) -> list[Any]:
    """What a model gives for its inputs, by the references of our operators."""
    return evaluated(model, [np.asarray(a) if not isinstance(a, list) else a for a in arrays])


def applied(op: str, *arrays: Any, count: int = 1, opset: int = 18, **attrs: Any) -> list[Any]:
    """What one operator gives."""
    model = one(op, arrays, count, opset, **attrs)
    return results(model, *(a for a in arrays if a is not None))


def operators(module: Module) -> list[str]:
    """The names of the operators that main calls, in order."""
    from tilewright.graph import Call

    return [b.expr.op.name for b in module.main.body if isinstance(b.expr, Call)]


def converted(*args: Any, **kwargs: Any) -> Module:
    """The graph of a model that is made on the spot."""
    return from_onnx(make(*args, **kwargs))
