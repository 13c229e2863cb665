"""ONNX's own cases of single operators with attributes, constants and types that lie."""

from __future__ import annotations

import copy
import random
from functools import cache
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from tests.conformance.cases import Case, load_cases
from tests.frontends.hostile.operators import words_of

_INTS: Final = (0, 1, -1, 2, -2, 3, 5, 7, 64, 65536, 10**12, 1 << 31, (1 << 63) - 1, -(1 << 63))
_REALS: Final = (0.0, 0.5, 1.0, -1.0, 2.0, 1e-40, 1e30, float("nan"), float("inf"), -float("inf"))
_TEXTS: Final = ("", "x", "NONE", "linear", "cubic", "SAME_UPPER", "VALID", "add", "reflect")
_TYPES: Final = (*range(1, 24), 0, 99, -1)
_DIMS: Final = (0, 1, 2, 3, 5, 100, 65536, 1 << 31, (1 << 63) - 1, -1)
_VERSIONS: Final = (1, 6, 7, 9, 10, 11, 12, 13, 14, 16, 18, 20, 21, 22, 23, 24)
#: Operands with more elements hold data; those with fewer may hold axes, shapes or scales.
_FEW: Final = 16


@cache
def _all_cases() -> list[Case]:
    return [c for c in load_cases("node") if c.model.ByteSize() < 1 << 16]


def hostile_case(rng: random.Random) -> bytes:
    """One of ONNX's cases with a few things changed, so that it still parses."""
    case = rng.choice(_all_cases())
    model = copy.deepcopy(case.model)
    _give_constants(model, case, rng)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
        _bend(model, rng)
    return model.SerializeToString()


def _give_constants(model: Any, case: Case, rng: random.Random) -> None:
    """Make some of the inputs constants, as they are in most models."""
    arrays = case.data[0][0] if case.data else []
    for given, array in list(zip(model.graph.input, arrays, strict=False)):
        plain = isinstance(array, np.ndarray) and given.type.HasField("tensor_type")
        if not plain or array.dtype.kind not in "iufb" or rng.random() < 0.5:
            continue
        tensor = onnx.numpy_helper.from_array(array, given.name)
        if tensor.data_type != given.type.tensor_type.elem_type:
            continue
        model.graph.initializer.append(tensor)
        model.graph.input.remove(given)


def _bend(model: Any, rng: random.Random) -> None:
    rng.choice(_CHANGES)(model, rng)


# ---- changes ------------------------------------------------------------------------------------


def _an_attribute(model: Any, rng: random.Random) -> None:
    """An attribute that is there gets another value, mostly of its kind."""
    n = rng.choice(model.graph.node)
    if not n.attribute:
        return _another_attribute(model, rng)
    attribute = rng.choice(n.attribute)
    kind, name = attribute.type, attribute.name
    graphs = onnx.AttributeProto.GRAPH, onnx.AttributeProto.TENSOR
    if rng.random() < 0.15 or kind in graphs:
        n.attribute.remove(attribute)
        return None
    length = max(len(attribute.ints), len(attribute.floats), len(attribute.strings))
    n.attribute.remove(attribute)
    if rng.random() < 0.1:
        kind = rng.choice([1, 2, 3, 6, 7, 8])
    n.attribute.append(_attribute(name, kind, length, rng))
    return None


def _another_attribute(model: Any, rng: random.Random) -> None:
    """An attribute that the operator's converter asks for."""
    n = rng.choice(model.graph.node)
    words = words_of("onnx", n.domain, n.op_type)
    if words:
        name = rng.choice(words)
        for old in [a for a in n.attribute if a.name == name]:
            n.attribute.remove(old)
        n.attribute.append(_attribute(name, rng.choice([1, 2, 2, 3, 6, 7, 7]), 2, rng))


def _attribute(name: str, kind: int, length: int, rng: random.Random) -> Any:
    values = {1: _REALS, 2: _INTS, 3: _TEXTS, 6: _REALS, 7: _INTS, 8: _TEXTS}.get(kind, _INTS)
    if kind in (1, 2, 3):
        return helper.make_attribute(name, rng.choice(values))
    count = max(0, length + rng.choice([0, 0, 0, -1, 1, 2]))
    # One number that lies among sound ones, or all of them.
    usual = (1,) if values is _INTS else values
    chosen = values if rng.random() < 0.3 else usual
    made: list[Any] = [rng.choice(chosen) for _ in range(count)]
    if made:
        made[rng.randrange(count)] = rng.choice(values)
    kinds = {6: onnx.AttributeProto.FLOATS, 8: onnx.AttributeProto.STRINGS}
    return helper.make_attribute(name, made, attr_type=kinds.get(kind, onnx.AttributeProto.INTS))


