"""Operators that nothing converts, and nodes that are not what they should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.frontends.onnx.models import converted, info, make, node, results
from tilewright.frontends import from_onnx
from tilewright.frontends.onnx.functions import has_standard_function
from tilewright.frontends.onnx.table import find_converter
from tilewright.support.errors import UserError

X = [info("x", shape=[2, 3])]


def test_all_missing_operators_are_told_at_once() -> None:
    inner = onnx.helper.make_graph([node("Mystery", ["x"], ["t"], domain="acme")], "b", [], [])
    nodes = [
        node("Mystery", ["x"], ["a"], domain="acme", name="first"),
        node("Mystery", ["a"], ["b"], domain="acme", name="second"),
        node("Frobnicate", ["b"], ["c"]),
        node("If", ["k"], ["y"], then_branch=inner, else_branch=inner),
        node("ZipMap", ["c"], ["z"], domain="ai.onnx.ml"),
    ]
    with pytest.raises(UserError) as caught:
        converted(nodes, X, ["y"], {"k": np.array(True)}, domains={"acme": 3, "ai.onnx.ml": 1})
    text = str(caught.value)
    assert "3 of them, listed below" in text
    named = "node first (Mystery), node second (Mystery), node of t (Mystery), node of t (Mystery)"
    assert f"    4 × acme.Mystery (version 3): {named}\n" in text
    assert "1 × Frobnicate (version 18): node of c (Frobnicate)" in text
    assert "1 × ai.onnx.ml.ZipMap (version 1): node of z (ZipMap); export with the option" in text


#: Operators of ONNX that have no counterpart here.
UNSUPPORTED = {
    ("ai.onnx.ml", "CastMap"),
    ("ai.onnx.ml", "DictVectorizer"),
    ("ai.onnx.ml", "ZipMap"),
    ("ai.onnx.preview.training", "Gradient"),
}


def test_every_operator_of_every_version_is_served() -> None:
    """All versions that models from opset 7 on can use."""
    missing: set[tuple[str, str]] = set()
    for schema in onnx.defs.get_all_schemas_with_history():
        key = (schema.domain, schema.name)
        for version in _versions(schema):
            served = find_converter(*key, version) or has_standard_function(
                schema.name, version, schema.domain
            )
            missing |= set() if served else {key}
    assert missing == UNSUPPORTED


def _versions(schema: Any) -> list[int]:
    if schema.domain:
        return [schema.since_version]
    is_gone = schema.deprecated and schema.name not in ("Scatter", "Upsample")
    return [] if is_gone else [max(schema.since_version, 7)]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([node("Relu", ["z"])], r"no value z: no node, input .*\n  remedy: .*\n\s+at node of y"),
        ([node("Add", ["x"])], "operand 1 is missing"),
        ([node("Concat", ["x", "x"])], "the attribute axis is missing|has the attribute axis"),
        ([node("Concat", ["x", "x"], axis=5)], "there is no axis 5"),
        ([node("Concat", ["x", "x"], axis=1.5)], "axis is a float: it should be an integer"),
        ([node("Transpose", ["x"], perm=[0, 0])], "axes"),
        ([node("Relu", ["x"]), node("Neg", ["x"])], "two definitions of the value y"),
        ([node("Relu", ["x"], ["x"])], "two definitions of the value x"),
        ([node("Relu", ["b"], ["a"]), node("Neg", ["a"], ["b"])], "form a cycle: among node of a"),
        ([node("Relu", ["x"], ["y", "z"])], "output 1 .z. is not supported"),
        ([node("Reshape", ["x", "x"])], "whole numbers|dimensions"),
        ([node("Pad", ["x", "w"])], "2 pads are given for 2 axes"),
        ([node("Cast", ["x"], to=99)], "the attribute to has the element type 99"),
        ([node("BitShift", ["x", "x"], direction="UP")], "remedy: use LEFT or RIGHT"),
    ],
)
def test_nodes_that_do_not_fit(nodes: list[Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        converted(nodes, X, ["y"], {"w": np.array([1, 2])})


def test_a_message_shows_the_node_and_the_call() -> None:
    with pytest.raises(UserError) as caught:
        converted([node("MatMul", ["x", "x"], name="proj")], X, ["y"])
    assert "matmul(x: f32[2, 3], x: f32[2, 3]" in str(caught.value)
    assert str(caught.value).endswith("at node proj (MatMul)")


def test_nodes_in_any_order() -> None:
    nodes = [node("Neg", ["b"]), node("Relu", ["a"], ["b"]), node("Abs", ["x"], ["a"])]
    x = np.array([[-1, 2, 3], [0, -5, 6]], np.float32)
    np.testing.assert_array_equal(results(make(nodes, X, ["y"]), x)[0], -np.abs(x))


def test_names_inside_a_graph_are_its_own() -> None:
    """The body calls its state and its result as the node outside calls its results."""
    body = onnx.helper.make_graph(
        [node("Add", ["s", "x"], ["t"]), node("Neg", ["t"], ["u"])],
        "body",
        [info("s", shape=[3]), info("x", shape=[3])],
        [info("t", shape=[3]), info("u", shape=[3])],
    )
    scan = node("Scan", ["first", "xs"], ["s", "u"], body=body, num_scan_inputs=1)
    model = make([scan], [info("first", shape=[3]), info("xs", shape=[2, 3])], ["s", "u"])
    first, xs = np.ones(3, np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)
    last, all_of_them = results(model, first, xs)
    np.testing.assert_array_equal(last, first + xs.sum(0))
    np.testing.assert_array_equal(all_of_them, -(first + xs.cumsum(0)))


def test_an_output_that_nobody_computes() -> None:
    with pytest.raises(UserError, match="no value q"):
        converted([node("Relu", ["x"])], X, ["q"])


def test_outputs_have_their_names_even_where_values_pass_through() -> None:
    pairs = [("Identity", "x", "a"), ("Relu", "x", "b"), ("Identity", "b", "c")]
    nodes = [node(op, [x], [y]) for op, x, y in pairs]
    main = from_onnx(make(nodes, X, ["a", "b", "c"])).main
    assert [r.name for r in main.results] == ["a", "b", "c"]
    assert len(set(main.results)) == 3
