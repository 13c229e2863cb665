"""Boxes, regions, grids and columns of images, and tables; against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.graph.harness import check, natively
from tilewright.graph import Builder, evaluate
from tilewright.kernels.levels import kernel_levels
from tilewright.support.errors import UserError

RNG = np.random.default_rng(7)
IMAGES = RNG.standard_normal((2, 3, 9, 11)).astype("f4")
REGIONS = np.array(
    [[0, 0, 9, 9], [-3, -2, 4.5, 5.2], [5, 5, 20, 20], [3, 3, 3, 3], [6, 2, 4, 1]], "f4"
)
BATCHES = np.array([0, 1, 0, 1, 1])


@pytest.mark.parametrize("center", [False, True])
def test_nms(center: bool) -> None:
    low = RNG.uniform(0, 4, (2, 30, 2))
    boxes = np.concatenate([low, low + RNG.uniform(0.5, 2, (2, 30, 2))], 2).astype("f4")
    boxes[:, ::3] = boxes[:, ::3][..., [2, 1, 0, 3]]
    scores = RNG.uniform(0, 1, (2, 3, 30)).astype("f4")
    iou, least = np.array([0.3], "f4"), np.array([0.4], "f4")
    (rows,) = check("nms", [boxes, scores, np.array([4]), iou, least], center=center)
    assert 0 < len(rows) <= 2 * 3 * 4
    check("nms", [boxes, scores, np.array(100), iou], center=center, symbolic=False)


def test_nms_of_nothing() -> None:
    boxes, scores = np.zeros((1, 4, 4), "f4"), np.ones((1, 2, 4), "f4")
    check("nms", [boxes, scores], expected=np.zeros((0, 3), "i8"), symbolic=False)
    check("nms", [boxes[:, :0], scores[:, :, :0], np.array([4])], symbolic=False)


def test_nms_by_hand() -> None:
    boxes = np.array([[[0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]]], "f4")
    scores = np.array([[[0.8, 0.9, 0.1]]], "f4")
    kept = np.array([[0, 0, 1], [0, 0, 2]])
    arguments = [boxes, scores, np.array([9]), np.array([0.5], "f4")]
    check("nms", arguments, expected=kept, symbolic=False)


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align(mode: str) -> None:
    how: Any = {"size": (3, 4), "spatial_scale": 0.7, "mode": mode}
    for half_pixel in (True, False):
        check(
            "roi_align",
            [IMAGES, REGIONS, BATCHES],
            half_pixel=half_pixel,
            sampling_ratio=2 * half_pixel,
            symbolic=half_pixel,
            rtol=1e-4,
            **how,
        )


def test_roi_align_of_nothing_and_of_half_floats() -> None:
    check("roi_align", [IMAGES, REGIONS[:0], BATCHES[:0]], size=(2, 2), symbolic=False)
    halves = [IMAGES.astype("f2"), REGIONS.astype("f2"), BATCHES]
    check("roi_align", halves, size=(2, 2), symbolic=False, rtol=1e-2, atol=1e-2)


def test_max_roi_pool() -> None:
    regions = np.concatenate([BATCHES[:, None], REGIONS], 1).astype("f4")
    check("max_roi_pool", [IMAGES, regions], size=(3, 2), spatial_scale=0.8)
    whole = np.array([[1, 0, 0, 10, 8]], "f4")
    expected = IMAGES[1].max((1, 2)).reshape(1, 3, 1, 1)
    check("max_roi_pool", [IMAGES, whole], size=(1, 1), expected=expected, symbolic=False)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(mode: str, padding: str) -> None:
    grid = RNG.uniform(-1.6, 1.6, (2, 3, 3, 2)).astype("f4")
    grid[0, 0, 0], grid[0, 0, 1], grid[1, 0, 0, 1] = (-1, 1), (0, 0), np.nan
    grid[1, 1, 0], grid[1, 1, 1], grid[1, 2, 1] = (np.inf, 0), (0.5, -np.inf), (3e38, -3e38)
    for align in (False, True):
        how = {"mode": mode, "padding": padding, "align_corners": align}
        symbolic = align and mode == "linear"
        images = IMAGES[:, :2, :4, :5]
        check("grid_sample", [images, grid], symbolic=symbolic, rtol=1e-4, atol=1e-5, **how)


@pytest.mark.parametrize(("channels", "together"), [(3, 3), (8, 4), (5, 1)])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_places_are_computed_once_for_several_channels(
    mode: str, channels: int, together: int
) -> None:
    b = Builder("main")
    x, grid = b.input("x", "f32", ("n", channels, "h", "w")), b.input("g", "f32", ("n", 6, 16, 2))
    b.output(b.grid_sample(x, grid, mode=mode))
    module = b.build()
    model = tw.compile(module)
    assert isinstance(model, tw.Model)
    (name,) = [k for k in model.kernels if "sample_at" in k]
    scheduled = kernel_levels(model.ir(name), model.target).scheduled
    assert (f"unrolled({together})" in scheduled) == (together > 1)
    rng = np.random.default_rng(4)
    images = rng.standard_normal((2, channels, 5, 7)).astype("f4")
    arrays = [images, rng.uniform(-1.2, 1.2, (2, 6, 16, 2)).astype("f4")]
    (got,), (want,) = model.run(arrays), evaluate(module, arrays)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_grid_sample_of_volumes() -> None:
    volume = RNG.standard_normal((1, 2, 3, 4, 5)).astype("f4")
    grid = RNG.uniform(-1.6, 1.6, (1, 2, 2, 3, 3)).astype("f4")
    check("grid_sample", [volume, grid], symbolic=False, rtol=1e-4, atol=1e-5)


def test_a_grid_of_the_pixels_themselves_changes_nothing() -> None:
    b = Builder("main")
    theta = b.constant(np.array([[[1, 0, 0], [0, 1, 0]]] * 2, "f4"))
    x = b.input("x", "f32", IMAGES.shape)
    b.output(b.grid_sample(x, b.affine_grid(theta, size=[9, 11])))
    (result,) = evaluate(b.function(), [IMAGES], apply=natively)
    np.testing.assert_allclose(result, IMAGES, atol=2e-5)


@pytest.mark.parametrize("align", [False, True])
def test_affine_grid(align: bool) -> None:
    theta = RNG.standard_normal((2, 3, 4)).astype("f4")
    check("affine_grid", [theta[:, :2, :3]], size=[4, 5], align_corners=align, symbolic=align)
    check("affine_grid", [theta], size=[2, 4, 1], align_corners=align, symbolic=False)


def test_col2im() -> None:
    columns = RNG.standard_normal((2, 18, 12)).astype("f4")
    check("col2im", [columns], image=[4, 6], block=[2, 3])
    some: Any = {"block": [2, 2], "symbolic": False}
    check("col2im", [columns[:1, :4, :9]], image=[5, 5], strides=[2, 2], pads=[0, 1, 1, 0], **some)
    check("col2im", [columns[:1, :4, :9]], image=[5, 5], dilations=[2, 2], **some)
    check("col2im", [columns[:, :10]], image=[3, 4, 5], block=[1, 1, 5], symbolic=False)
    b = Builder("main")
    with pytest.raises(UserError, match="columns and blocks differ: 12 and 15"):
        b.col2im(b.input("x", "f32", (1, 4, 12)), image=[4, 6], block=[2, 2])


def test_lookup() -> None:
    keys, values = np.array([3, np.nan, -1, 0, 3], "f4"), np.array([10, 20, 30, 40, 50])
    x = np.array([[0, -0.0, 3, np.nan], [7, -1, np.inf, 2]], "f4")
    expected = np.array([[40, 40, 50, 20], [-5, 30, -5, -5]])
    check("lookup", [x, keys, values, np.array(-5)], expected=expected)
    whole = np.array([7, 2, 5])
    check("lookup", [whole, whole[:2], x[0, :2], x[0, 2:3]], symbolic=False)
    check("lookup", [x, keys[:0], values[:0], np.array([-5])], symbolic=False)


def test_is_in() -> None:
    x, values = np.array([[1, 2, 3]]), np.array([3, 5, 1, 1])
    check("is_in", [x, values], expected=np.isin(x, values))
    check("is_in", [x, values[:0]], symbolic=False)
