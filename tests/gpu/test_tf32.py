"""Products of float32 by the first bits of its fractions on GPUs: which are, and how far off."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.gpu.half_networks import NETWORKS, Weights
from tests.gpu.test_bytes import compiled, instructions
from tilewright.graph import Builder
from tilewright.graph import Module as Graph
from tilewright.support.errors import UserError
from tilewright.target import Target
from tilewright.target.gpus import GPUS

Array = np.ndarray[Any, Any]


def product(rows: int = 40, depth: int = 64, columns: int = 48, **attrs: bool) -> Graph:
    w, b = Weights(1), Builder()
    b.output(b.matmul(b.input("x", "f32", (rows, depth)), w(depth, columns), **attrs))
    return b.build()


def computed(rows: int, depth: int, columns: int) -> Graph:
    """A product of two inputs, neither of which lies along the sum by columns."""
    b = Builder()
    b.output(b.matmul(b.input("x", "f32", (rows, depth)), b.input("y", "f32", (depth, columns))))
    return b.build()


@pytest.mark.parametrize("name", list(NETWORKS))
def test_networks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for gpu, figures in GPUS.items():
        monkeypatch.setitem(GPUS, gpu, figures._replace(launch_time=0.0))
    graph, inputs = NETWORKS[name]()
    model = compiled(graph, precision="tf32")
    assert "tf32 (products: float32" in model.precision
    assert all(".f32." in name for name in instructions(model))
    for a, b in zip(model.run(inputs), tw.compile(graph).run(inputs), strict=True):
        found, wanted = np.asarray(a), np.asarray(b)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, atol=5e-3 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("graph", "shapes"),
    [
        (product(), [(40, 64)]),
        (product(100, 96, 72), [(100, 96)]),
        (computed(40, 72, 56), [(40, 72), (72, 56)]),
        (computed(33, 65, 41), [(33, 65), (65, 41)]),
    ],
)
def test_products(graph: Graph, shapes: list[tuple[int, ...]]) -> None:
    w = Weights(2)
    inputs = [w.image(*shape) for shape in shapes]
    model = compiled(graph, precision="tf32")
    assert instructions(model)
    (found,), (wanted,) = (m.run(inputs) for m in (model, tw.compile(graph)))
    off = np.abs(np.asarray(found) - wanted).max() / np.abs(wanted).max()
    assert 1e-6 < off < 2e-3, "fewer bits, and ten of them"


def test_float32_stays_float32() -> None:
    assert not instructions(compiled(product(), precision="float32"))


def test_short_sums_keep_all_bits() -> None:
    """Such as positions times frequencies, which are angles."""
    b, w = Builder(), Weights(3)
    b.output(b.matmul(b.input("at", "f32", (64, 2)), w(2, 64)))
    x = w.image(64, 2) * 1000
    model = compiled(b.build(), precision="tf32")
    assert not instructions(model)
    (found,), (wanted,) = model.run([x]), tw.compile(b.build()).run([x])
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5)


def test_weights_lie_along_the_sum() -> None:
    """Then tiles of them are copied by vectors, and multiplied where they are."""
    model: Any = tw.compile(product(128, 768, 768), "cuda -arch=sm_90a", precision="tf32")
    text = "".join(o.decode("latin1") for o in model.program.objects)
    assert "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32" in text
    old: Any = tw.compile(product(128, 768, 768), "cuda -arch=sm_80", precision="tf32")
    text = "".join(o.decode("latin1") for o in old.program.objects)
    assert "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in text


def test_large_operands_are_brought_to_lie_along_the_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a kernel of its own: a tile would be copied element by element."""
    from tilewright.graph.passes import pad_operands

    monkeypatch.setattr(sys.modules[pad_operands.__module__], "_LEAST", 1)
    w = Weights(9)
    x, y = w.image(40, 72), w.image(72, 56)
    model = compiled(computed(40, 72, 56), precision="tf32")
    assert [name.split("_")[0] for name in model.kernels] == ["transpose", "matmul"]
    np.testing.assert_allclose(np.asarray(model.run([x, y])[0]), x @ y, atol=0.05)
    plain = compiled(computed(40, 72, 56), precision="float32")
    assert [name.split("_")[0] for name in plain.kernels] == ["matmul"]


