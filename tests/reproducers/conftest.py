"""Faults that are put into the compiler, and where their files go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.reproducers.faults import Array, Break
from tilewright.graph import Builder, Module, passes


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where reproducers are written. What is compiled is compiled anew."""
    path = tmp_path / "faults"
    path.mkdir()
    monkeypatch.setenv("TILEWRIGHT_FAULTS_DIR", str(path))
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    return path


@pytest.fixture
def weights() -> list[Array]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal((16, 16)).astype(np.float32) for _ in range(4)] + [
        rng.standard_normal(16).astype(np.float32)
    ]


@pytest.fixture
def network(weights: list[Array]) -> Module:
    """Products by weights, a softmax after the last, and what follows it."""
    b = Builder()
    h = b.input("x", "f32", ("n", 16))
    for w in weights[:-1]:
        h = b.relu(b.matmul(h, w) + weights[-1])
    b.output(b.exp(b.matmul(b.softmax(h), weights[0])))
    return b.build()


@pytest.fixture
def break_pass(monkeypatch: pytest.MonkeyPatch) -> Break:
    """`break_pass(name, fails, fault)`: the pass raises `fault` on modules for which `fails`."""

    def put(name: str, fails: Callable[[Module], bool], fault: Exception) -> None:
        run = getattr(passes, name)

        def broken(module: Module) -> Module:
            if fails(module):
                raise fault
            return run(module)

        broken.__name__ = name
        monkeypatch.setattr(passes, name, broken)

    return put
