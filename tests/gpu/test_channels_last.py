"""Images with channels last on GPUs: what is computed so, what it costs, and that it is right."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.gpu.half_networks import NETWORKS, Weights
from tests.graph.harness import check
from tilewright.compile import graph_passes
from tilewright.graph import Builder, PassContext, PassVerifier, run_passes
from tilewright.graph import Module as Graph
from tilewright.graph.ir import all_graphs
from tilewright.target import Target
from tilewright.target.gpus import GPUS

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def free_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small images would not be worth one more kernel."""
    for name, gpu in GPUS.items():
        monkeypatch.setitem(GPUS, name, gpu._replace(launch_time=0.0))


def operators(graph: Graph, precision: str = "float16") -> Counter[str]:
    """How often each operator is there after all passes."""
    with PassContext(precision=precision, instruments=[PassVerifier()]):
        made = run_passes(graph, graph_passes(Target.of("simt")))
    calls = [b.expr for g in all_graphs(made.main) for b in g.body]
    return Counter(c.op.name for c in calls if hasattr(c, "op"))  # type: ignore[attr-defined]


def errors(graph: Graph, inputs: list[Array], precision: str) -> float:
    wanted = tw.compile(graph).run(inputs)
    found = tw.compile(graph, "simt", precision=precision).run(inputs)
    pairs = zip(found, wanted, strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


@pytest.mark.parametrize(("precision", "most"), [("float16", 4e-3), ("bf16", 4e-2)])
def test_a_network(precision: str, most: float) -> None:
    graph, inputs = NETWORKS["convolutional"]()
    assert errors(graph, inputs, precision) < most


def test_layouts_change_only_at_the_border() -> None:
    found = operators(NETWORKS["convolutional"]()[0])
    assert found["to_blocked"] == 1 and found["from_blocked"] == 1
    assert not found["conv"] and found["depthwise_blocked"] == 1
    # Two convolutions see one pixel at a time, and there is a product at the end.
    assert found["conv_last"] == 3 and found["matmul"] == 3


def test_float32_stays_plain() -> None:
    found = operators(NETWORKS["convolutional"]()[0], "float32")
    assert found["conv"] == 6 and not found["to_blocked"]


def image_network() -> tuple[Graph, list[Array]]:
    """Norms over channels, as ConvNeXt has them, and parts of channels."""
    w, b = Weights(20), Builder()
    x = b.input("x", "f32", (2, 8, 7, 5))
    y = b.conv(x, w(16, 8, 3, 3), w(16), pads=(1, 1, 1, 1))
    z = b.transpose(y, axes=(0, 2, 3, 1))
    z = b.layer_norm(z, w(16) + 1, w(16), axis=-1)
    z = b.dense(b.gelu(b.dense(z, w(32, 16), w(32))), w(16, 32), w(16))
    y = b.add(y, b.transpose(z, axes=(0, 3, 1, 2)))
    parts = [y[:, :6], y[:, 6:]]
    y = b.concat(b.relu(parts[1]), parts[0], axis=1)
    y = b.conv(y, w(12, 16, 3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    rows = b.transpose(b.reshape(y, shape=(2, 12, 12)), axes=(0, 2, 1))
    b.output(b.dense(rows, w(9, 12), w(9)))
    return b.build(), [w.image(2, 8, 7, 5)]


def test_transposes_that_bring_channels_last_are_views() -> None:
    graph, inputs = image_network()
    assert not operators(graph)["transpose"]
    assert errors(graph, inputs, "float16") < 1e-2


@pytest.mark.parametrize(("channels", "window"), [(1, 3), (3, 1), (7, 3), (12, 3)])
def test_any_number_of_channels(channels: int, window: int) -> None:
    w, b = Weights(21), Builder()
    x = b.input("x", "f32", (2, channels, 6, 5))
    pads = (window // 2,) * 4
    y = b.relu(b.conv(x, w(9, channels, window, window), w(9), pads=pads))
    b.output(b.mean(b.conv(y, w(11, 9, 1, 1), strides=(2, 2)), axes=(2, 3)))
    assert errors(b.build(), [w.image(2, channels, 6, 5)], "float16") < 4e-3


@pytest.mark.parametrize("rank", [1, 3])
def test_images_of_other_ranks(rank: int) -> None:
    w, b = Weights(22), Builder()
    x = b.input("x", "f32", (1, 8, *(6,) * rank))
    y = b.relu(b.conv(x, w(8, 8, *(3,) * rank), w(8), pads=(1,) * 2 * rank))
    b.output(b.max_pool(y, kernel=(2,) * rank, strides=(2,) * rank))
    assert errors(b.build(), [w.image(1, 8, *(6,) * rank)], "float16") < 4e-3


def test_models_of_float16() -> None:
    w, b = Weights(25), Builder()
    x = b.input("x", "f16", (1, 8, 6, 6))
    half = [a.astype(np.float16) for a in (w(16, 8, 3, 3), w(16), w(16, 1, 3, 3), w(16))]
    y = b.relu(b.conv(x, *half[:2], pads=(1, 1, 1, 1)))
    b.output(b.max_pool(b.conv(y, *half[2:], groups=16), kernel=(2, 2)))
    graph = b.build()
    found = operators(graph, "float32")
    assert found["conv_last"] == 1 and found["depthwise_blocked"] == 1
    assert errors(graph, [w.image(1, 8, 6, 6).astype(np.float16)], "float32") < 4e-3


def test_weights_that_are_computed_stay_plain() -> None:
    w, b = Weights(23), Builder()
    x, weight = b.input("x", "f32", (1, 8, 6, 6)), b.input("w", "f32", (8, 8, 3, 3))
    b.output(b.relu(b.conv(x, weight)))
    graph = b.build()
    assert operators(graph)["conv"] == 1
    assert errors(graph, [w.image(1, 8, 6, 6), w(8, 8, 3, 3)], "float16") < 4e-3


# ---- the operators ------------------------------------------------------------------------------


@pytest.mark.parametrize(("groups", "dtype"), [(1, "float32"), (4, None)])
def test_conv_last(groups: int, dtype: str | None) -> None:
    w = Weights(24)
    element = np.float32 if dtype is None else np.float16
    x, weight = (a.astype(element) for a in (w.image(2, 1, 7, 6, 8), w(12, 3, 2, 8 // groups)))
    attrs: dict[str, Any] = {"strides": (2, 1), "pads": (1, 0, 1, 1), "groups": groups}
    if dtype is not None:
        attrs["dtype"] = dtype
    check("conv_last", [x, weight, w(12)], symbolic=False, **attrs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrowed(dtype: str) -> None:
    numbers = [0, -0.0, 1, 1e-30, -1e5, 3.4e38, -3.4028235e38, 65504, 65519]
    infinite = [np.inf, -np.inf, np.nan]
    check("narrowed", [np.array([*numbers, *infinite], np.float32)], dtype=dtype)
