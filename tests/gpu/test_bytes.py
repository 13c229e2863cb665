"""Quantized models on GPUs: products of bytes by tensor instructions, with the answers of CPUs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.frontends.tflite.writer import Writer
from tests.gpu.half_networks import NETWORKS, Weights
from tests.schedule.gpu.launches import assemble
from tilewright.graph import Builder, PassContext, PassVerifier, Value
from tilewright.schedule import RULES_BY_ADDRESS
from tilewright.target.gpus import GPUS

Array = np.ndarray[Any, Any]


@pytest.fixture(params=["channels last", "plain"])
def layouts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small images would not be worth one more kernel."""
    if request.param == "channels last":
        for name, gpu in GPUS.items():
            monkeypatch.setitem(GPUS, name, gpu._replace(launch_time=0.0))


def compiled(source: Any, **options: Any) -> Any:
    with PassContext(instruments=[PassVerifier()]):
        return tw.compile(source, "simt", **options)


def instructions(model: Any) -> list[str]:
    """Those of all kernels, each once."""
    made = (RULES_BY_ADDRESS.schedule(model.ir(k), model.target) for k in model.kernels)
    found = [re.findall(r'tensor_intrin="([^"]+)"', str(s.function)) for s in made]
    return [names[0] for names in found if names]


def check_same(source: Any, inputs: list[Array], products: int) -> None:
    """The same answers as a processor's, by so many kernels with tensor instructions."""
    wanted, model = tw.compile(source).run(inputs), compiled(source)
    assert len(instructions(model)) == products
    for a, b in zip(model.run(inputs), wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


class Quantized:
    """A network in which weights and images are quantized and dequantized again."""

    def __init__(self, seed: int) -> None:
        self.w, self.b = Weights(seed), Builder()

    def bytes(self, x: Value, scale: float, zero: int, dtype: str) -> Value:
        given = np.float32(scale), np.array(zero, dtype)
        return self.b.dequantize(self.b.quantize(x, *given), *given)

    def weight(self, *shape: int) -> Value:
        real = self.w(*shape)
        scale = np.abs(real).reshape(len(real), -1).max(axis=1) / np.float32(127)
        stored = np.rint(real / scale.reshape(-1, *[1] * (real.ndim - 1))).astype(np.int8)
        return self.b.dequantize(stored, scale, axis=0)


@pytest.mark.usefixtures("layouts")
@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 120), ("int8", 0)])
def test_a_network_that_comes_quantized(dtype: str, zero: int) -> None:
    q = Quantized(30)
    b, w = q.b, q.w
    x = b.input("x", "f32", (2, 16, 9, 7))
    first = q.bytes(x, 0.03, zero, dtype)
    y = b.conv(first, q.weight(24, 16, 3, 3), w(24), pads=(1, 1, 1, 1))
    y = q.bytes(b.relu(y), 0.02, zero, dtype)
    z = q.bytes(b.conv(y, q.weight(24, 24, 3, 3), w(24), pads=(1, 1, 1, 1)), 0.02, zero, dtype)
    z = b.conv(z, q.weight(24, 24, 3, 3), w(24), pads=(1, 1, 1, 1))
    y = q.bytes(b.relu(b.add(y, z)), 0.03, zero, dtype)
    y = q.bytes(b.conv(y, q.weight(32, 24, 1, 1)), 0.02, zero, dtype)
    y = b.conv(y, q.weight(32, 1, 3, 3), w(32), pads=(1, 1, 1, 1), groups=32)
    y = q.bytes(y, 0.02, zero, dtype)
    y = q.bytes(b.max_pool(y, kernel=(2, 2), strides=(2, 2)), 0.02, zero, dtype)
    y = b.conv(y, q.weight(40, 32, 3, 3), w(40), pads=(1, 1, 1, 1))
    rows = q.bytes(b.reshape(y, shape=(30, 32)), 0.02, zero, dtype)
    b.output(b.dense(rows, q.weight(20, 32), w(20)))
    check_same(b.build(), [w.image(2, 16, 9, 7)], 6)


def test_a_network_that_is_quantized() -> None:
    graph, (x,) = NETWORKS["convolutional"]()
    with pytest.warns(UserWarning, match="too few samples"):
        made = tw.quantize(graph, [x])
    model, wanted = compiled(made), tw.compile(made).run([x])
    assert len(instructions(model)) >= 3
    for a, b in zip(model.run([x]), wanted, strict=True):
        # One step of the last bytes, where a mean is rounded differently.
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=2e-2)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_networks_with_dynamic_scales(name: str) -> None:
    graph, inputs = NETWORKS[name]()
    model, wanted = compiled(graph, precision="int8-dynamic"), tw.compile(graph).run(inputs)
    assert instructions(model)
    for a, b in zip(model.run(inputs), wanted, strict=True):
        assert np.asarray(a).dtype == np.float32
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=5e-2)


