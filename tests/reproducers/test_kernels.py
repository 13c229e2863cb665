"""Faults in kernels: in this process, in workers, and such that end a worker."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.reproducers.faults import Array, fault_of, require_no_weights
from tilewright.graph import Builder, Module
from tilewright.kernels import workers
from tilewright.reproducers import read_reproducer, run_again


def break_lowering(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Lowering fails for kernels whose names hold `name`."""
    import tilewright.lower

    lower = tilewright.lower.lower

    def failing(function: Any, *rest: Any, **options: Any) -> Any:
        if name in function.name:
            raise IndexError("there is no such loop")
        return lower(function, *rest, **options)

    monkeypatch.setattr(tilewright.lower, "lower", failing)


def test_a_kernel_that_fails_is_named(
    network: Module, weights: list[Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_COMPILE_JOBS", "1")
    with monkeypatch.context() as patch:
        break_lowering(patch, "softmax")
        error = fault_of(network, opt_level=0)
        assert "softmax" in error.places["kernel"] and error.places["node"] == "softmax"
        assert f"in kernel {error.places['kernel']}" in str(error)
        r = read_reproducer(error.reproducer or "")
        assert (r.kind, r.name, r.fails) == ("kernel", error.places["kernel"], True)
        assert f"def {r.name}(" in r.subject
        require_no_weights(r.text(), weights)
        assert r.failure.is_like(run_again(r))
    assert run_again(r) is None


def in_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str) -> None:
    """Run a line of Python in every worker before it starts to work."""
    (tmp_path / "sitecustomize.py").write_text(what)
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("TILEWRIGHT_COMPILE_JOBS", "2")


def several_kernels() -> Module:
    b = Builder()
    x = b.input("x", "f32", (8, 8))
    for k in range(6):
        x = b.transpose(b.softmax(b.matmul(x, np.full((8, 8), k, "f4")), axis=k % 2))
    b.output(x)
    return b.build()


def test_a_kernel_that_fails_in_a_worker_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = "import tilewright.lower as m\nm.lower = None\n"
    in_workers(monkeypatch, tmp_path, broken)
    _wait_for_workers(monkeypatch, seconds=3)
    break_lowering(monkeypatch, "softmax")
    error = fault_of(several_kernels(), opt_level=0)
    assert "softmax" in error.places["kernel"] and error.places["node"]


@pytest.mark.skipif(sys.platform == "win32", reason="processes end by signals")
def test_a_kernel_that_ends_a_worker_does_not_end_this_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    crashing = "import os, tilewright.codegen as m\nm.backend_of = lambda *_: os.abort()\n"
    in_workers(monkeypatch, tmp_path, crashing)
    _wait_for_workers(monkeypatch)
    error = fault_of(several_kernels(), opt_level=0)
    assert "the compiler crashed: SIGABRT" in str(error) and error.places["kernel"]
    r = read_reproducer(error.reproducer or "")
    assert (r.kind, r.fails, r.failure.exception) == ("kernel", True, "KernelCrashError")
    (tmp_path / "sitecustomize.py").unlink()
    assert run_again(r) is None


def _wait_for_workers(monkeypatch: pytest.MonkeyPatch, seconds: float = 60) -> None:
    """This process compiles nothing before a worker has ended, or had so much time."""
    started: list[Any] = []
    start, perform = workers.Answering.started, workers.perform

    def starting(*args: str) -> Any:
        started.append(start(*args))
        return started[-1]

    def waiting(*args: Any) -> Any:
        end = time.monotonic() + seconds
        while started and started[-1]._process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
        started.clear()
        # The thread that feeds the worker sees it a little later.
        time.sleep(0.5)
        return perform(*args)

    monkeypatch.setattr(workers.Answering, "started", staticmethod(starting))
    monkeypatch.setattr(workers, "perform", waiting)
