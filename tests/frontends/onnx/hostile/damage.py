"""Changes to a model: its bytes, or parts of it so that it still parses. All follow from a seed."""

from __future__ import annotations

import random
from typing import Any

import onnx

from tests.frontends.hostile.damage import damaged
from tilewright.frontends import operators_of

INTS = [0, 1, -1, 2, 7, 63, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63), 10**6, 10**12]
FLOATS = [0.0, -1.0, 1e38, float("nan"), float("inf"), 1e-40]
TEXTS = [b"", b"x", b"\xff\xfe", b"NONE", b"linear", b"SAME_UPPER"]


def mutated(model: Any, rng: random.Random) -> bytes:
    """A file made of the model by a few changes."""
    if rng.random() < 0.3:
        return damaged(model.SerializeToString(), rng)
    for _ in range(rng.choice([1, 1, 2, 3])):
        bend(model, rng)
    return model.SerializeToString()


# ---- parts that lie -----------------------------------------------------------------------------


def all_nodes(model: Any) -> list[tuple[Any, Any]]:
    """Each node with the list it stands in."""
    pending, found = [model.graph, *model.functions], []
    while pending:
        graph = pending.pop()
        found += [(graph.node, n) for n in graph.node]
        pending += [a.g for n in graph.node for a in n.attribute if a.HasField("g")]
    return found


def bend_attribute(a: Any, rng: random.Random) -> None:
    if a.type == onnx.AttributeProto.INT:
        a.i = rng.choice(INTS)
    elif a.type == onnx.AttributeProto.FLOAT:
        a.f = rng.choice(FLOATS)
    elif a.type == onnx.AttributeProto.STRING:
        a.s = rng.choice(TEXTS)
    elif a.type == onnx.AttributeProto.INTS and a.ints:
        a.ints[rng.randrange(len(a.ints))] = rng.choice(INTS)
    else:
        a.type = rng.randrange(15)


def bend_tensor(t: Any, rng: random.Random) -> None:
    kind = rng.randrange(5)
    if kind == 0 and t.dims:
        t.dims[rng.randrange(len(t.dims))] = rng.choice(INTS)
    elif kind == 1:
        t.data_type = rng.randrange(30)
    elif kind == 2:
        t.raw_data = t.raw_data[: rng.randrange(1 + len(t.raw_data))]
    elif kind == 3:
        t.data_location = onnx.TensorProto.EXTERNAL
        t.external_data.add(key="location", value=rng.choice(["../x", "/etc/passwd", ""]))
    elif len(t.raw_data) >= 8:
        t.raw_data = rng.choice(INTS).to_bytes(8, "little", signed=True) + t.raw_data[8:]


def bend_input(model: Any, rng: random.Random) -> None:
    tensor = rng.choice(model.graph.input).type.tensor_type
    if rng.random() < 0.3:
        tensor.elem_type = rng.choice([*range(30), -1, 10**9])
    elif tensor.shape.dim:
        rng.choice(tensor.shape.dim).dim_value = rng.choice(INTS)


def bend(model: Any, rng: random.Random) -> None:
    """Change one thing so that the file still parses."""
    nodes = all_nodes(model)
    siblings, n = rng.choice(nodes)
    names = ["", "nothing", *(v for _, m in nodes for v in (*m.input, *m.output))]
    kind = rng.randrange(14)
    if kind == 0 and n.input:
        n.input[rng.randrange(len(n.input))] = rng.choice(names)
    elif kind == 1 and n.output:
        n.output[rng.randrange(len(n.output))] = rng.choice(names)
    elif kind == 2:
        n.op_type = rng.choice(nodes)[1].op_type
    elif kind == 11:
        n.domain, n.op_type = rng.choice(operators_of("onnx"))
    elif kind == 12:
        siblings.add().CopyFrom(n)
    elif kind == 13 and model.opset_import:
        rng.choice(model.opset_import).version = rng.choice([1, 7, 9, 13, *INTS])
    elif kind in (3, 4) and n.attribute:
        bend_attribute(rng.choice(n.attribute), rng)
    elif kind == 5 and n.attribute:
        del n.attribute[rng.randrange(len(n.attribute))]
    elif kind == 6 and n.input:
        del n.input[rng.randrange(len(n.input))]
    elif kind == 7:
        siblings.remove(n)
    elif kind == 8 and model.graph.initializer:
        bend_tensor(rng.choice(model.graph.initializer), rng)
    elif kind == 9 and model.graph.initializer:
        t = rng.choice(model.graph.initializer)
        t.name = rng.choice(names)
    else:
        bend_input(model, rng)
