"""Branches, loops and scans, nested and with values from around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from tests.frontends.onnx.models import info, make, node, operators, out, results
from tilewright.frontends import UnspecialisedError, from_onnx
from tilewright.graph import If, Loop, verify
from tilewright.support.errors import UserError

X = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)


def graph(nodes: list, inputs: list, outputs: list, constants: dict | None = None) -> Any:
    tensors = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]

    values = [out(i) for i in inputs], [out(o) for o in outputs]
    return helper.make_graph(nodes, "body", *values, tensors)


def branches(then: str, otherwise: str) -> Any:
    """One of two operators on a value from around the branch."""
    sides = {
        f"{name}_branch": graph([node(op, ["x"], ["t"])], [], ["t"])
        for name, op in (("then", then), ("else", otherwise))
    }
    return node("If", ["c"], **sides)


def test_a_branch_uses_values_around_it() -> None:
    model = make([branches("Neg", "Relu")], [info("c", "bool"), info("x", shape=["n"])], ["y"])
    module = from_onnx(model)
    verify(module)
    assert isinstance(module.main.body[0].expr, If)
    x = np.array([-1.0, 2.0], np.float32)
    np.testing.assert_array_equal(results(model, True, x)[0], [1, -2])
    np.testing.assert_array_equal(results(model, False, x)[0], [0, 2])


def test_a_branch_whose_condition_is_known_is_none() -> None:
    model = make([branches("Neg", "Relu")], [info("x", shape=["n"])], ["y"], {"c": np.array(True)})
    assert operators(from_onnx(model)) == ["neg"]


def test_branches_of_different_ranks_ask_for_what_decides() -> None:
    """As exporters write a squeeze: of a dimension, if it is 1."""
    squeeze = graph([node("Squeeze", ["x", "zero"], ["t"])], [], ["t"])
    keep = graph([node("Identity", ["x"], ["t"])], [], ["t"])
    nodes = [
        node("Shape", ["x"], ["s"], start=0, end=1),
        node("Equal", ["s", "one"], ["c"]),
        node("If", ["c"], then_branch=squeeze, else_branch=keep),
    ]
    constants = {"one": np.array([1]), "zero": np.array([0])}
    model = make(nodes, [info("x", shape=["n", 3])], ["y"], constants)
    with pytest.raises(UnspecialisedError) as caught:
        from_onnx(model)
    assert caught.value.shapes == ("x",)
    assert str(from_onnx(model, {"x": (1, 3)}).main.results[0].type) == "f32[3]"
    assert str(from_onnx(model, {"x": (2, 3)}).main.results[0].type) == "f32[2, 3]"


def counting_loop(extra: dict[str, Any] | None = None) -> Any:
    """y = x + k * w after k trips; s stacks what it was; w comes from around the loop."""
    body = graph(
        [node("Add", ["v", "w"], ["next"]), node("Identity", ["going"], ["go"])],
        ["i", "going", "v"],
        ["go", "next", "v"],
    )
    inputs = [info("k", "int64"), info("x", shape=[2, 3])]
    nodes = [node("Loop", ["k", "", "x"], ["y", "s"], body=body)]
    return make(nodes, inputs, ["y", "s"], {"w": np.float32(10), **(extra or {})})


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_loop_carries_stacks_and_captures(count: int) -> None:
    model = counting_loop()
    verify(from_onnx(model))
    last, stacked = results(model, count, X)
    np.testing.assert_array_equal(last, X + 10 * count)
    want = np.array([X + 10 * k for k in range(count)]).reshape(count, 2, 3)
    np.testing.assert_array_equal(stacked, want)


def test_a_loop_ends_when_it_is_told_to() -> None:
    body = graph(
        [
            node("Add", ["v", "v"], ["next"]),
            node("ReduceSum", ["next"], ["total"], keepdims=0),
            node("Less", ["total", "limit"], ["go"]),
        ],
        ["i", "going", "v"],
        ["go", "next"],
    )
    nodes = [node("Loop", ["", "true", "x"], ["y"], body=body)]
    constants = {"true": np.array(True), "limit": np.float32(100)}
    model = make(nodes, [info("x", shape=[2, 3])], ["y"], constants)
    np.testing.assert_array_equal(results(model, X)[0], X * 8)


def test_a_state_that_grows() -> None:
    body = graph(
        [node("Concat", ["v", "x"], ["next"], axis=0), node("Identity", ["going"], ["go"])],
        ["i", "going", "v"],
        ["go", "next"],
    )
    nodes = [node("Loop", ["three", "", "x"], ["y"], body=body)]
    model = make(nodes, [info("x", shape=[2, 3])], ["y"], {"three": np.array(3)})
    np.testing.assert_array_equal(results(model, X)[0], np.tile(X, (4, 1)))


def test_loops_inside_loops_inside_branches() -> None:
    inner = graph(
        [node("Add", ["v", "i2"], ["n2"]), node("Identity", ["g2"], ["go2"])],
        ["k2", "g2", "v"],
        ["go2", "n2"],
    )
    outer = graph(
        [
            node("Cast", ["k1"], ["i2"], to=TensorProto.FLOAT),
            node("Loop", ["two", "", "u"], ["r"], body=inner),
            node("Identity", ["g1"], ["go1"]),
        ],
        ["k1", "g1", "u"],
        ["go1", "r"],
    )
    then = graph([node("Loop", ["three", "", "x"], ["t"], body=outer)], [], ["t"])
    otherwise = graph([node("Identity", ["x"], ["t"])], [], ["t"])
    nodes = [node("If", ["c"], then_branch=then, else_branch=otherwise)]
    constants = {"two": np.array(2), "three": np.array(3)}
    model = make(nodes, [info("c", "bool"), info("x", shape=[2, 3])], ["y"], constants)
    module = from_onnx(model)
    verify(module)
    np.testing.assert_array_equal(results(model, True, X)[0], X + 2 * (0 + 1 + 2))
    np.testing.assert_array_equal(results(model, False, X)[0], X)


# ---- scan ---------------------------------------------------------------------------------------


def running_sum(**attrs: Any) -> Any:
    body = graph(
        [node("Add", ["s", "e"], ["n"]), node("Identity", ["n"], ["o"])], ["s", "e"], ["n", "o"]
    )
    scan = node("Scan", ["zero", "x"], ["last", "y"], body=body, num_scan_inputs=1, **attrs)
    axis = attrs.get("scan_input_axes", [0])[0]
    zero = np.zeros(X.shape[1 - axis % 2], np.float32)
    return make([scan], [info("x", shape=["n", "m"])], ["last", "y"], {"zero": zero})


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("backwards", [0, 1])
@pytest.mark.parametrize("turned", [0, 1])
def test_scan(axis: int, backwards: int, turned: int) -> None:
    model = running_sum(
        scan_input_axes=[axis],
        scan_input_directions=[backwards],
        scan_output_axes=[axis],
        scan_output_directions=[turned],
    )
    last, stacked = results(model, X)
    x = np.flip(X, axis) if backwards else X
    want = np.cumsum(x, axis)
    np.testing.assert_allclose(last, X.sum(axis), rtol=1e-6)
    np.testing.assert_allclose(stacked, np.flip(want, axis) if turned else want, rtol=1e-6)


def test_scan_with_more_inputs_than_operands() -> None:
    model = running_sum()
    model.graph.node[0].attribute.add(name="x", type=onnx.AttributeProto.INT)
    next(a for a in model.graph.node[0].attribute if a.name == "num_scan_inputs").i = 5
    with pytest.raises(UserError, match="a scan of 2 operands has 5 scan inputs"):
        from_onnx(model)


def test_loops_stay_loops() -> None:
    loops = [b for b in from_onnx(counting_loop()).main.body if isinstance(b.expr, Loop)]
    assert len(loops) == 1


# ---- sequences ----------------------------------------------------------------------------------


def test_a_loop_that_collects_a_sequence() -> None:
    body = graph(
        [
            node("SequenceInsert", ["q", "e"], ["n"]),
            node("Identity", ["going"], ["go"]),
        ],
        ["i", "going", "q"],
        ["go", "n"],
    )
    nodes = [
        node("Relu", ["x"], ["e"]),
        node("SequenceEmpty", [], ["q0"]),
        node("Loop", ["k", "", "q0"], ["q1"], body=body),
        node("SequenceLength", ["q1"], ["count"]),
        node("ConcatFromSequence", ["q1"], ["y"], axis=0),
    ]
    model = make(nodes, [info("k", "int64"), info("x", shape=["n", 3])], ["count", "y"])
    count, joined = results(model, 3, X)
    assert count == 3
    np.testing.assert_array_equal(joined, np.tile(X, (3, 1)))


def test_a_sequence_input_of_known_rank() -> None:
    model = make([node("SequenceAt", ["q", "k"])], [], ["y"])
    tensor = helper.make_tensor_type_proto(TensorProto.FLOAT, [None, 3])
    sequence = helper.make_sequence_type_proto(tensor)
    model.graph.input.extend([helper.make_value_info("q", sequence), info("k", "int64")])
    got = results(model, [X, X[:1]], 1)
    np.testing.assert_array_equal(got[0], X[:1])


@pytest.mark.parametrize("copied", [False, True])
def test_what_a_loop_hands_on_unchanged_is_known_inside(copied: bool) -> None:
    """As TensorFlow's exporter passes what the body uses: here, an axis."""
    after = "axis2" if copied else "axis"
    copies = [node("Identity", ["axis"], ["axis1"]), node("Identity", ["axis1"], ["axis2"])]
    body = graph(
        [
            node("ReduceSum", ["x", "axis"], ["s"], keepdims=0),
            node("Add", ["total", "s"], ["more"]),
            *(copies if copied else []),
        ],
        ["i", "go", "axis", "total"],
        ["go", after, "more"],
    )
    model = make(
        [node("Loop", ["three", "", "one", "zeros"], ["last", "y"], body=body)],
        [info("x", shape=["n", 3])],
        ["last", "y"],
        {"three": np.array(3), "one": np.array([1]), "zeros": np.zeros(2, np.float32)},
    )
    last, y = results(model, X)
    assert last == [1]
    np.testing.assert_array_equal(y, 3 * X.sum(1))


