"""A key, a server that all tests of a process share, and a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tilewright as tw
from tests.rpc.hosts import Host, classifier, started

pytest.importorskip("cryptography")


@pytest.fixture(scope="session")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "k"
    tw.rpc.write_key(path)
    return path


@pytest.fixture(scope="session")
def server(key: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A server with room for several tests at once."""
    with started("server", key, tmp_path_factory.mktemp("served"), "--sessions", "4") as host:
        yield host


@pytest.fixture(scope="session")
def model() -> tw.Model:
    made = tw.compile(classifier())
    assert isinstance(made, tw.Model)
    return made