def _a_constant(model: Any, rng: random.Random) -> None:
    """A constant with other numbers, another type or shape; most often one that is no data."""
    tensors = [t for t in model.graph.initializer if np.prod(t.dims, dtype=float) <= _FEW]
    if not tensors:
        return _an_attribute(model, rng)
    tensor = rng.choice(tensors)
    made = _bent(onnx.numpy_helper.to_array(tensor), rng)
    tensor.CopyFrom(onnx.numpy_helper.from_array(made, tensor.name))
    return None


def _bent(array: np.ndarray, rng: random.Random) -> np.ndarray:
    kind = rng.randrange(8)
    if kind == 0:
        return array.astype(rng.choice(["float32", "int32", "int64", "uint8", "bool", "float64"]))
    if kind == 1:
        return array.ravel()[: rng.randrange(array.size + 1)]
    if kind == 2:
        return np.concatenate([array.ravel(), array.ravel()])
    if kind == 3:
        return array.reshape(*array.shape, 1) if rng.random() < 0.5 else array.reshape(-1)[:1]
    made = array.copy()
    if made.size:
        values = _INTS if made.dtype.kind in "iu" else _REALS
        with np.errstate(all="ignore"):
            made.reshape(-1)[rng.randrange(made.size)] = np.array(rng.choice(values)).astype(
                made.dtype
            )
    return made


def _a_type(model: Any, rng: random.Random) -> None:
    """Another element type or shape of an input."""
    if not model.graph.input:
        return
    tensor = rng.choice(model.graph.input).type.tensor_type
    dims = tensor.shape.dim
    kind = rng.randrange(6)
    if kind == 0:
        tensor.elem_type = rng.choice(_TYPES)
    elif kind == 1:
        dims.add().dim_value = rng.choice(_DIMS)
    elif kind == 2 and dims:
        del dims[rng.randrange(len(dims))]
    elif kind == 3 and dims:
        rng.choice(dims).dim_param = rng.choice(["n", "m"])
    elif kind == 4:
        tensor.ClearField("shape")
    elif dims:
        rng.choice(dims).dim_value = rng.choice(_DIMS)


def _all_types(model: Any, rng: random.Random) -> None:
    """Another element type of all inputs that have the same."""
    if model.graph.input:
        old = rng.choice(model.graph.input).type.tensor_type.elem_type
        new = rng.choice(_TYPES)
        for given in model.graph.input:
            if given.type.tensor_type.elem_type == old:
                given.type.tensor_type.elem_type = new


def _operands(model: Any, rng: random.Random) -> None:
    """An operand that is missing, another, or one too many."""
    n = rng.choice(model.graph.node)
    names = ["", "nothing", *n.input, *(i.name for i in model.graph.input)]
    kind = rng.randrange(4)
    if kind == 0 or not n.input:
        n.input.append(rng.choice(names))
    elif kind == 1:
        del n.input[rng.randrange(len(n.input))]
    else:
        n.input[rng.randrange(len(n.input))] = rng.choice(names)


def _results(model: Any, rng: random.Random) -> None:
    """A result too many or too few, or one of a name that exists."""
    n = rng.choice(model.graph.node)
    if rng.random() < 0.5:
        n.output.append(rng.choice(["more", "", *n.output, *n.input]))
        if n.output[-1] == "more":
            model.graph.output.add().name = "more"
    elif n.output:
        n.output[rng.randrange(len(n.output))] = rng.choice(["", *n.output, *n.input])


def _version(model: Any, rng: random.Random) -> None:
    rng.choice(model.opset_import).version = rng.choice(_VERSIONS)


_CHANGES: Final = (
    _an_attribute,
    _an_attribute,
    _an_attribute,
    _another_attribute,
    _another_attribute,
    _a_constant,
    _a_constant,
    _a_constant,
    _a_type,
    _all_types,
    _operands,
    _results,
    _version,
)