def test_what_no_trip_reads_may_begin_as_anything() -> None:
    """As Paddle's exporter writes variables of a loop's body: a number stands for them at first."""
    body = graph([node("Mul", ["x", "x"], ["t"])], ["i", "go", "unread"], ["go", "t"])
    model = make(
        [node("Loop", ["k", "", "zero"], ["y"], body=body)],
        [info("k", "int64"), info("x", shape=["n", 3])],
        ["y"],
        {"zero": np.zeros((), np.float32)},
    )
    np.testing.assert_array_equal(results(model, 2, X)[0], X * X)
    compiled = tw.compile(model)
    np.testing.assert_array_equal(compiled.run([np.array(2), X])[0], X * X)
    with pytest.raises(UserError, match="nothing"):
        compiled.run([np.array(0), X])


def test_single_numbers_of_different_ranks_are_one_type() -> None:
    """As Paddle's exporter writes the condition of a loop: a number here, a list of one there."""
    sides = {
        "then_branch": graph([node("Identity", ["x"], ["t"])], [], ["t"]),
        "else_branch": graph([node("Unsqueeze", ["x", "zero"], ["t"])], [], ["t"]),
    }
    body = graph(
        [node("Not", ["i1"], ["c"]), node("If", ["c"], ["r"], **sides)], ["i", "go", "v"], []
    )
    body.node.insert(0, node("Cast", ["i"], ["i1"], to=TensorProto.BOOL))
    body.output.extend([out("go"), out("r")])
    model = make(
        [node("Loop", ["k", "", "x"], ["y"], body=body)],
        [info("k", "int64"), info("x")],
        ["y"],
        {"zero": np.array([0])},
    )
    for trips in (0, 1, 3):
        (y,) = results(model, trips, np.float32(2.5))
        assert y.shape == () and y == 2.5
