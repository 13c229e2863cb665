"""Faults in the ONNX front end: a small model shows them."""

from __future__ import annotations

import base64
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.frontends.onnx.models import info, make, node
from tests.reproducers.faults import Break, fault_of, has_op
from tilewright.frontends.onnx import from_onnx, importer
from tilewright.reproducers import Reproducer, read_reproducer, run_again

WEIGHTS = np.random.default_rng(3).standard_normal((16, 16)).astype(np.float32)


def break_converter(monkeypatch: pytest.MonkeyPatch, op: str, check: Any = None) -> None:
    """The converter of an operator fails on nodes that `check` chooses."""
    find = importer.find_converter

    def found(domain: str, name: str, version: int) -> Any:
        convert = find(domain, name, version)

        def failing(n: Any) -> Any:
            if check is None or check(n) or convert is None:
                raise AttributeError("no such thing")
            return convert(n)

        return failing if name == op else convert

    monkeypatch.setattr(importer, "find_converter", found)


def network() -> onnx.ModelProto:
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="first"),
        node("Relu", ["a"], ["b"], name="second"),
        node("Reshape", ["b", "shape"], ["c"], name="third"),
        node("MatMul", ["c", "w"], ["y"], name="fourth"),
    ]
    constants = {"w": WEIGHTS, "shape": np.array([2, 16])}
    return make(nodes, [info("x", shape=(2, 16))], ["y"], constants)


def model_in(r: Reproducer) -> onnx.ModelProto:
    model = onnx.ModelProto.FromString(zlib.decompress(base64.b64decode(r.subject)))
    for tensor in model.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        assert array.dtype != np.float32 or not np.isin(WEIGHTS, array).any()
    return model


def test_a_node_that_fails_is_a_model_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        break_converter(patch, "Reshape")
        error = fault_of(network())
        assert error.places["node"] == "node third (Reshape)"
        assert "in node third (Reshape)" in str(error)
        r = read_reproducer(error.reproducer or "")
        assert (r.kind, r.fails) == ("onnx", True)
        model = model_in(r)
        assert [n.op_type for n in model.graph.node] == ["Reshape"]
        assert [i.name for i in model.graph.input] == ["b"]
        # Shapes are structure, and stay.
        (shape,) = model.graph.initializer
        np.testing.assert_array_equal(onnx.numpy_helper.to_array(shape), [2, 16])
        assert r.failure.is_like(run_again(r))
    assert run_again(r) is None


def test_weights_are_not_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    break_converter(monkeypatch, "MatMul", lambda n: n.inputs[1].is_constant)
    r = read_reproducer(fault_of(network()).reproducer or "")
    model = model_in(r)
    assert r.fails and [t.dims for t in model.graph.initializer] == [[16, 16]]


def test_nodes_before_it_come_along_where_it_needs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where one converter leaves something behind that another stumbles over."""
    made: list[str] = []

    find = importer.find_converter
    monkeypatch.setattr(
        importer, "find_converter", lambda d, name, v: made.append(name) or find(d, name, v)
    )
    break_converter(monkeypatch, "Reshape", lambda n: "Relu" in made)
    load = importer.Importer.__init__
    monkeypatch.setattr(
        importer.Importer, "__init__", lambda self, model: made.clear() or load(self, model)
    )
    r = read_reproducer(fault_of(network()).reproducer or "")
    assert r.fails and [n.op_type for n in model_in(r).graph.node] == ["Relu", "Reshape"]


def test_inner_graphs_take_what_they_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    then = onnx.helper.make_graph([node("MatMul", ["x", "w"], ["t"])], "then", [], [info("t")])
    other = onnx.helper.make_graph([node("Relu", ["x"], ["o"])], "other", [], [info("o")])
    branch = node("If", ["c"], ["y"], name="choice", then_branch=then, else_branch=other)
    inputs = [info("c", "bool"), info("x", shape=("n", 16))]
    break_converter(monkeypatch, "If")
    r = read_reproducer(fault_of(make([branch], inputs, ["y"], {"w": WEIGHTS})).reproducer or "")
    model = model_in(r)
    assert r.fails and [i.name for i in model.graph.input] == ["c", "x"]


def test_constants_in_attributes_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    value = onnx.numpy_helper.from_array(WEIGHTS)
    nodes = [node("Constant", [], ["w"], value=value), node("MatMul", ["x", "w"], ["y"])]
    break_converter(monkeypatch, "Constant")
    r = read_reproducer(fault_of(make(nodes, [info("x", shape=(2, 16))], ["y"])).reproducer or "")
    (constant,) = model_in(r).graph.node
    assert not np.isin(WEIGHTS, onnx.numpy_helper.to_array(constant.attribute[0].t)).any()


def test_nothing_is_left_in_inner_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that are sparse, or in branches, and what exporters note about nodes."""
    found = WEIGHTS[0][:4]
    values = onnx.numpy_helper.from_array(found, "s")
    indices = onnx.numpy_helper.from_array(np.arange(4))
    sparse = onnx.helper.make_sparse_tensor(values, indices, [16])
    then = onnx.helper.make_graph(
        [node("Constant", [], ["v"], sparse_value=sparse), node("Add", ["v", "u"], ["t"])],
        "then",
        [],
        [info("t")],
        [onnx.numpy_helper.from_array(WEIGHTS[1], "u")],
    )
    other = onnx.helper.make_graph([node("Relu", ["x"], ["o"])], "other", [], [info("o")])
    branch = node("If", ["c"], ["y"], name="choice", then_branch=then, else_branch=other)
    branch.doc_string = "written by somebody"
    inputs = [info("c", "bool"), info("x", shape=(16,))]
    break_converter(monkeypatch, "If")
    r = read_reproducer(fault_of(make([branch], inputs, ["y"])).reproducer or "")
    data = zlib.decompress(base64.b64decode(r.subject))
    assert r.fails and found.tobytes() not in data and WEIGHTS[1].tobytes() not in data
    assert b"written by somebody" not in data


def test_what_no_node_is_to_blame_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Any:
        raise AttributeError("no result")

    # The façade's function hides the module of the same name.
    monkeypatch.setattr(sys.modules[from_onnx.__module__], "named_output", failing)
    error = fault_of(network())
    r = read_reproducer(error.reproducer or "")
    assert error.places == {"front end": "ONNX"} and r.fails and len(model_in(r).graph.node) == 4


def test_programs_that_are_built_while_a_model_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their structure depends on an input, so that their faults show when it is there."""
    nodes = [node("Unsqueeze", ["x", "axes"], ["a"]), node("Relu", ["a"], ["y"], name="last")]
    model = tw.compile(make(nodes, [info("x", shape=(2,)), info("axes", "int64", (1,))], ["y"]))
    break_converter(monkeypatch, "Relu")
    with pytest.raises(tw.InternalError, match=r"in node last \(Relu\)") as caught:
        model.run([np.zeros(2, np.float32), np.array([0])])
    assert read_reproducer(caught.value.reproducer or "").fails


def test_faults_after_the_front_end_name_nodes_too(break_pass: Break) -> None:
    break_pass("tail_recursion", lambda m: has_op(m, "reshape"), KeyError("reshape"))
    error = fault_of(network())
    assert error.places == {"node": "node third (Reshape)", "pass": "tail_recursion"}


def test_a_path_is_not_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "secret_name.onnx"
    onnx.save(network(), str(path))
    break_converter(monkeypatch, "Reshape")
    assert "secret_name" not in Path(fault_of(path).reproducer or "").read_text()
