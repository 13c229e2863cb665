"""Fixtures that all rooms share."""

from __future__ import annotations

import gc
import os
import signal
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest

# The same examples in every run, so that a red run is about the change;
# `HYPOTHESIS_PROFILE=explore` looks for new ones.
hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

# Workers of pytest-xdist fill the machine: kernels are compiled where the test runs, since starting
# another interpreter takes longer than most kernels of tests do.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("TILEWRIGHT_COMPILE_JOBS", "1")

GOLDEN = Path(__file__).parent / "golden"
Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-golden",
        action="store_true",
        help="rewrite tests/golden from what the tests produce now; review the diff",
    )


def pytest_collection_finish() -> None:
    """What was imported stays, and what is compiled lives long: few collections, of what is new."""
    gc.freeze()
    gc.set_threshold(50_000, *gc.get_threshold()[1:])


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test draws the same numbers, wherever it runs and whatever ran before."""
    seed = zlib.crc32(item.nodeid.encode())
    torch = sys.modules.get("torch")
    if torch:
        torch.manual_seed(seed)
    for value in vars(getattr(item, "module", item)).values():
        if isinstance(value, np.random.Generator):
            value.bit_generator.state = np.random.default_rng(seed).bit_generator.state
        elif torch and isinstance(value, torch.Generator):
            value.manual_seed(seed)


def pytest_unconfigure() -> None:
    """Packages report what is left of them when the process ends."""
    gc.unfreeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(text, "room/name")` holds `text` against `tests/golden/room/name.txt`."""
    refresh = bool(request.config.getoption("--refresh-golden"))

    def check(text: str, name: str) -> None:
        path = GOLDEN / f"{name}.txt"
        text = text.rstrip("\n") + "\n"
        if refresh:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if not path.exists():
            pytest.fail(f"no golden file {path.name}: run pytest --refresh-golden and review it")
        expected = path.read_text(encoding="utf-8")
        assert text == expected, f"{name} differs; if intended, run pytest --refresh-golden"

    return check


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C raises, though processes in the background of a shell ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
