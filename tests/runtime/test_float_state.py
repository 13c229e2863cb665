"""Workers of the thread pool run a region in the floating-point state of its caller."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests import float_state
from tests.float_state import HAPPENED, STATES, get_state
from tilewright.runtime import threads

pytestmark = float_state.pytestmark
Native = Any  # conftest.Native


def states_seen(native: Native, pool: threads.Pool) -> dict[int, int]:
    """The state in which each of two threads runs its part, by the thread's identity."""
    seen: dict[int, int] = {}
    both = threading.Barrier(2, timeout=60)

    def region(*_: object) -> None:
        seen[threading.get_ident()] = get_state() & ~HAPPENED
        # Neither may run both parts.
        both.wait()

    native.run_python(pool, region, 2)
    return seen


@pytest.mark.parametrize("state", STATES)
def test_workers_take_on_the_callers_state(native: Native, state: int) -> None:
    pool = threads.pool_for(2)
    for word in (state, STATES[0], state):
        with float_state.state(word):
            seen = states_seen(native, pool)
        assert list(seen.values()) == [word & ~HAPPENED] * 2