def test_the_target_says_so_as_well(tmp_path: Path) -> None:
    model: Any = tw.compile(product(), "cuda -arch=sm_90a", precision="tf32")
    assert "-products=tf32" in str(model.target)
    assert Target.of(str(model.target)) == model.target
    assert model.target.machine == "cuda -arch=sm_90a -products=tf32", "records of tuning are apart"
    by_target = tw.compile(product(), "cuda -arch=sm_90a -products=tf32")
    assert by_target.precision == model.precision == "tf32 (products: float32 × 1)"
    executed = tw.compile(product(), "simt", precision="tf32")
    executed.save(tmp_path / "m.twm")
    assert tw.load(tmp_path / "m.twm").precision == model.precision


@pytest.mark.parametrize("target", ["llvm", "c", "cuda -arch=sm_75"])
def test_other_machines_have_no_tf32(target: str) -> None:
    with pytest.raises(UserError, match="precision tf32 is for GPUs since sm_80"):
        tw.compile(product(), target, precision="tf32")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("llvm -products=tf32", "option -products is about instructions of GPUs"),
        ("cuda -arch=sm_90a -products=bf16", "-products has no use for 'bf16'"),
    ],
)
def test_options_that_make_no_sense(target: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Target.of(target)


# ---- rounding -----------------------------------------------------------------------------------


def deep(layers: int) -> Graph:
    w, b = Weights(4), Builder()
    x = b.input("x", "f32", (1, 32, 6, 6))
    for _ in range(layers):
        x = b.relu(b.conv(x, w(32, 32, 3, 3) * 1.4, pads=(1, 1, 1, 1)))
    b.output(x)
    return b.build()


def test_deep_networks_do_not_shrink() -> None:
    """Instructions drop bits, which would make each factor smaller by 0.04 percent."""
    x, layers = Weights(5).image(1, 32, 6, 6), 12
    model = compiled(deep(layers), precision="tf32")
    assert instructions(model)
    found, wanted = np.asarray(model(x)), np.asarray(tw.compile(deep(layers))(x))
    assert abs(found.sum() / wanted.sum() - 1) < 1e-3
    np.testing.assert_allclose(found, wanted, atol=3e-3 * np.abs(wanted).max())


def has_first_bits(array: Any) -> bool:
    return not (np.asarray(array).view(np.uint32) & 0x1FFF).any()


def test_what_goes_out_is_not_rounded() -> None:
    w, b = Weights(6), Builder()
    x = b.relu(b.matmul(b.input("x", "f32", (40, 64)), w(64, 48)))
    b.output(x)
    b.output(b.matmul(x, w(48, 56)))
    model = compiled(b.build(), precision="tf32")
    outputs = model.run([w.image(40, 64)])
    assert not any(map(has_first_bits, outputs))


def test_what_is_moved_before_it_is_multiplied_was_rounded() -> None:
    """Where it was made: what only moves elements does nothing else."""
    w, b = Weights(7), Builder()
    x = b.relu(b.matmul(b.input("x", "f32", (40, 64)), w(64, 48)))
    b.output(b.matmul(b.transpose(x, axes=(1, 0)), w(40, 56)))
    b.output(b.add(b.softmax(x), w(48)))
    model = compiled(b.build(), precision="tf32")
    rounding = [name for name in model.kernels if "first_bits" in name]
    assert [name.startswith("matmul") for name in rounding] == [True]


def test_first_bits_is_what_its_reference_says() -> None:
    from tilewright.graph.ops.forms.first_bits import first_bits_reference

    rng = np.random.default_rng(8)
    x = rng.standard_normal(2000) * 10.0 ** rng.integers(-30, 30, 2000)
    edges = [0, -0.0, 1, 1 + 2.0**-11, 2.0**127, 3e38, np.inf, -np.inf, np.nan]
    values = np.array([*x, *edges], np.float32)
    b = Builder()
    b.output(b.emit("first_bits", b.input("x", "f32", values.shape)))
    for target in ("llvm", "simt"):
        made = tw.compile(b.build(), target)(values)
        np.testing.assert_array_equal(made, first_bits_reference(values))
    fine = np.abs(values) < 2.0**100
    assert has_first_bits(made[fine])
    assert (np.abs(made[fine] - values[fine]) <= 2.0**-11 * np.abs(values[fine])).all()
    np.testing.assert_array_equal(made[~fine], values[~fine])
