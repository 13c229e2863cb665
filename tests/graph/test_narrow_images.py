"""Convolutions of bfloat16: how far from float32, by what code, what is stored between them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.codegen.emulation import run_emulated
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
from tilewright.graph.precision import precision_text
from tilewright.ir import Buffer, Function, interpret
from tilewright.kernels.compiled import default_schedule
from tilewright.kernels.levels import kernel_levels
from tilewright.schedule import gather_rows, merge_rows

AMX, VECTORS, ARM = (
    tw.Target.of(f"llvm -mcpu={name}") for name in ("sapphirerapids", "cooperlake", "neoverse-v1")
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


def _fused(module: Module, target: tw.Target) -> Module:
    with PassContext(precision="bf16"):
        return run_passes(module, graph_passes(target))


def _told(module: Module, target: tw.Target) -> str:
    with PassContext(precision="bf16"):
        return precision_text(_fused(module, target))


def _kernels(module: Module, target: tw.Target) -> list[Function]:
    """The kernels of convolutions."""
    bindings = kernel_bindings(_fused(module, target).main)
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


@pytest.mark.parametrize("module", list(CASES.values()), ids=list(CASES))
def test_close_to_float32(module: Module) -> None:
    x = _values(*module.main.params[0].tensor.static_shape) * 10
    (want,), (got,) = evaluate(module, [x]), evaluate(_fused(module, AMX), [x])
    assert got.dtype == np.float32
    assert 0 < np.abs(got - want).max() / np.abs(want).max() < 0.01


# ---- instructions -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "target", "instruction"),
    [
        *((case, AMX, "tdpbf16ps") for case in ("3x3", "1x1 of a batch", "odd channels")),
        *((case, VECTORS, "vdpbf16ps") for case in ("strided", "a line")),
    ],
)
def test_emulated(
    case: str, target: tw.Target, instruction: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kernel,) = _kernels(CASES[case], target)
    gathered = gather_rows(merge_rows(kernel), target)
    module = tw.build(gathered, target)
    assert instruction in module.asm and not PLAIN.search(module.asm)
    arrays, own = _arrays(kernel), _arrays(gathered)
    tw.build(kernel)(*arrays)
    run_emulated(module, monkeypatch, *own)
    np.testing.assert_allclose(own[-1].ravel(), arrays[-1].ravel(), rtol=1e-4, atol=1e-4)


def _arrays(kernel: Function) -> list[Any]:
    """Operands and room for the results, the same elements whatever the shapes."""
    buffers = [p for p in kernel.params if isinstance(p, Buffer)]
    generator = np.random.default_rng(1)
    sizes = [tuple(int(d.value) for d in b.shape) for b in buffers]  # type: ignore[attr-defined]
    pairs = zip(buffers, sizes, strict=True)
    return [generator.standard_normal(n).astype(b.dtype.numpy) for b, n in pairs]


def test_interpreted_by_squares() -> None:
    (kernel,) = _kernels(_conv(16, 16, 1, 1, 4, 4), ARM)
    scheduled = default_schedule(kernel, ARM)
    assert "bfmmla" in str(scheduled)
    arrays, own = _arrays(kernel), _arrays(scheduled)
    tw.build(kernel)(*arrays)
    interpret(scheduled, *own)
    np.testing.assert_allclose(own[-1].ravel(), arrays[-1].ravel(), rtol=1e-4, atol=1e-4)


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
    here = tw.Target.of("llvm -mcpu=neoverse-n1")
    assert _told(CASES["1x1 of a batch"], here) == "bf16 (products: float32 × 1)"
    assert _told(CASES["1x1 of a batch"], AMX) == "bf16 (products: bfloat16 × 1)"
