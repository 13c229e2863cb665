"""Half precision on GPUs: what is narrow, what must not be, and how far answers are off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.gpu.half_networks import NETWORKS, Weights
from tilewright.compile import graph_passes
from tilewright.graph import Builder, PassContext, PassVerifier, run_passes
from tilewright.graph import Module as Graph
from tilewright.graph.ir import all_graphs
from tilewright.graph.ir.types import TensorType
from tilewright.support.errors import UserError
from tilewright.target import Target

Array = np.ndarray[Any, Any]
#: How far answers of magnitude 1 may be off: half precision has 11 bits, bfloat16 8.
ERRORS = {"float32": 1e-5, "float16": 4e-3, "bf16": 4e-2}


def answers(graph: Graph, inputs: list[Array], target: str, precision: str) -> list[Array]:
    with PassContext(instruments=[PassVerifier()]):
        model = tw.compile(graph, target, precision=precision)
    return [np.asarray(a) for a in model.run(inputs)]


@pytest.mark.parametrize("precision", list(ERRORS))
@pytest.mark.parametrize("name", list(NETWORKS))
def test_networks(name: str, precision: str) -> None:
    graph, inputs = NETWORKS[name]()
    wanted = answers(graph, inputs, "llvm", "float32")
    found = answers(graph, inputs, "simt", precision)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype and np.isfinite(a).all()
        np.testing.assert_allclose(a, b, rtol=ERRORS[precision], atol=ERRORS[precision])


def test_models_say_what_their_products_are_in() -> None:
    graph, _ = NETWORKS["transformer"]()
    assert tw.compile(graph, "simt", precision="float16").precision == (
        "float16 (products: float16 × 12)"
    )


def test_processors_have_no_float16() -> None:
    graph, _ = NETWORKS["recurrent"]()
    with pytest.raises(UserError, match="precision float16 is for GPUs"):
        tw.compile(graph, precision="float16")


def test_bytes_on_gpus() -> None:
    w, b = Weights(4), Builder()
    b.output(b.dense(b.input("x", "f32", (6, 64)), w(40, 64), w(40)))
    graph, x = b.build(), w.image(6, 64)
    (wanted,) = answers(graph, [x], "llvm", "int8-dynamic")
    (found,) = answers(graph, [x], "simt", "int8-dynamic")
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


# ---- what is narrow -----------------------------------------------------------------------------


def narrowed_graph(graph: Graph, precision: str = "float16") -> Graph:
    with PassContext(precision=precision):
        return run_passes(graph, graph_passes(Target.of("simt")))


def stored(graph: Graph) -> list[TensorType]:
    """The types of the values between kernels."""
    types = [v.type for b in graph.main.body for v in b.outputs]
    return [t for t in types if isinstance(t, TensorType)]


def calls(graph: Graph, name: str) -> list[Any]:
    bodies = [b for g in all_graphs(graph.main) for b in g.body]
    return [b.expr for b in bodies if getattr(getattr(b.expr, "op", None), "name", "") == name]


def test_nothing_is_rounded_inside_of_kernels() -> None:
    graph = narrowed_graph(NETWORKS["convolutional"]()[0])
    made = {v for g in all_graphs(graph.main) for b in g.body for v in b.outputs}
    rounded = {b.outputs[0] for g in all_graphs(graph.main) for b in g.body if is_narrowing(b)}
    inside = [c.args[0] for c in calls(graph, "cast")]
    assert made and not rounded.intersection(inside)


def is_narrowing(binding: Any) -> bool:
    return getattr(getattr(binding.expr, "op", None), "name", "") == "narrowed"


def test_statistics_stay_wide() -> None:
    w, b = Weights(7), Builder()
    y = b.dense(b.input("x", "f32", (12, 64)), w(64, 64))
    b.output(b.div(y, b.mean(b.abs(y), axes=(1,), keepdims=True)))
    types = stored(narrowed_graph(b.build()))
    statistics = [t for t in types if t.static_shape == (12, 1)]
    assert statistics and {t.dtype.name for t in statistics} == {"float32"}
    assert "float16" in {t.dtype.name for t in types if t.static_shape == (12, 64)}


def test_masks_stay_wide() -> None:
    types = stored(narrowed_graph(NETWORKS["transformer"]()[0]))
    masks = [t for t in types if t.static_shape == (2, 1, 1, 12)]
    scores = [t for t in types if t.static_shape == (2, 4, 12, 12)]
    assert masks and {t.dtype.name for t in masks} == {"float32"}
    assert scores and {t.dtype.name for t in scores} == {"float16"}


def test_squares_are_not_stored_in_half_precision() -> None:
    """1000² is more than float16 holds, and the root of the mean square is not."""
    w, b = Weights(5), Builder()
    x = b.input("x", "f32", (4, 64))
    y = b.mul(b.dense(x, w(64, 64)), np.float32(1000))
    root = b.sqrt(b.add(b.mean(b.mul(y, y), axes=(1,), keepdims=True), np.float32(1e-12)))
    b.output(b.div(y, root))
    graph, image = b.build(), w.image(4, 64)
    (wanted,), (found,) = (
        answers(graph, [image], t, p) for t, p in (("llvm", "float32"), ("simt", "float16"))
    )
    np.testing.assert_allclose(found, wanted, rtol=4e-3, atol=4e-3)


def test_nothing_is_divided_by_an_epsilon_that_vanished() -> None:
    w, b = Weights(6), Builder()
    y = b.dense(b.input("x", "f32", (4, 32)), w(32, 32))
    variance = b.mean(b.mul(y, y), axes=(1,), keepdims=True)
    b.output(b.div(y, b.sqrt(b.add(variance, np.float32(1e-12)))))
    (found,) = answers(b.build(), [np.zeros((4, 32), np.float32)], "simt", "float16")
    np.testing.assert_array_equal(found, 0)


def test_what_is_too_large_becomes_the_greatest_number() -> None:
    w, b = Weights(7), Builder()
    y = b.dense(b.input("x", "f32", (2, 16)), w(16, 16))
    large = b.mul(b.exp(y), np.float32(1e8))
    b.output(b.transpose(b.softmax(b.transpose(large, axes=(1, 0))), axes=(1, 0)))
    (found,) = answers(b.build(), [w.image(2, 16)], "simt", "float16")
    assert np.isfinite(found).all()


def test_infinities_stay() -> None:
    w, b = Weights(8), Builder()
    y = b.dense(b.input("x", "f32", (2, 16)), w(8, 16))
    y = b.add(y, np.array([0, -np.inf, 0, np.inf, np.nan, 0, 1e30, -1e30], np.float32))
    b.output(b.transpose(y, axes=(1, 0)), b.softmax(y[:, :3]))
    found, _ = answers(b.build(), [w.image(2, 16)], "simt", "float16")
    assert (found[1] == -np.inf).all() and (found[3] == np.inf).all() and np.isnan(found[4]).all()
    np.testing.assert_array_equal(found[6:, 0], [65504, -65504])


def test_positions_times_frequencies_stay_wide() -> None:
    """Angles of some thousands cannot be rounded to half precision before their cosine."""
    w, b = Weights(9), Builder()
    at = b.cast(b.input("at", "i64", (1, 1, 6)), dtype="float32")
    angles = b.cos(
        b.matmul(b.constant(np.array([[[1.0], [0.1], [0.01], [0.001]]], np.float32)), at)
    )
    x = b.dense(b.input("x", "f32", (6, 4)), w(4, 4))
    b.output(b.mul(b.reshape(x, shape=(1, 4, 6)), angles))
    inputs = [np.array([[[0, 1, 2047, 4099, 10001, 30011]]]), w.image(6, 4)]
    graph = b.build()
    (wanted,) = answers(graph, inputs, "llvm", "float32")
    (found,) = answers(graph, inputs, "simt", "float16")
    np.testing.assert_allclose(found, wanted, rtol=4e-3, atol=4e-3)


def test_weights_below_the_least_float16_are_scaled() -> None:
    w, b = Weights(10), Builder()
    image = b.input("x", "f32", (1, 8, 6, 6))
    tiny, huge = np.float32(1e-8), np.float32(1e8)
    y = b.conv(image, w(8, 8, 3, 3) * tiny, w(8) * tiny, pads=(1, 1, 1, 1))
    y = b.mul(b.relu(y), huge)
    rows = b.reshape(y, shape=(8, 36))
    b.output(b.mul(b.dense(rows, w(8, 36) * huge, w(8) * huge), tiny))
    graph, x = b.build(), w.image(1, 8, 6, 6)
    with PassContext(disabled_passes={"fold_scale"}):
        (wanted,) = answers(graph, [x], "llvm", "float32")
        (found,) = answers(graph, [x], "simt", "float16")
    np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-2)


def test_weights_that_are_not_finite_stay() -> None:
    w, b = Weights(11), Builder()
    weight = w(8, 16)
    weight[3, 2] = np.inf
    b.output(b.dense(b.input("x", "f32", (2, 16)), weight))
    graph, x = b.build(), np.abs(w.image(2, 16))
    (found,) = answers(graph, [x], "simt", "float16")
    assert (found[:, 3] == np.inf).all() and np.isfinite(np.delete(found, 3, axis=1)).all()


def test_what_the_host_and_inner_graphs_use_keeps_its_type() -> None:
    w, b = Weights(12), Builder()
    x = b.input("x", "f32", (4, 16))
    y = b.dense(x, w(16, 16))
    most, _ = b.top_k(y, k=3)
    is_positive = b.greater(b.sum(y, axes=(0, 1)), np.float32(0))
    chosen = b.branch(is_positive, lambda: b.dense(y, w(8, 16)), lambda: b.neg(y)[:, :8])
    b.output(most, chosen)
    graph, image = b.build(), w.image(4, 16)
    wanted = answers(graph, [image], "llvm", "float32")
    found = answers(graph, [image], "simt", "float16")
    for a, c in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, c, rtol=4e-3, atol=4e-3)


def test_single_operators_are_kernels_as_well() -> None:
    graph, inputs = NETWORKS["convolutional"]()
    wanted = answers(graph, inputs, "llvm", "float32")
    with PassContext(opt_level=0):
        found = answers(graph, inputs, "simt", "float16")
    for a, c in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, c, rtol=4e-3, atol=4e-3)
