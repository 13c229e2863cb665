"""Convolutions of bfloat16 and bytes: how far from float32, by what code, what is stored."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.codegen.emulation import run_emulated
from tests.graph.harness import check
from tilewright.compile import graph_passes
from tilewright.graph import (
    Builder,
    KernelTable,
    Module,
    PassContext,
    evaluate,
    kernel_bindings,
    run_passes,
)
from tilewright.graph.precision.words import precision_text
from tilewright.ir import Buffer, Function, interpret
from tilewright.kernels.levels import kernel_levels
from tilewright.kernels.pipeline import scheduled
from tilewright.schedule import RULES_BY_ADDRESS
from tilewright.support.errors import UserError

AMX, VECTORS, VNNI, ARM, HERE = (
    tw.Target.of(f"llvm -mcpu={name}")
    for name in ("sapphirerapids", "cooperlake", "cascadelake", "neoverse-v1", "neoverse-n1")
)
#: Multiplications of floats one by one.
PLAIN = re.compile(r"\b(?:vfmadd\w+|vmulps|fmla)\b")


def _values(*shape: int) -> Any:
    depth = max(1, int(np.prod(shape[1:])))
    generator = np.random.default_rng(sum(shape))
    return (generator.standard_normal(shape) / np.sqrt(depth)).astype("f4")


def _conv(channels: int, outputs: int, kernel: int, *size: Any, **attrs: Any) -> Module:
    b = Builder()
    sizes = [b.dim(s) if isinstance(s, str) else s for s in size]
    x = b.input("x", "f32", (sizes[0], channels, *sizes[1:]))
    rank = len(size) - 1
    weight = _values(outputs, channels // attrs.get("groups", 1), *[kernel] * rank)
    pads = [kernel // 2] * (2 * rank)
    b.output(b.relu(b.conv(x, weight, _values(outputs, 1)[:, 0], pads=pads, **attrs)))
    return b.build()


def _fused(module: Module, target: tw.Target, precision: str = "bf16") -> Module:
    with PassContext(precision=precision):
        return run_passes(module, graph_passes(target))


def _told(module: Module, target: tw.Target, precision: str = "bf16") -> str:
    with PassContext(precision=precision):
        return precision_text(_fused(module, target, precision))


def _kernels(module: Module, target: tw.Target, precision: str = "bf16") -> list[Function]:
    """The kernels of convolutions."""
    bindings = kernel_bindings(_fused(module, target, precision).main)
    made = [KernelTable()(b).function for b in bindings]
    return [f for f in made if "conv" in f.name]


CASES = {
    "3x3": _conv(64, 64, 3, 1, 9, 8),
    "1x1 of a batch": _conv(32, 64, 1, 2, 7, 9),
    "strided": _conv(64, 32, 3, 1, 9, 8, strides=[2, 2]),
    "odd channels": _conv(48, 40, 3, 1, 6, 6, dilations=[2, 2]),
    "a line": _conv(64, 64, 3, 1, 40),
    "a volume": _conv(32, 32, 3, 1, 3, 4, 5),
}


@pytest.mark.parametrize("precision", ["bf16", "int8-dynamic"])
@pytest.mark.parametrize("module", list(CASES.values()), ids=list(CASES))
def test_close_to_float32(module: Module, precision: str) -> None:
    x = _values(*module.main.params[0].tensor.static_shape) * 10
    (want,), (got,) = evaluate(module, [x]), evaluate(_fused(module, AMX, precision), [x])
    assert got.dtype == np.float32
    assert 0 < np.abs(got - want).max() / np.abs(want).max() < 0.02


# ---- instructions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "precision", "target", "instruction"),
    [
        *((case, "bf16", AMX, "tdpbf16ps") for case in ("3x3", "1x1 of a batch", "odd channels")),
        *((case, "bf16", VECTORS, "vdpbf16ps") for case in ("strided", "a line")),
        ("strided", "int8-dynamic", AMX, "tdpbssd"),
        ("odd channels", "int8-dynamic", VNNI, "vpdpbusd"),
    ],
)
def test_emulated(
    case: str,
    precision: str,
    target: tw.Target,
    instruction: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (kernel,) = _kernels(CASES[case], target, precision)
    gathered = RULES_BY_ADDRESS.schedule(kernel, target)
    module = tw.build(gathered, target)
    assert instruction in module.asm
    assert precision != "bf16" or not PLAIN.search(module.asm)
    arrays, own = _arrays(kernel), _arrays(gathered.function)
    tw.build(kernel)(*arrays)
    run_emulated(module, monkeypatch, *own)
    _compare(own[-1], arrays[-1])


def _compare(got: Any, want: Any) -> None:
    """Sums of the same products, in another order and shape."""
    tolerance = 1e-6 * float(np.abs(want).max())
    np.testing.assert_allclose(got.ravel(), want.ravel(), rtol=1e-4, atol=tolerance)


def _arrays(kernel: Function) -> list[Any]:
    """Operands and room for the results, the same elements whatever the shapes."""
    buffers = [p for p in kernel.params if isinstance(p, Buffer)]
    generator = np.random.default_rng(1)
    sizes = [tuple(int(d.value) for d in b.shape) for b in buffers]  # type: ignore[attr-defined]
    pairs = zip(buffers, sizes, strict=True)
    return [(9 * generator.standard_normal(n)).astype(b.dtype.numpy) for b, n in pairs]


def test_interpreted_by_squares() -> None:
    (kernel,) = _kernels(_conv(16, 16, 1, 1, 4, 4), ARM)
    made = scheduled(kernel, ARM)
    assert "bfmmla" in str(made)
    arrays, own = _arrays(kernel), _arrays(made)
    tw.build(kernel)(*arrays)
    interpret(made, *own)
    _compare(own[-1], arrays[-1])


def test_any_number_of_images() -> None:
    (kernel,) = _kernels(_conv(64, 64, 3, "n", 12, 12), AMX)
    assembly = kernel_levels(kernel, AMX).asm
    assert "tdpbf16ps" in assembly and not PLAIN.search(assembly)


# ---- what is stored, and what stays -------------------------------------------------------------


def _residual() -> Module:
    """Blocks of three convolutions beside which their input is added."""
    b = Builder()
    x = b.input("x", "f32", (1, 64, 8, 8))
    for _ in range(2):
        inner = b.relu(b.conv(x, _values(32, 64, 1, 1), _values(32, 1)[:, 0]))
        inner = b.relu(b.conv(inner, _values(32, 32, 3, 3), pads=[1] * 4))
        x = b.relu(b.conv(inner, _values(64, 32, 1, 1)) + x)
    b.output(b.mean(x, axes=[2, 3]))
    return b.build()


def test_images_between_convolutions_are_bfloat16() -> None:
    module = _residual()
    fused = _fused(module, AMX)
    stored = [v.dtype.name for b in kernel_bindings(fused.main) for v in b.outputs]
    # All but the last image, which no convolution reads, and its mean.
    assert stored == ["bfloat16"] * 6 + ["float32"] * 2
    x = _values(1, 64, 8, 8) * 8
    (want,), (got,) = evaluate(module, [x]), evaluate(fused, [x])
    assert np.abs(got - want).max() / np.abs(want).max() < 0.02


@pytest.mark.parametrize(
    "module",
    [
        _conv(3, 64, 3, 1, 16, 16),
        _conv(32, 32, 3, 1, 16, 16, groups=32),
        _conv(64, 64, 3, 1, 3, 3),
        _conv(64, 64, 3, 1, "h", "w"),
    ],
    ids=["few channels", "groups", "few pixels", "any size"],
)
def test_what_stays_in_float32(module: Module) -> None:
    assert _told(module, AMX).startswith("bf16 (products: float32 ×")


def test_machines_without_the_instruction_stay_in_float32() -> None:
    assert _told(CASES["1x1 of a batch"], HERE) == "bf16 (products: float32 × 1)"
    assert _told(CASES["1x1 of a batch"], AMX) == "bf16 (products: bfloat16 × 1)"
    plain = tw.Target.of("llvm -mcpu=haswell")
    assert _told(CASES["3x3"], plain, "int8-dynamic") == "int8-dynamic (products: float32 × 1)"


# ---- bytes --------------------------------------------------------------------------------------


def test_bytes_natively() -> None:
    module, x = _residual(), _values(1, 64, 8, 8) * 8
    model = tw.compile(module, precision="int8-dynamic")
    (got,), (want,) = model.run([x]), evaluate(module, [x])
    assert np.abs(got - want).max() / np.abs(want).max() < 0.03
    if tw.Target.of("llvm").has_byte_products:
        # What follows a relu cannot be negative.
        assert model.precision == "int8-dynamic (products: uint8 × 5, int8 × 1)"
        (same,) = evaluate(_fused(module, tw.Target.of("llvm"), "int8-dynamic"), [x])
        np.testing.assert_allclose(got, same, rtol=1e-3, atol=1e-3)


def test_convolutions_of_few_products_stay_in_float32() -> None:
    large, asked = _conv(64, 64, 3, 1, 28, 28), "int8-dynamic"
    assert _told(large, HERE, asked) == "int8-dynamic (products: float32 × 1)"
    assert _told(large, AMX, asked) == "int8-dynamic (products: int8 × 1)"
    strided = _conv(64, 64, 3, 1, 56, 56, strides=[2, 2])
    assert _told(strided, HERE, asked) == "int8-dynamic (products: int8 × 1)"


def test_convolutions_that_no_pass_transforms_are_bytes() -> None:
    large, asked = _conv(64, 64, 3, 1, 28, 28), "int8-dynamic"
    with PassContext(precision=asked, disabled_passes={"winograd"}):
        fused = run_passes(large, graph_passes(HERE))
        assert precision_text(fused) == "int8-dynamic (products: int8 × 1)"


def test_bytes_are_dot_products() -> None:
    (kernel,) = _kernels(CASES["3x3"], HERE, "int8-dynamic")
    assert "sdot" in kernel_levels(kernel, HERE).asm


@pytest.mark.parametrize("image", [np.zeros((1, 32, 4, 5), "f4"), np.full((1, 32, 4, 5), 1e-38)])
def test_images_that_are_zero_or_tiny(image: Any) -> None:
    module = _conv(32, 32, 1, 1, 4, 5)
    (got,) = evaluate(_fused(module, HERE, "int8-dynamic"), [image.astype("f4")])
    np.testing.assert_allclose(got, evaluate(module, [image.astype("f4")])[0], atol=1e-30)


def test_to_bytes_is_what_its_reference_says() -> None:
    x = _values(2, 3, 4, 5) * 100
    for dtype in ("int8", "uint8"):
        check("to_bytes", [x, np.array([[[[9.0]]], [[[2.0]]]], "f4")], dtype=dtype)
    with pytest.raises(UserError, match="gives int8 or uint8, not i16"):
        Builder().to_bytes(x, np.float32(1), dtype="int16")
