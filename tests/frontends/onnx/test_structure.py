"""Values that give a program its structure: constants, computed ones, and those of inputs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.onnx.models import info, make, node, operators, results
from tilewright.frontends import UnspecialisedError, from_onnx
from tilewright.graph import evaluate
from tilewright.support.errors import UserError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def reduced() -> object:
    return make(
        [node("ReduceSum", ["x", "axes"], keepdims=0)],
        [info("x", shape=["n", 4]), info("axes", "int64", [1])],
        ["y"],
    )


def test_axes_from_an_input_are_asked_for() -> None:
    with pytest.raises(UnspecialisedError) as caught:
        from_onnx(reduced())
    assert caught.value.values == ("axes",)
    assert caught.value.shapes == ()
    assert "pass values={'axes': …}" in str(caught.value)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_program_for_the_values_at_hand(axis: int) -> None:
    axes = np.array([axis])
    module = from_onnx(reduced(), values={"axes": axes})
    (got,) = evaluate(module, {"x": X, "axes": axes})
    np.testing.assert_array_equal(got, X.sum(axis))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"axes": 1}, r"an array of shape \[\]"),
        ({"axes": np.array([0.5])}, "an array of float64"),
        ({"axis": np.array([1])}, "the model has no such input\n  remedy: did you mean axes"),
    ],
)
def test_values_that_do_not_fit(values: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        from_onnx(reduced(), values=values)


def test_axes_that_constants_tell() -> None:
    """Range and arithmetic on constants are computed while the graph is built."""
    nodes = [
        node("Range", ["one", "three", "one"], ["r"]),
        node("Sub", ["r", "one"], ["axes"]),
        node("ReduceSum", ["x", "axes"], keepdims=0),
    ]
    constants = {"one": np.array(1), "three": np.array(3)}
    model = make(nodes, [info("x", shape=["n", 4])], ["y"], constants)
    assert str(from_onnx(model).main.results[0].type) == "f32[()]"
    np.testing.assert_array_equal(results(model, X)[0], X.sum())


def test_axes_that_depend_on_what_is_computed_inside() -> None:
    nodes = [
        node("NonZero", ["x"], ["places"]),
        node("ReduceMax", ["places"], ["axis"], keepdims=0),
        node("Unsqueeze", ["axis", "zero"], ["axes"]),
        node("ReduceSum", ["x", "axes"]),
    ]
    model = make(nodes, [info("x", shape=[3])], ["y"], {"zero": np.array([0])})
    with pytest.raises(UnspecialisedError) as caught:
        from_onnx(model)
    assert caught.value.values == ("x",)


def test_random_numbers_cannot_be_structure() -> None:
    nodes = [
        node("RandomUniform", [], ["r"], shape=[1]),
        node("Cast", ["r"], ["axes"], to=7),
        node("ReduceSum", ["x", "axes"]),
    ]
    with pytest.raises(UserError, match="depends on what the model computes"):
        from_onnx(make(nodes, [info("x", shape=[3])], ["y"]))


# ---- sizes, which need not be known -------------------------------------------------------------


@pytest.mark.parametrize("shape", [[12], [2, 6], [0, 2, 2], [-1, 3], [0, -1]])
def test_target_shapes_from_an_input(shape: list[int]) -> None:
    """-1 is what is left, 0 is what was there, even when they come with the data."""
    model = make(
        [node("Reshape", ["x", "s"])],
        [info("x", shape=["n", "m"]), info("s", "int64", [len(shape)])],
        ["y"],
    )
    module = from_onnx(model)
    (got,) = evaluate(module, {"x": X, "s": np.array(shape)})
    want = [X.shape[k] if d == 0 else d for k, d in enumerate(shape)]
    np.testing.assert_array_equal(got, X.reshape(want))


@pytest.mark.parametrize(("start", "end"), [(0, 3), (1, 2), (-2, 99), (-99, -1), (2, 1)])
def test_slices_from_inputs(start: int, end: int) -> None:
    scalars = [info("a", "int64", [1]), info("b", "int64", [1])]
    nodes = [node("Slice", ["x", "a", "b", "one"])]
    model = make(nodes, [info("x", shape=[3, "m"]), *scalars], ["y"], {"one": np.array([1])})
    (got,) = evaluate(from_onnx(model), [X, np.array([start]), np.array([end])])
    np.testing.assert_array_equal(got, X[:, start:end])


def test_shape_arithmetic_leaves_no_trace() -> None:
    """As exporters flatten: the shape is followed through, and the batch stays symbolic."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["batch"]),
        node("Unsqueeze", ["batch", "axis"], ["b"]),
        node("Concat", ["b", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"]),
    ]
    constants = {"zero": np.array(0), "axis": np.array([0]), "rest": np.array([-1])}
    module = from_onnx(make(nodes, [info("x", shape=["n", 3, 4])], ["y"], constants))
    assert str(module.main.results[0].type) == "f32[n, 12]"
    assert operators(module)[-1] == "reshape"


def test_the_rank_of_a_reshape_must_be_known() -> None:
    model = make(
        [node("Reshape", ["x", "s"])],
        [info("x", shape=[12]), info("s", "int64", ["rank"])],
        ["y"],
    )
    with pytest.raises(UnspecialisedError) as caught:
        from_onnx(model)
    assert caught.value.values == ("s",)
    np.testing.assert_array_equal(results(model, X.ravel(), [3, 4])[0], X)


def test_absurd_numbers_of_sizes() -> None:
    model = make(
        [node("Reshape", ["x", "s"])],
        [info("x", shape=[12]), info("s", "int64", [1 << 40])],
        ["y"],
    )
    with pytest.raises(UserError, match="it should be a few sizes"):
        from_onnx(model)
