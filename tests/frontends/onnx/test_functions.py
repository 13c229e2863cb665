"""Functions of a model, and those that ONNX defines operators by."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontends.onnx.models import applied, converted, info, make, node, operators, results
from tilewright.frontends import from_onnx
from tilewright.support.errors import UserError

X = np.array([-2.0, 3.0], np.float32)
INPUT = [info("x", shape=[2])]
LOCAL = {"my": 1}


def function(name: str, nodes: list, inputs: list, outputs: list, **kwargs: Any) -> Any:
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]
    return helper.make_function("my", name, inputs, outputs, nodes, imports, **kwargs)


def test_a_function_is_converted_where_it_is_called() -> None:
    double = function("Double", [node("Add", ["a", "a"], ["b"])], ["a"], ["b"])
    nodes = [node("Double", ["x"], ["t"], domain="my"), node("Double", ["t"], domain="my")]
    model = make(nodes, INPUT, ["y"], functions=[double], domains=LOCAL)
    assert operators(from_onnx(model)) == ["add", "add"]
    np.testing.assert_array_equal(results(model, X)[0], 4 * X)


def test_attributes_are_handed_in_and_have_defaults() -> None:
    leaky = node("LeakyRelu", ["a"], ["b"])
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    default = helper.make_attribute("slope", 0.5)
    body = function("Leak", [leaky], ["a"], ["b"], attribute_protos=[default])
    for attrs, slope in (({}, 0.5), ({"slope": 0.25}, 0.25)):
        nodes = [node("Leak", ["x"], ["y"], domain="my", **attrs)]
        model = make(nodes, INPUT, ["y"], functions=[body], domains=LOCAL)
        np.testing.assert_allclose(results(model, X)[0], [-2 * slope, 3])


def test_an_operand_that_is_left_out_stays_so() -> None:
    body = function(
        "Bound", [node("Clip", ["a", "low", "high"], ["b"])], ["a", "low", "high"], ["b"]
    )
    nodes = [node("Bound", ["x", "zero"], domain="my")]
    model = make(nodes, INPUT, ["y"], {"zero": np.float32(0)}, [body], domains=LOCAL)
    np.testing.assert_array_equal(results(model, X)[0], [0, 3])


def test_functions_that_call_each_other() -> None:
    inner = function("Inner", [node("Neg", ["a"], ["b"])], ["a"], ["b"])
    outer = function("Outer", [node("Inner", ["a"], ["b"], domain="my")], ["a"], ["b"])
    nodes = [node("Outer", ["x"], domain="my")]
    model = make(nodes, INPUT, ["y"], functions=[outer, inner], domains=LOCAL)
    np.testing.assert_array_equal(results(model, X)[0], -X)


def test_recursion_is_refused() -> None:
    loop = function("Loop", [node("Loop", ["a"], ["b"], domain="my")], ["a"], ["b"])
    with pytest.raises(UserError, match="nested more than 64 deep"):
        converted([node("Loop", ["x"], domain="my")], INPUT, ["y"], None, [loop], domains=LOCAL)


def test_functions_that_grow_without_end_are_refused() -> None:
    """Each calls the next one four times: 4 ** 20 nodes from a small file."""
    names = [f"F{k}" for k in range(20)]
    functions = [function("F20", [node("Relu", ["a"], ["b"])], ["a"], ["b"])]
    for name, callee in zip(names, [*names[1:], "F20"], strict=True):
        calls = [node(callee, ["a"], [f"t{k}"], domain="my") for k in range(4)]
        total = node("Sum", [f"t{k}" for k in range(4)], ["b"])
        functions.append(function(name, [*calls, total], ["a"], ["b"]))
    nodes = [node("F0", ["x"], domain="my")]
    with pytest.raises(UserError, match="more than 100020 nodes"):
        converted(nodes, INPUT, ["y"], None, functions, domains=LOCAL)


def test_two_functions_of_one_name_are_refused() -> None:
    double = function("Double", [node("Add", ["a", "a"], ["b"])], ["a"], ["b"])
    with pytest.raises(UserError, match="two definitions of the function Double"):
        converted([node("Double", ["x"], domain="my")], INPUT, ["y"], None, [double, double])


def test_operators_that_onnx_defines_by_others() -> None:
    left, right = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)
    got = applied("SwiGLU", left, right, opset=28)[0]
    np.testing.assert_allclose(got, left / (1 + np.exp(-left)) * right, rtol=1e-5)
