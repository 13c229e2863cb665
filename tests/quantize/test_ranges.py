"""Counts that grow, and the ranges that are chosen by them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.quantize.histogram import Histogram
from tilewright.quantize.ranges import Calibration, chosen_scale, scale_of, simulated


def counted(*batches: Any) -> Histogram:
    histogram = Histogram()
    for batch in batches:
        histogram.add(np.asarray(batch, np.float32))
    return histogram


def values(kind: str, count: int = 20_000) -> Any:
    rng = np.random.default_rng(0)
    made = {
        "normal": rng.standard_normal(count),
        "relu": np.maximum(rng.standard_normal(count), 0),
        "outliers": np.concatenate([rng.standard_normal(count), rng.uniform(-90, 90, 5)]),
        "shifted": rng.standard_normal(count) * 0.1 + 5,
        "small": rng.standard_normal(count) * 1e-6,
    }
    return made[kind].astype(np.float32)


KINDS = ["normal", "relu", "outliers", "shifted", "small"]


@pytest.mark.parametrize("kind", KINDS)
def test_counts_do_not_depend_on_batches(kind: str) -> None:
    data = values(kind)
    whole = counted(data)
    for parts in (
        np.array_split(data, 7),
        np.array_split(np.sort(np.abs(data)) * np.sign(data), 3),
    ):
        assert counted(*parts).count == whole.count
    for order in (1, -1):
        cut = counted(*np.array_split(data[::order], 41))
        assert (cut.counts == whole.counts).all() and cut.width == whole.width
        assert (cut.low, cut.high) == (whole.low, whole.high) == (data.min(), data.max())


@pytest.mark.parametrize("kind", KINDS)
def test_ranges_against_numpy(kind: str) -> None:
    data, histogram = values(kind), counted(values(kind))
    scale = chosen_scale(histogram, Calibration("minmax"))
    low, high = min(data.min(), 0), max(data.max(), 0)
    assert scale.scale == pytest.approx((high - low) / 255, rel=1e-6)
    ends = np.percentile(data, [0.1, 99.9])
    wanted = scale_of(float(ends[0]), float(ends[1]), symmetric=False)
    found = chosen_scale(histogram, Calibration("percentile", percentile=99.9))
    assert found.scale == pytest.approx(wanted.scale, rel=0.05)


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_least_squared_error_is_found(kind: str, symmetric: bool) -> None:
    data, histogram = values(kind), counted(values(kind))

    def error(scale: Any) -> float:
        return float(np.square(simulated(data.astype(np.float64), scale) - data).mean())

    found = error(chosen_scale(histogram, Calibration("mse", symmetric)))
    tried = [
        error(scale_of(float(data.min()) * a, float(data.max()) * b, symmetric))
        for a in np.linspace(0.05, 1, 20)
        for b in np.linspace(0.05, 1, 20)
    ]
    assert found <= min(tried) * 1.1


@pytest.mark.parametrize("kind", KINDS)
def test_entropy_clips_outliers_and_little_else(kind: str) -> None:
    data, histogram = values(kind), counted(values(kind))
    scale = chosen_scale(histogram, Calibration("entropy"))
    assert scale.scale <= chosen_scale(histogram, Calibration("minmax")).scale * 1.001
    kept = np.abs(simulated(data.astype(np.float64), scale) - data) <= scale.scale * 0.51
    assert kept.mean() > 0.97


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "entropy"])
@pytest.mark.parametrize("value", [0.0, 5.0, -3.0, 1e-30])
def test_constants_stay_what_they_are(method: str, value: float) -> None:
    histogram = counted(np.full(100, value))
    for symmetric in (False, True):
        scale = chosen_scale(histogram, Calibration(method, symmetric))
        assert np.isfinite(scale.scale) and scale.scale > 0
        assert simulated(np.array(value), scale) == pytest.approx(value, rel=0.01, abs=1e-29)


def test_zero_is_exact_and_zero_points_are_in_range() -> None:
    for low, high in [(1.0, 2.0), (-2.0, -1.0), (-1.0, 1e-9), (-1e-9, 1.0), (-3.0, 5.0)]:
        scale = scale_of(low, high, symmetric=False)
        assert 0 <= scale.zero <= 255 and simulated(np.array(0.0), scale) == 0


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(tw.UserError, match="there is no calibration method minimax"):
        _refused(method="minimax")
    with pytest.raises(tw.UserError, match="percentile is 3"):
        _refused(percentile=3)
    with pytest.raises(tw.UserError, match="the budget is 5"):
        _refused(budget=5)


def _refused(**options: Any) -> None:
    from tests.quantize.networks import perceptron

    tw.quantize(perceptron(), np.zeros((8, 64), np.float32), **options)
