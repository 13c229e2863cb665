"""Sizes that a program for free sizes does not take, and that are legal as numbers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import tilewright as tw
from tests.frontends.onnx.models import info, make, node


def pooled(op: str, **window: Any) -> Any:
    x = info("x", shape=["B", 3, "H", "W"])
    return make([node(op, ["x"], ["p"], **window), node("Relu", ["p"], ["y"])], [x], ["y"])


#: The row of a table that indices from outside pick.
PICKED = make(
    [
        node("MaxPool", ["x"], ["p"], kernel_shape=[2], strides=[2]),
        node("Gather", ["p", "i"], ["y"]),
    ],
    [info("x", shape=["N", 1, "W"]), info("i", "int64", shape=["M"])],
    ["y"],
)


def image(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def by_onnx_runtime(proto: Any, x: Any) -> Any:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.filterwarnings("ignore:.*compiled anew")
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("extents", [(1, 5), (5, 1), (1, 1), (6, 7)])
def test_windows_larger_than_an_image_of_free_size(op: str, extents: tuple[int, int]) -> None:
    """ONNX Runtime clips them where less than a stride is missing."""
    proto = pooled(op, kernel_shape=[2, 2], strides=[2, 2])
    x = image(2, 3, *extents)
    found = tw.compile(proto).run([x])[0]
    np.testing.assert_allclose(found, by_onnx_runtime(proto, x), rtol=1e-6)


def test_it_is_told_and_kept_for_each_size(recwarn: pytest.WarningsRecorder) -> None:
    model = tw.compile(pooled("MaxPool", kernel_shape=[2, 2], strides=[2, 2]))
    model.run([image(1, 3, 4, 4)])
    assert not recwarn
    for _ in range(2):
        assert model.run([image(1, 3, 1, 6)])[0].shape == (1, 3, 1, 3)
    assert ["compiled anew for x: [1, 3, 1, 6]" in str(w.message) for w in recwarn] == [True]
    model.run([image(1, 3, 6, 1)])
    assert len(recwarn) == 2


def test_only_some_are_kept(
    recwarn: pytest.WarningsRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.models.apart._KEPT", 2)
    warnings.simplefilter("always")
    model = tw.compile(pooled("MaxPool", kernel_shape=[2, 2], strides=[2, 2]))
    for width, compiled in ((6, 1), (7, 2), (6, 2), (8, 3), (6, 3), (7, 4)):
        assert model.run([image(1, 3, 1, width)])[0].shape == (1, 3, 1, width // 2)
        assert len(recwarn) == compiled


def test_sizes_that_numbers_do_not_allow_are_refused_as_before() -> None:
    model = tw.compile(pooled("MaxPool", kernel_shape=[4, 4], strides=[2, 2]))
    told = (
        r"y would be float32\[1, 3, -1, 3\]; with these sizes as numbers, .*no place for the window"
    )
    for _ in range(2):
        with pytest.raises(tw.UserError, match=told):
            model.run([image(1, 3, 1, 8)])
    reduced = make(
        [
            node("MaxPool", ["x"], ["p"], kernel_shape=[4], strides=[2]),
            node("ReduceMax", ["p"], ["y"]),
        ],
        [info("x", shape=[1, 3, "W"])],
        ["y"],
    )
    with pytest.raises(tw.UserError, match=r"stopped.*max_pool: there is no place for a window ov"):
        tw.compile(reduced).run([image(1, 3, 1)])


@pytest.mark.filterwarnings("ignore:.*compiled anew")
def test_what_follows_may_have_negative_sizes_for_free_ones() -> None:
    """By the formula for free sizes, the second pooling would have less than nothing."""
    nodes = [
        node("MaxPool", ["x"], ["p"], kernel_shape=[2], strides=[2]),
        node("MaxPool", ["p"], ["q"], kernel_shape=[3], strides=[3]),
        node("Conv", ["q", "w"], ["y"]),
    ]
    proto = make(nodes, [info("x", shape=[1, 1, "W"])], ["y"], {"w": image(2, 1, 1)})
    x = image(1, 1, 1)
    found = tw.compile(proto).run([x])[0]
    np.testing.assert_allclose(found, by_onnx_runtime(proto, x), rtol=1e-6)


def test_elements_out_of_range_compile_nothing(recwarn: pytest.WarningsRecorder) -> None:
    model = tw.compile(PICKED)
    for width in (2, 6):
        with pytest.raises(tw.UserError, match="stopped"):
            model.run([image(2, 1, width), np.array([0, 7])])
    assert not recwarn
    assert model.run([image(2, 1, 1), np.array([1])])[0].shape == (1, 1, 1)
    with pytest.raises(tw.UserError, match="stopped"):
        model.run([image(2, 1, 1), np.array([7])])


def test_loaded_models_refuse(tmp_path: Path) -> None:
    model = tw.compile(pooled("MaxPool", kernel_shape=[2, 2], strides=[2, 2]))
    model.save(tmp_path / "model.twm")
    with pytest.raises(tw.UserError, match="there is no place for a window"):
        tw.load(tmp_path / "model.twm").run([image(1, 3, 1, 8)])
