"""Ctrl-C where nothing may be raised."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tilewright.support.interrupts import Postponed


@pytest.fixture
def handled() -> Iterator[list[int]]:
    """What a handler of the program's own was called with, which raises nothing."""
    seen = list[int]()

    def note(number: int, frame: Any) -> None:
        del frame
        seen.append(number)

    before = signal.signal(signal.SIGINT, note)
    yield seen
    signal.signal(signal.SIGINT, before)


def press() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("interruptible")
def test_it_takes_effect_where_the_block_ends() -> None:
    done = False
    with pytest.raises(KeyboardInterrupt), Postponed():
        press()
        done = True
    assert done
    with pytest.raises(KeyboardInterrupt):
        press()


@pytest.mark.usefixtures("interruptible")
def test_it_takes_effect_where_it_is_delivered() -> None:
    with pytest.raises(KeyboardInterrupt), Postponed() as interrupts:
        interrupts.deliver()
        press()
        interrupts.deliver()
        pytest.fail("it goes on")


def test_handlers_of_the_program_are_called_once(handled: list[int]) -> None:
    with Postponed() as interrupts:
        press()
        assert not handled
        interrupts.deliver()
        interrupts.deliver()
        assert handled == [signal.SIGINT]
    press()
    assert handled == [signal.SIGINT] * 2


def test_the_outer_block_has_the_last_word(handled: list[int]) -> None:
    with Postponed() as outer:
        with Postponed() as inner:
            press()
            inner.deliver()
            assert not handled
        assert not handled
        outer.deliver()
        assert handled == [signal.SIGINT]


def test_other_threads_have_no_signals(handled: list[int]) -> None:
    def work() -> None:
        with Postponed():
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    press()
    assert handled == [signal.SIGINT]
