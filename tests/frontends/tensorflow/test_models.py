"""Frozen graphs and SavedModels: functions, variables, tables, control flow, names, messages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.frontends.onnx.models import info as onnx_info
from tests.frontends.onnx.models import make as onnx_make
from tests.frontends.onnx.models import node as onnx_node
from tests.frontends.tensorflow.files import (
    body,
    const,
    frozen,
    function,
    graph,
    info,
    kind,
    node,
    placeholder,
    results,
    saved_model,
)
from tilewright.frontends import Source, front_end_of
from tilewright.frontends.tensorflow import from_tensorflow
from tilewright.support.errors import UserError

RNG = np.random.default_rng(0)
W = RNG.standard_normal((3, 4)).astype(np.float32)
X = RNG.standard_normal((2, 3)).astype(np.float32)
DENSE = [
    placeholder("x", None, 3),
    const("w", W),
    node("MatMul", "product", "x", "w", "^w"),
    node("Relu", "y", "product"),
]


def test_a_frozen_graph_runs_natively(tmp_path: Path) -> None:
    path = tmp_path / "model.pb"
    path.write_bytes(frozen(*DENSE))
    model = tw.compile(path)
    assert [i.name for i in model.inputs] == ["x"] and [o.name for o in model.outputs] == ["y"]
    np.testing.assert_allclose(model.run({"x": X})[0], np.maximum(X @ W, 0), rtol=1e-5)


def test_formats_are_told_apart_by_content(tmp_path: Path) -> None:
    onnx_model = onnx_make([onnx_node("Relu", ["x"])], [onnx_info("x", shape=[2])], ["y"])
    for name in ("", "producer"):
        onnx_model.producer_name = name
        assert front_end_of(Source(onnx_model.SerializeToString())).name == "ONNX"
    assert front_end_of(Source(frozen(*DENSE))).name == "TensorFlow"
    folder = saved_model(tmp_path, graph(*DENSE), {"x": info("x:0", None, 3)}, {"y": "y:0"})
    assert front_end_of(Source(folder)).name == "TensorFlow"
    assert front_end_of(Source(folder / "saved_model.pb")).name == "TensorFlow"


def test_weights_are_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "model.pb"
    path.write_bytes(frozen(*DENSE))
    (weight,) = [
        a.constant
        for b in from_tensorflow(path).main.body
        for a in b.expr.args
        if a is not None and a.constant is not None
    ]
    assert not weight.flags.owndata and (weight == W).all()


def test_outputs_may_be_chosen() -> None:
    assert results(frozen(*DENSE), X, outputs=["product"])[0].min() < 0


def _with_variables(folder: Path) -> Path:
    """As TensorFlow 2 writes it: functions that get variables, and one that restores them."""
    call = body(
        "call",
        ["x", "handle"],
        [
            node("ReadVariableOp", "read", "handle", dtype=kind("float32")),
            node("MatMul", "product", "x", "read:value:0"),
            node("Identity", "end", "product:product:0"),
        ],
        {"output": "end:output:0"},
    )
    restore = body(
        "restore",
        ["prefix", "handle"],
        [
            const("names", np.array(["layer/kernel"], object)),
            const("slices", np.array([""], object)),
            node("RestoreV2", "all", "prefix", "names:output:0", "slices:output:0"),
            node("Identity", "one", "all:tensors:0"),
            node("AssignVariableOp", "assign", "handle", "one:output:0"),
        ],
        {},
    )
    made = graph(
        placeholder("serving_x", None, 3),
        node("VarHandleOp", "kernel", shared_name="anything"),
        node("StatefulPartitionedCall", "called", "serving_x", "kernel", f=function("call")),
        const("prefix", np.array("", object)),
        node("StatefulPartitionedCall", "restored", "prefix", "kernel", f=function("restore")),
        functions=[call, restore],
    )
    return saved_model(
        folder, made, {"x": info("serving_x:0", None, 3)}, {"y": "called:0"}, {"layer/kernel": W}
    )


def test_variables_come_from_the_checkpoint(tmp_path: Path) -> None:
    folder = _with_variables(tmp_path)
    np.testing.assert_allclose(results(folder, X)[0], X @ W, rtol=1e-5)
    model = tw.compile(folder)
    assert [i.name for i in model.inputs] == ["x"] and [o.name for o in model.outputs] == ["y"]
    np.testing.assert_allclose(model.run({"x": X})[0], X @ W, rtol=1e-5)


def test_a_signature_may_be_chosen(tmp_path: Path) -> None:
    folder = _with_variables(tmp_path)
    with pytest.raises(UserError, match="has no signature other"):
        from_tensorflow(folder, signature="other")


def test_a_missing_checkpoint_is_told(tmp_path: Path) -> None:
    folder = _with_variables(tmp_path)
    (folder / "variables" / "variables.index").unlink()
    with pytest.raises(UserError, match="the variable anything has no value"):
        from_tensorflow(folder)


# ---- control flow -------------------------------------------------------------------------------


def test_while_of_functions_with_a_list() -> None:
    """Squares of 0 … 3, written one by one."""
    condition = body(
        "c",
        ["i", "l"],
        [const("n", np.int32(4)), node("Less", "go", "i", "n:output:0")],
        {"go": "go:z:0"},
    )
    step = body(
        "b",
        ["i", "l"],
        [
            const("one", np.int32(1)),
            node("AddV2", "next", "i", "one:output:0"),
            node("Cast", "real", "i", DstT=kind("float32")),
            node("Square", "square", "real:y:0"),
            node("TensorListSetItem", "set", "l", "i", "square:y:0"),
        ],
        {"i_out": "next:z:0", "l_out": "set:output_handle:0"},
    )
    data = frozen(
        placeholder("x"),
        const("zero", np.int32(0)),
        const("four", np.int32(4)),
        const("open", np.int32(-1)),
        node("TensorListReserve", "list", "open", "four", element_dtype=kind("float32")),
        node("While", "loop", "zero", "list", cond=function("c"), body=function("b")),
        const("shape", np.zeros(0, np.int32)),
        node("TensorListStack", "stack", "loop:1", "shape"),
        node("AddV2", "y", "stack", "x"),
        functions=[condition, step],
    )
    assert results(data, np.float32(1))[0].tolist() == [1, 2, 5, 10]


def test_a_loop_of_rings() -> None:
    """The first generation: x doubled while its sum is below 100."""

    def enter(name: str, source: str) -> dict:
        return dict(node("Enter", name, source, frame_name="loop"))

    data = frozen(
        placeholder("x", 2),
        enter("enter", "x"),
        node("Merge", "merge", "enter", "next"),
        const("axes", np.array([0], np.int32)),
        enter("enter_axes", "axes"),
        node("Sum", "sum", "merge", "enter_axes"),
        const("limit", np.float32(100)),
        enter("enter_limit", "limit"),
        node("Less", "less", "sum", "enter_limit"),
        node("LoopCond", "cond", "less"),
        node("Switch", "switch", "merge", "cond"),
        node("Identity", "in", "switch:1"),
        node("AddV2", "twice", "in", "in"),
        node("NextIteration", "next", "twice"),
        node("Exit", "exit", "switch"),
        node("Identity", "unused", "in"),
    )
    found = results(data, np.array([1, 2], np.float32))[0]
    assert found.tolist() == [64, 128]


@pytest.mark.parametrize(("first", "wanted"), [(1.0, 3.0), (-1.0, 5.0)])
def test_branches_of_both_generations(first: float, wanted: float) -> None:
    x = np.array([first, 2, 3], np.float32)
    old = frozen(
        placeholder("x", 3),
        const("axes", np.array([0], np.int32)),
        node("Prod", "product", "x", "axes"),
        const("zero", np.float32(0)),
        node("Greater", "asked", "product", "zero"),
        node("Switch", "switch", "x", "asked"),
        node("Max", "max", "switch:1", "axes"),
        {**const("five", np.float32(5)), "input": ["^switch"]},
        node("Identity", "else", "five"),
        node("Switch", "pivot", "asked", "asked"),
        node("Identity", "off", "pivot"),
        node("Merge", "y", "max", "pick"),
        node("Identity", "pick", "else", "^off"),
    )
    new = frozen(
        placeholder("x", 3),
        const("axes", np.array([0], np.int32)),
        node("Prod", "product", "x", "axes"),
        const("zero", np.float32(0)),
        node("Greater", "asked", "product", "zero"),
        node(
            "StatelessIf", "y", "asked", "x", then_branch=function("t"), else_branch=function("e")
        ),
        functions=[
            body(
                "t",
                ["a"],
                [const("k", np.array([0], np.int32)), node("Max", "m", "a", "k:output:0")],
                {"r": "m:output:0"},
            ),
            body("e", ["a"], [const("k", np.float32(5))], {"r": "k:output:0"}),
        ],
    )
    for data in (old, new):
        assert float(results(data, x, outputs=["y"])[0]) == wanted


def _dropout(trains: bool) -> bytes:
    """Dropout as it was frozen before TensorFlow 2, behind a placeholder with a default."""
    default = {**placeholder("training", dtype="bool"), "op": "PlaceholderWithDefault"}
    return frozen(
        placeholder("x", 3),
        const("default", np.array(trains)),
        {**default, "input": ["default"]},
        node("Switch", "on", "x", "training"),
        node("Switch", "off", "x", "training"),
        node("Shape", "shape", "on:1"),
        node("RandomUniform", "random", "shape"),
        node("Mul", "kept", "on:1", "random"),
        node("Identity", "as_is", "off"),
        node("Merge", "y", "as_is", "kept"),
    )


def test_only_the_branch_that_is_taken_needs_converters() -> None:
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(results(_dropout(False), x, outputs=["y"])[0], x)
    with pytest.raises(UserError, match="operators that Tilewright does not know") as caught:
        from_tensorflow(_dropout(True), outputs=["y"])
    assert "1 × RandomUniform: node random" in str(caught.value)


def test_tables() -> None:
    data = frozen(
        placeholder("x", None, dtype="int64"),
        node("HashTableV2", "table", key_dtype=kind("int64"), value_dtype=kind("float32")),
        const("keys", np.array([3, 5], np.int64)),
        const("values", np.array([0.3, 0.5], np.float32)),
        node("LookupTableImportV2", "fill", "table", "keys", "values"),
        const("default", np.float32(-1)),
        node("LookupTableFindV2", "y", "table", "x", "default"),
    )
    found = results(data, np.array([5, 4, 3]))[0]
    np.testing.assert_allclose(found, [0.5, -1, 0.3], rtol=1e-6)


# ---- messages -----------------------------------------------------------------------------------


def test_missing_operators_are_told_at_once() -> None:
    data = frozen(placeholder("x", 2), node("Odd", "a", "x"), node("PyFunc", "b", "a"))
    with pytest.raises(UserError, match="has operators that Tilewright does not know") as caught:
        from_tensorflow(data)
    assert "1 × Odd: node a" in str(caught.value)
    assert "it runs Python code" in str(caught.value)


def test_errors_name_the_node() -> None:
    data = frozen(placeholder("x", 2), const("w", W), node("MatMul", "bad", "x", "w"))
    with pytest.raises(UserError, match=r"at node bad \(MatMul\)"):
        from_tensorflow(data)


def test_circles_are_refused() -> None:
    data = frozen(
        placeholder("x", 2),
        node("Add", "a", "x", "b"),
        node("Add", "b", "a", "x"),
        node("Relu", "y", "b"),
    )
    with pytest.raises(UserError, match="needs its own result"):
        from_tensorflow(data)


def test_a_model_with_many_nodes_converts_quickly() -> None:
    import time

    nodes = [placeholder("n0", 4)]
    nodes += [node("Relu" if k % 2 else "Neg", f"n{k}", f"n{k - 1}") for k in range(1, 10_000)]
    data = frozen(*nodes)
    start = time.process_time()
    from_tensorflow(data)
    assert time.process_time() - start < 4


@pytest.mark.parametrize("op", ["LookupTableFindV2", "LookupTableSizeV2"])
def test_what_is_asked_for_keys_must_be_a_table(op: str) -> None:
    with pytest.raises(UserError, match="y asks no table"):
        from_tensorflow(frozen(placeholder("x", 2), node(op, "y", "x", "x", "x")))
