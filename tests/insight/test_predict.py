"""The model of the machine that times of kernels are held against."""

from __future__ import annotations

import math
from textwrap import dedent

import pytest

import tilewright as tw
from tests.networks import mlp, random
from tilewright.insight.predict import predicted, predictions
from tilewright.insight.roof import Level, Roof
from tilewright.ir import parse_function
from tilewright.kernels.cost import cost_of
from tilewright.support.profile import Event, Profile

#: A machine of round figures: a cache of 1,000 bytes, and memory ten times as slow.
ALONE = Roof(100.0, (Level(1000, 50.0), Level(math.inf, 5.0)))
BOTH = Roof(200.0, (Level(2000, 100.0), Level(math.inf, 8.0)), fork_join=3.0)


def event(flops: int, bytes_: int, constants: int = 0, start: int = 0, end: int = 0) -> Event:
    return Event("kernel", "", start, end, flops, bytes_, constants)


@pytest.mark.parametrize(
    ("call", "touched", "seconds"),
    [
        (event(1000, 100), 100, 10.0),  # arithmetic
        (event(10, 500), 500, 10.0),  # bytes, from the cache
        (event(10, 2000), 2000, 400.0),  # bytes, from memory
        (event(10, 500, constants=100), 500, 10.0),  # a small model keeps its constants near
        (event(10, 500, constants=100), 10**6, 8.0 + 20.0),  # a large one does not
    ],
)
def test_a_call_takes_the_longer_of_arithmetic_and_bytes(
    call: Event, touched: int, seconds: float
) -> None:
    assert predicted(call, touched, [ALONE]) == pytest.approx(seconds)


def test_threads_are_used_where_that_pays() -> None:
    assert predicted(event(1000, 100), 100, [ALONE, BOTH]) == pytest.approx(5.0 + 3.0)
    assert predicted(event(500, 100), 100, [ALONE, BOTH]) == pytest.approx(5.0)


def test_the_least_time_of_each_call_counts() -> None:
    second = 10**9
    times = [(20, 13), (12, 40)]
    events = [event(1000, 100, end=t * second) for run in times for t in run]
    (row,) = predictions(Profile(2, tuple(events)), [ALONE])
    assert (row.calls, row.measured, row.predicted) == (2, 12.0 + 13.0, 20.0)
    assert row.gap == 5.0


def test_models_are_foretold() -> None:
    profile = tw.compile(mlp(5), threads=1).profile([random(5, 24)], runs=3)
    rows = predictions(profile, [ALONE])
    assert [r.gap for r in rows] == sorted((r.gap for r in rows), reverse=True)
    constants = [e.constants for e in profile.events[: len(profile.events) // 3]]
    assert constants == [4 * (24 * 40 + 40), 4 * 40 * 10, 0]


def test_functions_cost_the_arithmetic_that_computes_them() -> None:
    text = """
        def f(x: f32[8], y: f32[8]):
            for i in range(8):
                y[i] = {}
    """
    plain, fused, exp = (
        cost_of(parse_function(dedent(text).format(value)), []).flops / 8
        for value in ("sqrt(x[i])", "fma(x[i], x[i], 1.0)", "exp(x[i])")
    )
    assert (plain, fused) == (1, 2) and 10 < exp < 40
