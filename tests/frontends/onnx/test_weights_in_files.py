"""Large weights that stay in the model's file while it is compiled."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright as tw
from tilewright.frontends import from_onnx
from tilewright.frontends.onnx import load, wire
from tilewright.graph import evaluate
from tilewright.models.constants import constants_of

W = np.random.default_rng(0).standard_normal((96, 64)).astype(np.float32)
TABLE = np.random.default_rng(1).standard_normal((300, 96)).astype(np.float32)


def model(name: str = "w") -> Any:
    """Rows of a table by a matrix; what comes before the weights decides how they are aligned."""
    nodes = [
        helper.make_node("Gather", ["table", "rows"], ["r"]),
        helper.make_node("MatMul", ["r", name], ["p"]),
        helper.make_node("Add", ["p", "b"], ["y"]),
    ]
    arrays = {name: W, "table": TABLE, "b": np.float32(3)}
    rows = helper.make_tensor_value_info("rows", onnx.TensorProto.INT64, [5])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [5, 64])
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in arrays.items()]
    graph = helper.make_graph(nodes, "g", [rows], [result], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_LARGE", 1)
    monkeypatch.setattr(wire, "_LARGE", 1000)


ROWS = np.array([0, 7, 299, 7, 150])
WANT = TABLE[ROWS] @ W + 3


@pytest.mark.parametrize("name", ["w", "ww", "www", "wwww"])
def test_weights_are_read_where_they_are(tmp_path: Path, name: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(name).SerializeToString())
    graph = from_onnx(path, mapped=True)
    large = [
        v.constant for v in constants_of(graph) if v.constant is not None and v.constant.size > 9
    ]
    assert len(large) == 2 and not any(a.flags.owndata or a.flags.writeable for a in large)
    np.testing.assert_allclose(evaluate(graph, [ROWS])[0], WANT, rtol=1e-4, atol=1e-4)


def test_a_link_to_a_model_is_followed(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "1234").write_bytes(model().SerializeToString())
    (tmp_path / "snapshot").mkdir()
    os.symlink("../blobs/1234", tmp_path / "snapshot" / "m.onnx")
    (got,) = tw.compile(tmp_path / "snapshot" / "m.onnx").run([ROWS])
    np.testing.assert_allclose(got, WANT, rtol=1e-4, atol=1e-4)


def test_a_compiled_model_needs_its_file_no_more(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model().SerializeToString())
    made = tw.compile(path)
    assert isinstance(made, tw.Model)
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    np.testing.assert_allclose(made.run([ROWS])[0], WANT, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(evaluate(made.graph, [ROWS])[0], WANT, rtol=1e-4, atol=1e-4)


def test_only_large_weights_are_left_out() -> None:
    data = model().SerializeToString()
    light = wire.without_weights(memoryview(data))
    assert light is not None and len(light) < 1000
    parsed = onnx.ModelProto.FromString(light)
    found = {t.name: t for t in parsed.graph.initializer}
    assert found["b"].raw_data == np.float32(3).tobytes()
    entries = {e.key: e.value for e in found["table"].external_data}
    at, size = int(entries["offset"]), int(entries["length"])
    assert data[at : at + size] == TABLE.tobytes()
    assert parsed.graph.node == model().graph.node


def test_what_is_no_message_is_left_to_the_parser(tmp_path: Path) -> None:
    data = model().SerializeToString()
    for damaged in (data[:-50], b"\xff" * 2000, b"\x3a\xff\xff\x7f" + data):
        assert wire.without_weights(memoryview(damaged)) is None
    (tmp_path / "m.onnx").write_bytes(data[:-50])
    with pytest.raises(tw.UserError, match="is no ONNX model"):
        tw.compile(tmp_path / "m.onnx")
