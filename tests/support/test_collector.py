from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

from tilewright.support.collector import collecting_rarely


@pytest.fixture(autouse=True)
def thresholds() -> Generator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_thresholds_come_back_when_the_last_is_done() -> None:
    gc.set_threshold(700, 11, 12)
    first, second = collecting_rarely(), collecting_rarely()
    first.__enter__()
    second.__enter__()
    assert gc.get_threshold()[0] > 700
    assert gc.get_threshold()[1:] == (11, 12)
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] > 700
    second.__exit__(None, None, None)
    assert gc.get_threshold() == (700, 11, 12)


@pytest.mark.parametrize("chosen", [0, 1_000_000])
def test_who_collects_less_is_left_alone(chosen: int) -> None:
    gc.set_threshold(chosen, 11, 12)
    with collecting_rarely():
        assert gc.get_threshold() == (chosen, 11, 12)
