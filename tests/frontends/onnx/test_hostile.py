"""Damaged and malicious files: each is converted, or refused with a `UserError`, soon."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontends.onnx.models import info, make, node, out
from tilewright.frontends import from_onnx
from tilewright.support.errors import UserError

RNG = np.random.default_rng(0)
INTS = [0, 1, -1, 2, 7, 63, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63), 10**6, 10**12]
FLOATS = [0.0, -1.0, 1e38, float("nan"), float("inf"), 1e-40]
TEXTS = [b"", b"x", b"\xff\xfe", b"NONE", b"linear", b"SAME_UPPER"]


def weights(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def network() -> onnx.ModelProto:
    """A convolution, its normalisation, pooling, shape arithmetic, a product."""
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("BatchNormalization", ["a", "s", "b", "m", "v"], ["n"]),
        node("MaxPool", ["n"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Shape", ["p"], ["d"]),
        node("Slice", ["d", "zero", "one"], ["batch"]),
        node("Concat", ["batch", "rest"], ["target"], axis=0),
        node("Reshape", ["p", "target"], ["flat"]),
        node("Gemm", ["flat", "g"], ["h"], transB=1, alpha=0.5),
        node("TopK", ["h", "two"], ["y", "i"], axis=-1),
    ]
    constants = {"w": weights(4, 3, 3, 3), "g": weights(5, 64), "zero": np.array([0])}
    constants |= {n: np.abs(weights(4)) for n in "sbmv"}
    constants |= {"one": np.array([1]), "rest": np.array([-1]), "two": np.array([2])}
    return make(nodes, [info("x", shape=["n", 3, 16, 16])], ["y", "i"], constants)


def program() -> onnx.ModelProto:
    """A loop with a branch in it, a sequence, and a function that takes an attribute."""
    leaky = node("LeakyRelu", ["a"], ["b"])
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    imports = [helper.make_opsetid("", 18)]
    leak = helper.make_function("my", "Leak", ["a"], ["b"], [leaky], imports, ["slope"])
    sides = [
        helper.make_graph([node(op, ["v"], ["t"])], op, [], [out("t")]) for op in ("Neg", "Relu")
    ]
    body = helper.make_graph(
        [
            node("Leak", ["u"], ["v"], domain="my", slope=0.2),
            node("If", ["k"], ["next"], then_branch=sides[0], else_branch=sides[1]),
            node("Identity", ["c"], ["go"]),
        ],
        "body",
        [out("i"), out("c"), out("u")],
        [out("go"), out("next"), out("v")],
    )
    nodes = [
        node("Loop", ["count", "", "x"], ["last", "all"], body=body),
        node("SplitToSequence", ["all"], ["q"], axis=0, keepdims=0),
        node("ConcatFromSequence", ["q"], ["y"], axis=-1),
    ]
    inputs = [info("x", shape=[2, "n"]), info("k", "bool")]
    return make(nodes, inputs, ["last", "y"], {"count": np.array(3)}, [leak], domains={"my": 1})


MODELS = [network, program]


def refused(data: bytes) -> bool:
    """Whether a file is refused; anything but a `UserError` is a fault, and so is a long time."""
    start = time.monotonic()
    try:
        from_onnx(data)
        return False
    except UserError:
        return True
    finally:
        assert time.monotonic() - start < 10


@pytest.mark.parametrize("make_model", MODELS)
def test_the_models_are_sound_before_they_are_damaged(make_model: Callable[[], Any]) -> None:
    assert not refused(make_model().SerializeToString())


# ---- damaged bytes ------------------------------------------------------------------------------


def damaged(data: bytes, rng: random.Random) -> bytes:
    b = bytearray(data)
    at = rng.randrange(len(b))
    kind = rng.randrange(5)
    if kind == 0:
        del b[at:]
    elif kind == 1:
        b[at] ^= 1 << rng.randrange(8)
    elif kind == 2:
        for _ in range(rng.randrange(1, 6)):
            b[rng.randrange(len(b))] = rng.randrange(256)
    elif kind == 3:
        del b[at : at + rng.randrange(1, 20)]
    else:
        start = rng.randrange(len(b))
        b[at:at] = b[start : start + rng.randrange(1, 60)]
    return bytes(b)


@pytest.mark.parametrize("make_model", MODELS)
def test_damaged_bytes(make_model: Callable[[], Any]) -> None:
    data, rng = make_model().SerializeToString(), random.Random(1)
    outcomes = [refused(damaged(data, rng)) for _ in range(700)]
    assert sum(outcomes) > 100


# ---- files that parse, with parts that lie ------------------------------------------------------


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
    kind = rng.randrange(11)
    if kind == 0 and n.input:
        n.input[rng.randrange(len(n.input))] = rng.choice(names)
    elif kind == 1 and n.output:
        n.output[rng.randrange(len(n.output))] = rng.choice(names)
    elif kind == 2:
        n.op_type = rng.choice(nodes)[1].op_type
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


@pytest.mark.parametrize("make_model", MODELS)
def test_files_that_lie(make_model: Callable[[], Any]) -> None:
    rng = random.Random(2)
    outcomes: list[bool] = []
    for _ in range(400):
        model = make_model()
        for _ in range(rng.choice([1, 1, 2, 3])):
            bend(model, rng)
        outcomes.append(refused(model.SerializeToString()))
    assert sum(outcomes) > 100


def test_memory_stays_bounded() -> None:
    """Dimensions that no machine could hold, where a careless reader would allocate them."""
    huge = 1 << 30
    absurd = [
        [node("ConstantOfShape", ["s"], ["y"])],
        [node("Expand", ["x", "s"], ["y"])],
        [node("Tile", ["x", "s"], ["y"])],
        [node("Split", ["x"], [f"y{k}" for k in range(3)], num_outputs=huge)],
        [node("ConstantOfShape", ["s"], ["t"]), node("ReduceSum", ["x", "t"], ["y"])],
    ]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for nodes in absurd:
        constants = {"s": np.array([huge, huge])}
        model = make(nodes, [info("x", shape=[1, 1])], [nodes[-1].output[0]], constants)
        refused(model.SerializeToString())
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert growth < 200 * 1024, f"it grew by {growth >> 10} MiB"
