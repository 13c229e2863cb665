"""Products in bytes and in bfloat16: how far from float32, by what code, and what stays."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.codegen.emulation import run_anywhere
from tests.graph.harness import check
from tilewright.compile import graph_passes
from tilewright.graph import (
    Binding,
    Builder,
    Call,
    KernelTable,
    Module,
    PassContext,
    Step,
    evaluate,
    kernel_bindings,
    run_passes,
)
from tilewright.graph.passes import dead_code, widen_images
from tilewright.kernels.levels import kernel_levels
from tilewright.models.native import NativeModel
from tilewright.support.errors import UserError
from tilewright.target import Target

Net = tuple[Module, dict[str, Any]]


def _weights(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _dense(rows: int, depth: int, columns: int, *batch: int) -> Net:
    b = Builder()
    x = b.input("x", "float32", (*batch, rows, depth))
    hidden = b.relu(b.dense(x, _weights(columns, depth), _weights(columns, seed=1)))
    b.output(b.matmul(hidden, _weights(columns, 33, seed=2)))
    return b.build(), {"x": _weights(*batch, rows, depth, seed=3)}


def _gemm(rows: int, depth: int, columns: int) -> Net:
    b = Builder()
    x = b.input("x", "float32", (rows, depth))
    addend = _weights(columns, seed=1)
    b.output(b.gemm(x, _weights(depth, columns), addend, alpha=0.5, beta=2.0))
    return b.build(), {"x": _weights(rows, depth, seed=3)}


def _recurrent(name: str, hidden: int, *batch: int, direction: str = "forward") -> Net:
    gates, d = {"lstm": 4, "gru": 3, "rnn": 1}[name], 2 if direction == "bidirectional" else 1
    b = Builder()
    x = b.input("x", "float32", (6, *batch, 40))
    weights = (0.1 * _weights(d, gates * hidden, n, seed=n) for n in (40, hidden))
    b.output(b.emit(name, x, *weights, direction=direction)[0])
    return b.build(), {"x": _weights(6, *batch, 40, seed=3)}


def _error(got: Any, want: Any) -> float:
    return float(np.abs(got - want).max() / np.abs(want).max())


@pytest.mark.parametrize(
    "net",
    [
        _dense(1, 64, 48),
        _dense(7, 65, 31),
        _dense(19, 130, 50),
        _dense(5, 40, 33, 3),
        _dense(16, 64, 64, 2),
        _gemm(17, 67, 45),
    ],
    ids=["row", "few rows", "odd", "batch", "whole blocks", "gemm"],
)
@pytest.mark.parametrize("opt_level", [0, 3])
def test_bytes_are_close_to_float32(net: Net, opt_level: int) -> None:
    graph, inputs = net
    (want,) = tw.graph.evaluate(graph, inputs)
    model = tw.compile(graph, opt_level=opt_level, precision="int8-dynamic")
    (got,) = model.run(inputs)
    assert "int8" in model.precision and got.dtype == np.float32
    assert 0 < _error(got, want) < 0.02


@pytest.mark.parametrize(
    "net",
    [
        _recurrent("lstm", 33, 3, direction="bidirectional"),
        _recurrent("gru", 48, 2),
        _recurrent("rnn", 64, 1),
    ],
    ids=["lstm", "gru", "rnn"],
)
def test_states_in_bytes_are_close_to_float32(net: Net) -> None:
    graph, inputs = net
    (want,) = tw.graph.evaluate(graph, inputs)
    model = tw.compile(graph, precision="int8-dynamic")
    assert model.precision == "int8-dynamic (products: int8 × 2)"
    assert 0 < _error(model.run(inputs)[0], want) < 0.03


def _passed(graph: Module, precision: str, target: str = "llvm") -> Module:
    with PassContext(precision=precision):
        steps = graph_passes(Target.of(target))
        return run_passes(graph, [step for step in steps if step.name != "fuse"])


def _names(graph: Module) -> list[str]:
    return [b.expr.op.name for b in graph.main.body if isinstance(b.expr, Call)]


def _names_of(binding: Binding) -> str:
    return binding.expr.op.name if isinstance(binding.expr, Call) else ""


def test_native_code_is_what_the_graph_says() -> None:
    graph, inputs = _dense(19, 130, 50)
    (want,) = tw.graph.evaluate(_passed(graph, "int8-dynamic"), inputs)
    (got,) = tw.compile(graph, precision="int8-dynamic").run(inputs)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_products_of_the_same_rows_share_their_bytes() -> None:
    b = Builder()
    x = b.input("x", "float32", (4, 64))
    b.output(b.matmul(x, _weights(64, 40)), b.relu(b.matmul(x, _weights(64, 30))))
    with PassContext(precision="int8-dynamic"):
        made = tw.graph.passes.narrow_products(Target.of("llvm"))(b.build())
    assert _names(made).count("quantize_rows") == 1
    assert _names(made).count("matmul_integer") == 2


def test_weights_take_a_quarter_of_the_memory() -> None:
    graph, _ = _dense(16, 256, 256)
    full, bytes_ = (
        tw.compile(graph, precision=p).as_build().memory["constants"]
        for p in ("float32", "int8-dynamic")
    )
    # Without products of bytes, weights are multiplied by pairs of 16 bits.
    assert bytes_ < (0.3 if tw.Target.of("llvm").has_byte_products else 0.55) * full


# ---- what is special ----------------------------------------------------------------------------


def test_rows_that_are_zero_constant_or_tiny() -> None:
    graph, inputs = _dense(6, 64, 48)
    inputs["x"][0] = 0
    inputs["x"][1] = 3.5
    inputs["x"][2] = 1e-38
    inputs["x"][3] *= 1e-20
    inputs["x"][4] *= 1e30
    (want,) = tw.graph.evaluate(graph, inputs)
    (got,) = tw.compile(graph, precision="int8-dynamic").run(inputs)
    for a, b in zip(got, want, strict=True):
        assert np.isfinite(a).all() and _error(a, b) < 0.03


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_row(number: float) -> None:
    b = Builder()
    x = b.input("x", "float32", (5, 64))
    b.output(b.matmul(x, _weights(64, 48)))
    array = _weights(5, 64, seed=3)
    array[2, 7] = number
    (got,) = tw.compile(b.build(), precision="int8-dynamic").run({"x": array})
    assert not np.isfinite(got[2]).any()
    assert np.isfinite(np.delete(got, 2, axis=0)).all()


def test_no_rows_at_all() -> None:
    b = Builder()
    x = b.input("x", "float32", (b.dim("n"), 64))
    b.output(b.matmul(x, _weights(64, 48)))
    model = tw.compile(b.build(), precision="int8-dynamic")
    assert model.run({"x": _weights(0, 64)})[0].shape == (0, 48)
    array = _weights(3, 64, seed=3)
    assert _error(model.run({"x": array})[0], array @ _weights(64, 48)) < 0.02


def test_weights_that_are_not_finite_stay_as_they_are() -> None:
    weights = _weights(64, 48)
    weights[3, 4] = np.inf
    b = Builder()
    b.output(b.matmul(b.input("x", "float32", (4, 64)), weights))
    assert "matmul" in _names(_passed(b.build(), "int8-dynamic"))


def test_products_of_two_computed_operands_stay_in_float32() -> None:
    b = Builder()
    x = b.input("x", "float32", (40, 40))
    b.output(b.matmul(x, x))
    model = tw.compile(b.build(), precision="int8-dynamic")
    assert model.precision == "int8-dynamic (products: float32 × 1)"


def test_quantize_rows_is_what_its_reference_says() -> None:
    array = _weights(3, 5, 37)
    array[0, 0] = 0
    check("quantize_rows", [array])


# ---- bfloat16 -----------------------------------------------------------------------------------

_WITH_BF16 = "llvm -mcpu=sapphirerapids"


@pytest.mark.parametrize("net", [_dense(19, 130, 50), _dense(5, 40, 33, 3), _gemm(17, 67, 45)])
def test_bfloat16_is_close_to_float32(net: Net) -> None:
    graph, inputs = net
    (want,) = tw.graph.evaluate(graph, inputs)
    (got,) = tw.graph.evaluate(_passed(graph, "bf16", _WITH_BF16), inputs)
    assert got.dtype == np.float32
    assert 0 < _error(got, want) < 0.01


def test_computed_factors_are_rounded_once() -> None:
    b = Builder()
    x = b.input("x", "float32", (20, 20))
    b.output(b.softmax(b.matmul(x, x, transpose_b=True)), b.matmul(x, _weights(20, 20)))
    names = _names(_passed(b.build(), "bf16", _WITH_BF16))
    assert names.count("cast") == 1 and names.count("matmul") == 2


def test_few_rows_of_two_computed_factors_stay_in_float32() -> None:
    b = Builder()
    x = b.input("x", "float32", (3, 40))
    b.output(b.matmul(x, x, transpose_b=True))
    assert "cast" not in _names(_passed(b.build(), "bf16", _WITH_BF16))


def test_weights_take_half_the_memory() -> None:
    graph, _ = _dense(16, 256, 256)
    full, half = (
        tw.compile(graph, _WITH_BF16, precision=p).as_build().memory["constants"]
        for p in ("float32", "bf16")
    )
    assert half < 0.6 * full


def test_a_machine_that_gains_nothing_says_so() -> None:
    graph, _ = _dense(4, 64, 48)
    model = tw.compile(graph, "llvm -mcpu=neoverse-n1", precision="bf16")
    assert model.precision == "bf16 (products: float32 × 2)"


# ---- instructions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "target", "rows", "instruction"),
    [
        ("int8-dynamic", "cascadelake", 64, "vpdpbusd"),
        ("int8-dynamic", "cascadelake", 3, "vpdpbusd"),
        ("int8-dynamic", "alderlake", "n", "vpdpbusd"),
        ("int8-dynamic", "sapphirerapids", 64, "tdpbssd"),
        ("int8-dynamic", "neoverse-n1", 1, "sdot"),
        ("int8-dynamic", "neoverse-n1", "n", "sdot"),
        ("int8-dynamic", "neoverse-v1", 64, "smmla"),
        ("bf16", "cooperlake", 2, "vdpbf16ps"),
        ("bf16", "sapphirerapids", 64, "tdpbf16ps"),
        ("bf16", "neoverse-v1", 64, "bfmmla"),
        ("bf16", "neoverse-v1", "n", "bfdot"),
    ],
)
def test_products_are_instructions(
    precision: str, target: str, rows: int | str, instruction: str
) -> None:
    b = Builder()
    size = b.dim(rows) if isinstance(rows, str) else rows
    b.output(b.dense(b.input("x", "float32", (size, 64)), _weights(48, 64), _weights(48)))
    model = tw.compile(b.build(), f"llvm -mcpu={target}", precision=precision)
    assert isinstance(model, NativeModel)
    (kernel,) = (k for k in model.kernels if "matmul" in k)
    assert instruction in kernel_levels(model.ir(kernel), model.target).asm


@pytest.mark.parametrize(
    ("target", "instruction"), [("neoverse-n1", "sdot"), ("cascadelake", "vpdpbusd")]
)
def test_states_are_multiplied_by_instructions(
    target: str, instruction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, _ = _recurrent("lstm", 32, 2, direction="bidirectional")
    with PassContext(precision="int8-dynamic"):
        fused = run_passes(graph, graph_passes(Target.of(f"llvm -mcpu={target}")))
    scan = next(b for b in kernel_bindings(fused.main) if _names_of(b) == "lstm_scan")
    module = tw.build(KernelTable()(scan).function, f"llvm -mcpu={target}")
    assert instruction in module.asm and not re.findall(r"\b(vpmulld|mla|mul)\sv", module.asm)
    call = scan.expr
    assert isinstance(call, Call)
    operands = [_weights(6, 2, 256), *(None if a is None else a.constant for a in call.args[1:])]
    results = [np.zeros(v.tensor.static_shape, np.float32) for v in scan.outputs]
    run_anywhere(module, monkeypatch, *(a for a in operands if a is not None), *results)
    for got, want in zip(results, call.op.evaluate(operands, call.attrs), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


# ---- asking for it ------------------------------------------------------------------------------


def test_there_is_no_such_precision() -> None:
    graph, _ = _gemm(4, 64, 48)
    with pytest.raises(UserError, match="there is no precision int4") as caught:
        tw.compile(graph, precision="int4")
    assert "bf16, float8 or int8-dynamic" in str(caught.value)


def test_a_saved_model_tells_its_precision(tmp_path: Path) -> None:
    graph, inputs = _gemm(17, 67, 45)
    model = tw.compile(graph, precision="int8-dynamic")
    model.save(tmp_path / "m.twm")
    loaded = tw.load(tmp_path / "m.twm")
    assert loaded.precision == model.precision == "int8-dynamic (products: int8 × 1)"
    assert model.precision in repr(loaded)
    np.testing.assert_array_equal(loaded.run(inputs)[0], model.run(inputs)[0])


def test_convolutions_of_halves_are_computed_in_float32() -> None:
    rng = np.random.default_rng(0)
    b = Builder("main")
    x = b.input("x", "f16", ("n", 16, 10, 10))
    weight = (rng.standard_normal((16, 16, 3, 3)) / 12).astype(np.float16)
    y = b.relu(b.conv(x, weight, pads=[1] * 4))
    z = b.max_pool(
        b.add(b.conv(y, weight, rng.standard_normal(16).astype(np.float16)), 1.0),
        kernel=[2, 2],
        strides=[2, 2],
    )
    b.output(z, b.matmul(z, rng.standard_normal((4, 5)).astype(np.float16)), b.cast(y, dtype="f32"))
    module = b.build()
    widened = run_passes(module, [Step(widen_images), Step(dead_code)])
    types = [(n.expr.op.name, str(n.outputs[0].dtype)) for n in widened.main.body]  # type: ignore[attr-defined]
    assert ("conv", "f16") not in types and ("max_pool", "f32") in types
    assert ("matmul", "f16") in types, "weights are read in half the time"
    assert [name for name, _ in types].count("cast") == 2, "at the beginning and at the end"
    image = rng.standard_normal((2, 16, 10, 10)).astype(np.float16)
    for got, want in zip(tw.compile(module).run([image]), evaluate(module, [image]), strict=True):
        np.testing.assert_allclose(got.astype("f4"), want.astype("f4"), rtol=2e-2, atol=2e-2)