@pytest.mark.parametrize(("precision", "error"), [("int8-dynamic", 0.02), ("float8", 0.1)])
def test_the_scale_of_a_single_image_is_a_number(precision: str, error: float) -> None:
    """It has the shape of an image, and no layout of one."""
    b, w = Builder(), Weights(33)
    x = b.input("x", "f32", (1, 16, 12, 12))
    y = b.relu(b.conv(x, w(32, 16, 3, 3), pads=(1, 1, 1, 1)))
    b.output(b.conv(y, w(24, 32, 1, 1)))
    graph, image = b.build(), w.image(1, 16, 12, 12)
    model, wanted = compiled(graph, precision=precision), tw.compile(graph)(image)
    assert instructions(model)
    atol = error * float(np.abs(wanted).max())
    np.testing.assert_allclose(np.asarray(model(image)), wanted, atol=atol)


def onnx_graph(nodes: list[Any], x: tuple[str, tuple[int, ...]], held: dict[str, Any]) -> Any:
    onnx = pytest.importorskip("onnx")
    kinds = onnx.TensorProto.DataType
    kept = [onnx.numpy_helper.from_array(v, k) for k, v in held.items()]
    given = onnx.helper.make_tensor_value_info("x", kinds.Value(x[0].upper()), x[1])
    made = onnx.helper.make_tensor_value_info("y", kinds.Value("UNDEFINED"), None)
    graph = onnx.helper.make_graph(nodes, "g", [given], [made], kept)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])


def stored(dtype: str, *shape: int) -> Array:
    ends = np.iinfo(dtype)
    return np.random.default_rng(len(shape)).integers(ends.min, ends.max + 1, shape).astype(dtype)


@pytest.mark.parametrize(("dtype", "zero"), [("int8", 0), ("uint8", 128), ("uint8", 100)])
def test_matrices_of_onnx(dtype: str, zero: int) -> None:
    """Weights of any zero point; some take it in."""
    onnx = pytest.importorskip("onnx")
    held = {"w": stored(dtype, 64, 24), "xz": np.array(9, "uint8"), "wz": np.array(zero, dtype)}
    node = onnx.helper.make_node("MatMulInteger", ["x", "w", "xz", "wz"], ["y"])
    model = onnx_graph([node], ("uint8", (3, 17, 64)), held)
    check_same(model, [stored("uint8", 3, 17, 64)], 1)


def test_matrices_that_are_not_alike() -> None:
    """A batch of weights, each column of which has a zero point."""
    onnx = pytest.importorskip("onnx")
    held = {
        "w": stored("int8", 3, 64, 24),
        "xz": np.array(9, "uint8"),
        "wz": stored("int8", 3, 1, 24),
    }
    node = onnx.helper.make_node("MatMulInteger", ["x", "w", "xz", "wz"], ["y"])
    model = onnx_graph([node], ("uint8", (3, 17, 64)), held)
    check_same(model, [stored("uint8", 3, 17, 64)], 1)


def test_operators_of_onnx() -> None:
    onnx = pytest.importorskip("onnx")
    scale, zero = np.float32(0.02), np.array(5, "uint8")
    held = {"s": scale, "z": zero, "w": stored("int8", 24, 16, 3, 3), "v": stored("int8", 24, 40)}
    held |= {"ws": np.full(24, 0.01, "f4"), "wz": np.zeros(24, "i1"), "t": np.float32(2)}
    held |= {"one": np.float32(0.01), "none": np.array(0, "i1"), "shape": np.array([-1, 24])}
    make = onnx.helper.make_node
    nodes = [
        make("QLinearConv", ["x", "s", "z", "w", "ws", "wz", "t", "z"], ["c"], pads=[1, 1, 1, 1]),
        make("Transpose", ["c"], ["last"], perm=[0, 2, 3, 1]),
        make("Reshape", ["last", "shape"], ["rows"]),
        make("QLinearMatMul", ["rows", "t", "z", "v", "one", "none", "t", "z"], ["y"]),
    ]
    model = onnx_graph(nodes, ("uint8", (1, 16, 9, 9)), held)
    check_same(model, [stored("uint8", 1, 16, 9, 9)], 2)
    assert not any("patches" in k for k in compiled(model).kernels), "windows stay where they are"


