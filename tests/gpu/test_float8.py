"""Products of floats of eight bits on GPUs: what is rounded, and how far answers are off."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.gpu.half_networks import NETWORKS, Weights
from tests.gpu.test_bytes import compiled, instructions
from tests.graph.harness import check
from tilewright.graph import Builder, PassContext
from tilewright.graph import Module as Graph
from tilewright.support.errors import UserError
from tilewright.target.gpus import GPUS

Array = np.ndarray[Any, Any]


def answers(graph: Graph, x: Array) -> tuple[Array, Array]:
    """Those in floats of eight bits, and those in float32."""
    (found,) = compiled(graph, precision="float8").run([x])
    (wanted,) = tw.compile(graph).run([x])
    return np.asarray(found), np.asarray(wanted)


@pytest.mark.parametrize("name", list(NETWORKS))
def test_networks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for gpu, figures in GPUS.items():
        monkeypatch.setitem(GPUS, gpu, figures._replace(launch_time=0.0))
    graph, inputs = NETWORKS[name]()
    model = compiled(graph, precision="float8")
    assert "float8_e4m3fn" in model.precision
    assert all(".f8e4m3fn." in name for name in instructions(model)) and instructions(model)
    for a, b in zip(model.run(inputs), tw.compile(graph).run(inputs), strict=True):
        found, wanted = np.asarray(a), np.asarray(b)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, atol=6e-2 * np.abs(wanted).max())


def test_scales_follow_rows_and_columns() -> None:
    """Rows and columns of very different magnitude lose no more than others."""
    w, b = Weights(40), Builder()
    weight = w(48, 64) * np.logspace(-12, 12, 48, dtype=np.float32)[:, None]
    b.output(b.dense(b.input("x", "f32", (20, 64)), weight))
    x = w.image(20, 64) * np.logspace(-12, 12, 20, dtype=np.float32)[:, None]
    x[3] = 0
    found, wanted = answers(b.build(), x)
    assert (found[3] == 0).all()
    size = np.abs(x).max(axis=1)[:, None] * np.abs(weight).max(axis=1)
    assert (np.abs(found - wanted) <= 0.05 * 8 * size).all()


def test_rows_that_are_not_finite_stay_so() -> None:
    w, b = Weights(41), Builder()
    b.output(b.dense(b.input("x", "f32", (20, 64)), w(48, 64)))
    x = w.image(20, 64)
    x[3, 4], x[5, 6] = np.inf, np.nan
    found, wanted = answers(b.build(), x)
    assert not np.isfinite(found[[3, 5]]).any()
    others = np.delete(np.arange(20), [3, 5])
    np.testing.assert_allclose(found[others], wanted[others], atol=0.2)


def test_weights_that_are_not_finite_stay() -> None:
    w, b = Weights(42), Builder()
    weight = w(48, 64)
    weight[3, 2] = np.inf
    b.output(b.dense(b.input("x", "f32", (20, 64)), weight))
    assert "float32 × 1" in compiled(b.build(), precision="float8").precision


def test_single_operators_are_kernels_as_well() -> None:
    w, b = Weights(43), Builder()
    b.output(b.relu(b.dense(b.input("x", "f32", (20, 64)), w(48, 64), w(48))))
    with PassContext(opt_level=0):
        found, wanted = answers(b.build(), w.image(20, 64))
    np.testing.assert_allclose(found, wanted, atol=0.2)


@pytest.mark.parametrize("target", ["llvm", "cuda -arch=sm_80"])
def test_other_machines_have_no_float8(target: str) -> None:
    graph, _ = NETWORKS["recurrent"]()
    with pytest.raises(UserError, match="precision float8 is for GPUs since sm_89"):
        tw.compile(graph, target, precision="float8")


def test_float8_rows_is_what_its_reference_says() -> None:
    rows = Weights(44).image(3, 5, 37)
    rows[0, 0] = 0
    check("float8_rows", [rows])
