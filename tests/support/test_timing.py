from __future__ import annotations

import itertools

import pytest

from tilewright.support import timing
from tilewright.support.timing import Timing, format_seconds, measure


class _Clock:
    """A clock that only moves when the measured function is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.calls = 0.0, 0
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def work(self, seconds: float) -> None:
        self.calls += 1
        self.now += seconds


def test_samples_last_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(monkeypatch)
    result = measure(lambda: clock.work(1e-5), repeat=5, min_repeat_ms=10)
    assert result.calls >= 1000
    assert result.calls < 5000
    assert len(result.samples) == 5
    assert result.median == pytest.approx(1e-5)


def test_a_slow_function_is_called_once_per_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _Clock(monkeypatch)
    result = measure(lambda: clock.work(1.0), repeat=3, warmup=2)
    assert result.calls == 1
    assert clock.calls == 2 + 1 + 3


def test_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, cycle = _Clock(monkeypatch), itertools.cycle([2.0, 1.0, 3.0])
    result = measure(lambda: clock.work(next(cycle)), repeat=3, warmup=2)
    assert (result.min, result.median, result.max) == (1.0, 2.0, 3.0)
    assert result.spread == 1.0


def test_the_real_clock() -> None:
    result = measure(lambda: sum(range(1000)), repeat=3, min_repeat_ms=1)
    assert 0 < result.min <= result.median <= result.max < 1


def test_no_repetitions_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        measure(lambda: None, repeat=0)


def test_it_prints_what_matters() -> None:
    shown = repr(Timing((0.001, 0.00102, 0.0011), 8))
    assert shown == "Timing(1.02 ms, min 1.00 ms, max 1.10 ms, spread 9.8%, 3 × 8 calls)"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (12.345, "12.3 s"), (0.5, "500 ms"), (1.5e-6, "1.50 µs"), (3e-10, "0.300 ns")],
)
def test_seconds_print_in_their_unit(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text