@pytest.mark.parametrize("shape", [(64,), (1, 64), (1, 16, 9, 7)])
def test_dynamic_scales_of_onnx(shape: tuple[int, ...]) -> None:
    """Of a row, or of an image."""
    onnx = pytest.importorskip("onnx")
    is_image = len(shape) == 4
    w = stored("int8", 24, 16, 3, 3) if is_image else stored("int8", 64, 24)
    held = {"w": w, "wz": np.array(0, "int8"), "ws": np.float32(0.01)}
    make, op = onnx.helper.make_node, "ConvInteger" if is_image else "MatMulInteger"
    nodes = [
        make("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        make(op, ["q", "w", "z", "wz"], ["sums"], **({"pads": [1, 1, 1, 1]} if is_image else {})),
        make("Cast", ["sums"], ["c"], to=onnx.TensorProto.FLOAT),
        make("Mul", ["s", "ws"], ["both"]),
        make("Mul", ["c", "both"], ["y"]),
    ]
    model = onnx_graph(nodes, ("float", shape), held)
    x = np.random.default_rng(1).standard_normal(shape).astype("f4")
    np.testing.assert_array_equal(np.asarray(compiled(model)(x)), tw.compile(model)(x))


@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 128), ("uint8", 3), ("int8", 0)])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_of_onnx(dtype: str, zero: int, groups: int) -> None:
    """Weights of any zero point; some take it in."""
    onnx = pytest.importorskip("onnx")
    held = {"w": stored(dtype, 32, 16, 3, 3), "xz": np.array(9, "uint8")}
    held["wz"] = np.array(zero, dtype)
    attrs = {"pads": [1, 1, 1, 1], "group": groups}
    node = onnx.helper.make_node("ConvInteger", ["x", "w", "xz", "wz"], ["y"], **attrs)
    shape = (1, 16 * groups, 9, 7)
    model = onnx_graph([node], ("uint8", shape), held)
    (found,), (wanted,) = (
        m.run([stored("uint8", *shape)]) for m in (compiled(model), tw.compile(model))
    )
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


@pytest.mark.usefixtures("layouts")
def test_convolutions_of_tflite() -> None:
    w, bias = stored("int8", 32, 3, 3, 16), stored("int16", 32).astype("int32")
    scales = np.linspace(0.001, 0.01, 32).astype("float32")
    b = Writer()
    held = [b.constant(w, scale=scales), b.constant(bias, scale=np.float32(0.02) * scales)]
    given = b.input("int8", (1, 9, 9, 16), scale=np.float32(0.02), zero=-11)
    made = b.tensor("int8", (1, 5, 5, 32), scale=np.float32(0.9), zero=4)
    y = b.op("CONV_2D", [given, *held], made, version=3, padding=0, stride_w=2, stride_h=2)
    check_same(b.model([y]), [stored("int8", 1, 9, 9, 16)], 1)


def copies(zero: int, target: str) -> int:
    """Asynchronous copies in the code of a padded convolution of bytes with a zero point."""
    q = Quantized(31)
    image = q.bytes(q.b.input("x", "f32", (16, 64, 40, 40)), 0.03, zero, "uint8")
    made = q.b.conv(image, q.weight(64, 64, 3, 3), pads=(1, 1, 1, 1))
    q.b.output(q.bytes(made, 0.05, zero, "uint8"))
    model: Any = tw.compile(q.b.build(), target)
    (kernel,) = (k for k in model.kernels if "conv_last" in k)
    s = RULES_BY_ADDRESS.schedule(model.ir(kernel), model.target)
    return assemble(s.function, model.target).count("cp.async.cg.shared.global")


def test_zero_points_around_an_image_do_not_hold_up_copies() -> None:
    """Pixels are copied asynchronously where they are inside, others are written."""
    target = "cuda -arch=sm_90a"
    assert copies(120, target) == copies(0, target) > 0


@pytest.mark.usefixtures("layouts")
@pytest.mark.parametrize("channels", [2, 3])
def test_few_channels_and_their_windows_fill_instructions(channels: int) -> None:
    q = Quantized(32)
    image = q.bytes(q.b.input("x", "f32", (1, channels, 20, 20)), 0.03, 110, "uint8")
    made = q.b.conv(image, q.weight(16, channels, 5, 5), strides=(2, 2), pads=(2, 2, 2, 2))
    q.b.output(made)
    graph, x = q.b.build(), q.w.image(1, channels, 20, 20)
    model = compiled(graph)
    assert len(instructions(model)) == 1
    (found,), (wanted,) = model.run([x]), tw.compile(graph).run([x])
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), atol=1e-4)
