"""Models on microcontrollers: exported for bare metal, linked with our firmware, run under QEMU.

Answers are compared with those of the same model on this machine. `make test` takes a sample;
`make test-emulated` takes all processors.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.emulated.boards import BOARDS, FIRMWARE, needed_board
from tests.frontends.tflite.writer import Writer
from tests.network_cases import CASES, Case
from tilewright import te
from tilewright.cli.app import main
from tilewright.graph import Builder, evaluate
from tilewright.runtime import names_of
from tilewright.support.elf import ELF32, read_elf

Array = np.ndarray[Any, Any]

ALL = os.environ.get("TILEWRIGHT_EMULATE") == "all"
SAMPLE = ("cortex-m4", "rv32imc")


def numbers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def classifier() -> Any:
    b = Builder()
    x = b.input("x", "f32", (1, 3, 9, 7))
    image = b.relu(b.conv2d(x, numbers(5, 3, 3, 3), numbers(5, seed=1), pads=(1, 1, 1, 1)))
    flat = b.reshape(image, shape=(1, 5 * 9 * 7))
    b.output(b.softmax(b.matmul(flat, numbers(315, 11, seed=2) * np.float32(0.1))))
    return b.build()


@pytest.mark.parametrize("cpu", [c for c in BOARDS if ALL or c in SAMPLE])
def test_a_network_answers_as_it_does_here(cpu: str) -> None:
    board, graph = needed_board(cpu), classifier()
    x = numbers(1, 3, 9, 7, seed=5)
    run = board.run(tw.compile(graph, f"llvm -mcpu={cpu}"), [x])
    np.testing.assert_allclose(run.outputs[0], evaluate(graph, [x])[0], rtol=1e-4, atol=1e-6)
    assert run.instructions > 1000 and 0 < run.stack < 4096
    assert run.footprint.arena >= 5 * 9 * 7 * 4 and run.footprint.other_ram < 256


def test_quantized_products_of_onnx_are_in_bytes_where_floats_are_calls() -> None:
    board, b = needed_board("rv32imc"), Builder()
    x = b.input("x", "f32", (1, 8, 5, 5))
    scale, zero = np.float32(0.02), np.int8(3)
    image = b.dequantize(b.quantize(x, scale, zero), scale, zero)
    weights = np.random.default_rng(0).integers(-127, 128, (9, 8, 3, 3)).astype(np.int8)
    scales, zeros = np.linspace(0.01, 0.02, 9).astype(np.float32), np.zeros(9, np.int8)
    real = b.dequantize(weights, scales, zeros, axis=0)
    b.output(b.conv(image, real, numbers(9), pads=(1,) * 4))
    graph, given = b.build(), numbers(1, 8, 5, 5, seed=3)
    run = board.run(tw.compile(graph, "llvm -mcpu=rv32imc"), [given])
    np.testing.assert_allclose(run.outputs[0], evaluate(graph, [given])[0], rtol=1e-5, atol=1e-5)
    products = 9 * 8 * 9 * 25
    assert run.instructions < 40 * products, "a product of floats takes a hundred instructions"


def test_odd_values_come_through() -> None:
    board = needed_board("cortex-m4")
    b = Builder()
    x = b.input("x", "f32", (7,))
    b.output(b.relu(x), b.add(x, np.float32(1)))
    graph = b.build()
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 1e-40, 3.0, -3.0], np.float32)
    run = board.run(tw.compile(graph, "llvm -mcpu=cortex-m4", denormals="keep"), [values])
    for got, want in zip(run.outputs, evaluate(graph, [values]), strict=True):
        np.testing.assert_array_equal(got, want)


def _whole(case: Case) -> bool:
    """Whether all sizes are numbers once those of the inputs are."""
    return all(a.size for a in case.inputs)


@pytest.mark.skipif(not ALL, reason="`make test-emulated` runs it")
@pytest.mark.parametrize("case", [c for c in CASES if _whole(c)] if ALL else [], ids=str)
@pytest.mark.parametrize("cpu", list(BOARDS))
def test_networks(case: Case, cpu: str) -> None:
    board, graph = needed_board(cpu), case.graph()
    shapes = {p.name: a.shape for p, a in zip(graph.main.params, case.inputs, strict=True)}
    try:
        model = tw.compile(graph, f"llvm -mcpu={cpu}", shapes=shapes)
        run = board.run(model, case.inputs)
    except tw.UserError as error:
        pytest.skip(str(error))
    for got, want in zip(run.outputs, evaluate(graph, list(case.inputs)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


# ---- products of bytes ---------------------------------------------------------------------------


def keywords() -> bytes:
    """A small quantized network: a convolution, one of each channel by itself, a dense layer."""
    w, rng = Writer(), np.random.default_rng(1)

    def product(name: str, x: int, shape: list[int], out: list[int], **options: Any) -> int:
        axis = 3 if name == "DEPTHWISE_CONV_2D" else 0
        many = shape[axis] if name != "FULLY_CONNECTED" else 1
        scales = rng.uniform(0.001, 0.003, many).astype(np.float32)
        array = rng.integers(-127, 128, shape).astype(np.int8)
        weights = w.constant(array, scale=scales, axis=axis)
        bias = rng.integers(-900, 900, shape[axis]).astype(np.int32)
        made = w.tensor("int8", out, scale=0.05, zero=-128)
        operands = [x, weights, w.constant(bias, scale=0.05 * scales)]
        return w.op(name, operands, made, version=3, activation=1, **options)

    steps: dict[str, Any] = {"stride_w": 1, "stride_h": 1, "padding": 0}
    x = w.input("int8", [1, 9, 7, 3], scale=0.05, zero=-3)
    x = product("CONV_2D", x, [18, 3, 3, 3], [1, 9, 7, 18], **steps)
    x = product("DEPTHWISE_CONV_2D", x, [1, 3, 3, 18], [1, 9, 7, 18], multiplier=1, **steps)
    x = product("CONV_2D", x, [5, 1, 1, 18], [1, 9, 7, 5], **steps)
    flat = w.tensor("int8", [1, 315], scale=0.05, zero=-128)
    x = w.op("RESHAPE", [x, w.constant(np.array([1, 315], np.int32))], flat)
    return w.model([product("FULLY_CONNECTED", x, [11, 315], [1, 11])])


@pytest.mark.parametrize("cpu", [c for c in BOARDS if ALL or c in ("cortex-m4", "cortex-m55")])
def test_quantized_networks_give_the_same_bytes(cpu: str) -> None:
    board, data = needed_board(cpu), keywords()
    x = np.random.default_rng(2).integers(-128, 128, (1, 9, 7, 3)).astype(np.int8)
    run = board.run(tw.compile(data, f"llvm -mcpu={cpu}"), [x])
    np.testing.assert_array_equal(run.outputs[0], tw.compile(data, opt_level=0).run([x])[0])


@pytest.mark.parametrize(("cpu", "instruction"), [("cortex-m4", "smlad"), ("cortex-m55", "vmla")])
def test_products_of_bytes_use_the_instructions(cpu: str, instruction: str) -> None:
    k = te.reduce_axis(64, name="k")
    a, b = te.placeholder((32, 64), "int8", name="A"), te.placeholder((64, 32), "int8", name="B")

    def element(i: Any, j: Any) -> Any:
        return te.sum(te.cast(a[i, k], "int32") * te.cast(b[k, j], "int32"), axis=k)

    c = te.compute((32, 32), element, name="C")
    assert instruction in tw.build(te.function([a, b], [c], name="f"), f"llvm -mcpu={cpu}").asm


# ---- what is written ----------------------------------------------------------------------------


def test_the_object_stands_alone(tmp_path: Path) -> None:
    made = tw.compile(classifier(), "llvm -mcpu=cortex-m4").export_micro(tmp_path / "net")
    code = (tmp_path / "net" / "net.o").read_bytes()
    file = read_elf(code)
    assert file.layout is ELF32 and names_of(code).architecture == "arm"
    assert names_of(code).defined == {"net_run"} and not names_of(code).needed
    assert made.needs == () and made.flash == made.code + made.constants
    header = (tmp_path / "net" / "net.h").read_text()
    assert f"#define NET_ARENA_BYTES {made.arena}" in header
    assert "int32_t net_run(const float *input_0, float *output_0);" in header
    assert "it calls nothing" in (tmp_path / "net" / "net.txt").read_text().lower()


def test_constants_are_read_only(tmp_path: Path) -> None:
    tw.compile(classifier(), "llvm -mcpu=cortex-m55").export_micro(tmp_path, name="net")
    file = read_elf((tmp_path / "net.o").read_bytes())
    params = next(s for s in file.sections if s.name == ".rodata.params")
    assert params.flags == 2 and params.size >= 5 * 27 * 4
    assert not any(s.name.startswith(".data") for s in file.sections)


def test_the_command_tells_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, folder = tmp_path / "net.onnx", tmp_path / "out"
    onnx = pytest.importorskip("onnx")
    text = "<ir_version: 8, opset_import: ['' : 17]> net (float[2, 3] x) => (float[2, 3] y) {"
    onnx.save(onnx.parser.parse_model(text.replace("'", '"') + "y = Exp(x) }"), file)
    command = ["export", str(file), "--format", "micro", "--target", "llvm -mcpu=rv32imc"]
    assert main([*command, "-o", str(folder)]) == 0
    told = capsys.readouterr().out
    assert "flash" in told and "arena" in told
    assert (tmp_path / "out" / "out.h").exists()


@pytest.mark.parametrize(
    ("shape", "target", "message"),
    [
        (("n", 4), "llvm -mcpu=cortex-m4", "known only when it runs"),
        ((2, 4), "llvm", "it was compiled for"),
    ],
)
def test_what_cannot_be_is_refused(
    shape: tuple[Any, ...], target: str, message: str, tmp_path: Path
) -> None:
    b = Builder()
    b.output(b.relu(b.input("x", "f32", shape)))
    with pytest.raises(tw.UserError, match=message):
        tw.compile(b.build(), target).export_micro(tmp_path / "net")


def test_the_firmware_is_there() -> None:
    used = {b.start for b in BOARDS.values()} | {b.script for b in BOARDS.values()}
    assert all((FIRMWARE / name).exists() for name in used)


@pytest.mark.parametrize("triple", ["armebv7-none-eabi", "aarch64_be-linux-gnu", "mips-linux-gnu"])
def test_big_endian_machines_are_refused(triple: str) -> None:
    with pytest.raises(tw.UserError, match="is big-endian"):
        tw.Target.of(f"llvm -mtriple={triple}")
