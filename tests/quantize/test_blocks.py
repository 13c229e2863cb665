"""Weights of few bits: rounded well, packed in memory, and the same for ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tests.quantize.networks import normal, operators, perceptron, rng
from tilewright.graph import Builder, Module, evaluate, passes
from tilewright.quantize.blocks import packed_rows

ort: Any = pytest.importorskip("onnxruntime")
ort.set_default_logger_severity(4)


def product(depth: int, outputs: int, rows: Any = "n", bias: bool = False) -> Module:
    b = Builder()
    x = b.input("x", "f32", (rows, depth))
    weight = normal(outputs, depth, seed=1, scale=0.1)
    b.output(b.dense(x, weight, normal(outputs, seed=2) if bias else None), names=["y"])
    return b.build()


@pytest.mark.parametrize(("bits", "decibels"), [("int4", 19), ("int8", 40)])
def test_noise_of_rounding(bits: str, decibels: float) -> None:
    q = tw.quantize(product(128, 48), normal(32, 128, seed=3), weights=bits)
    assert q.report.error is not None and q.report.error.sqnr > decibels
    assert [r.precision for r in q.report.layers] == [bits]


@pytest.mark.parametrize("bits", [4, 8])
def test_blocks_of_zeros_and_of_one_weight(bits: int) -> None:
    rows = np.zeros((4, 64), np.float32)
    rows[1, 3], rows[2, 40], rows[3] = 5.0, -5.0, 2.0
    packed, scales = packed_rows(rows, bits, 32)
    assert packed.shape == (4, 2, 32 * bits // 8) and np.isfinite(scales).all()
    b = Builder()
    x = b.input("x", "f32", (64, 64))
    b.output(b.matmul_nbits(x, packed, scales, None, None, depth=64, bits=bits))
    found = evaluate(b.build(), [np.eye(64, dtype=np.float32)])[0].T
    np.testing.assert_allclose(found, rows, rtol=1e-6)


@pytest.mark.parametrize("bits", ["int4", "int8"])
@pytest.mark.parametrize(("depth", "outputs", "group"), [(64, 64, 32), (100, 70, 32), (48, 17, 16)])
def test_products_beside_onnxruntime(
    bits: str, depth: int, outputs: int, group: int, tmp_path: Path
) -> None:
    q = tw.quantize(product(depth, outputs, bias=True), weights=bits, group=group)
    assert operators(q) == ["matmul_nbits"]
    q.save(tmp_path / "q.onnx")
    session, model = ort.InferenceSession(tmp_path / "q.onnx"), tw.compile(q)
    again = tw.compile(str(tmp_path / "q.onnx"))
    for rows in (1, 7, 40):
        x = normal(rows, depth, seed=rows)
        (want,) = evaluate(q, [x])
        for got in (model.run([x])[0], again.run([x])[0], session.run(None, {"x": x})[0]):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_weights_stay_packed_in_memory(tmp_path: Path) -> None:
    module = product(256, 512, rows=1)
    q = tw.quantize(module, weights="int4")
    model = tw.compile(q)
    assert isinstance(model, tw.Model)
    model.save(tmp_path / "q.twm")
    whole = 256 * 512 * 4
    assert (tmp_path / "q.twm").stat().st_size < whole / 4
    assert "matmul_panels" in str(model.graph)


@pytest.mark.parametrize("with_zeros", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_panels_are_unpacked_as_they_are_multiplied(bits: int, with_zeros: bool) -> None:
    per_byte, block, depth = 8 // bits, 16, 32
    weight = rng(1).integers(0, 256, (2, depth // per_byte, 64)).astype(np.uint8)
    scales = rng(2).uniform(0.01, 0.1, (2, depth // block, 64)).astype(np.float32)
    zeros = rng(3).integers(0, 2**bits, scales.shape).astype(np.float32) if with_zeros else None
    b = Builder()
    x, attrs = b.input("x", "f32", (3, depth)), {"bits": bits, "block": block}
    b.output(b.matmul_panels(x, weight, scales, zeros, **attrs))
    # A sum with what is not constant: constants alone would be computed at compile time.
    first = b.unpack_panels(b.input("w", "u8", weight.shape), scales, zeros, **attrs)
    b.output(b.matmul(x, first))
    module, arrays = b.build(), [normal(3, depth), weight]
    want = evaluate(module, arrays)
    np.testing.assert_allclose(want[0], want[1], rtol=1e-4, atol=1e-4)
    for got in tw.compile(module).run(arrays):
        np.testing.assert_allclose(got, want[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("rows", "there"), [(4, False), (64, True), ("n", True)])
def test_weights_are_unpacked_once_for_many_rows(rows: Any, there: bool) -> None:
    model = tw.compile(tw.quantize(product(64, 64, rows), weights="int4"))
    assert isinstance(model, tw.Model)
    text = str(model.graph)
    assert ("unpack_panels" in text) == there
    assert ("matmul_panels(" in text) == (rows != 64), "few rows read them as they are"


def test_other_operators_and_layers_stay() -> None:
    q = tw.quantize(perceptron(), weights="int8")
    assert operators(q).count("matmul_nbits") == 2 and "matmul" not in operators(q)
    name = q.report.layers[0].name
    assert operators(tw.quantize(perceptron(), weights="int4", keep=[name])).count("matmul") == 1
    refused: list[tuple[dict[str, Any], str]] = [
        ({"weights": "int3"}, "there are no weights of int3"),
        ({"weights": "int4", "group": 24}, "groups of 24 weights"),
    ]
    for options, message in refused:
        with pytest.raises(tw.UserError, match=message):
            tw.quantize(perceptron(), **options)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("with_zeros", [False, True])
@pytest.mark.parametrize("kind", ["INT4", "INT8"])
def test_weights_that_a_model_dequantizes_in_blocks(
    kind: str, signed: bool, with_zeros: bool
) -> None:
    bits, depth, outputs = int(kind[3:]), 96, 40
    name = kind if signed else f"U{kind}"
    low = -(2 ** (bits - 1)) if signed else 0
    stored = rng(1).integers(low, low + 2**bits, (depth, outputs))
    zeros = rng(2).integers(low, low + 2**bits, (depth // 32, outputs))
    scales = rng(3).uniform(0.01, 0.1, (depth // 32, outputs)).astype(np.float32)
    number = getattr(TensorProto, name)
    made = [
        helper.make_tensor("w", number, stored.shape, stored.ravel().tolist()),
        numpy_helper.from_array(scales, "s"),
        helper.make_tensor("z", number, zeros.shape, zeros.ravel().tolist()),
    ]
    inputs = ["w", "s", "z"] if with_zeros else ["w", "s"]
    nodes = [
        helper.make_node("DequantizeLinear", inputs, ["real"], axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "real"], ["y"]),
    ]
    x_info = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", depth])
    y_info = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", outputs])
    graph = helper.make_graph(nodes, "g", [x_info], [y_info], made if with_zeros else made[:2])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(proto)
    module = tw.frontends.from_onnx(proto)
    changed = passes.quantized_products(tw.Target.of("llvm -mcpu=haswell"))(module)
    assert "matmul_nbits" in operators(changed)
    x = normal(5, depth, seed=4)
    options = ort.SessionOptions()
    # Its optimizer rounds x to bytes as well.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    (want,) = ort.InferenceSession(proto.SerializeToString(), options).run(None, {"x": x})
    np.testing.assert_allclose(evaluate(changed, [x])[0], want, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(tw.compile(module).run([x])[0], want, rtol=1e-4, atol=1e-3)
