"""Candidates that crash, hang, compute something else or eat memory cost their slot, no more."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from struct import unpack_from

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.ir import Function
from tilewright.kernels.compiled import CompiledKernel, compile_function
from tilewright.kernels.pipeline import DEFAULTS
from tilewright.runtime import Measured, why_wrong
from tilewright.schedule import Schedule
from tilewright.support.processes import Answering
from tilewright.tensor import f32
from tilewright.tune import Knobs, read_records
from tilewright.tune.measuring.building import KernelBuilder
from tilewright.tune.measuring.local import LocalMeasurer
from tilewright.tune.tasks import Task

HOST = tw.Target.of("llvm")
SIZE = 1000


def scale(factor: float = 2.0) -> Function:
    x = te.placeholder((SIZE,), name="x")
    return te.function([x], [te.compute((SIZE,), lambda i: x[i] * factor, name="y")], name="f")


@tw.script
def forever(x=f32[SIZE], y=f32[SIZE]):
    i = 0
    while i < 1:
        y[0] = x[0]


def greedy() -> Function:
    x = te.placeholder((SIZE,), name="x")
    huge = te.compute((1 << 18, 1 << 18), lambda i, j: x[j % SIZE] * x[i % SIZE], name="huge")
    y = te.compute((SIZE,), lambda i: huge[i, i] + huge[i, 0], name="y")
    return te.function([x], [y], name="f")


def packed(function: Function, scheduler: str = "given") -> bytes:
    named = replace(function, name="f")
    return compile_function(named, HOST, replace(DEFAULTS, scheduler=scheduler))


def crashing() -> bytes:
    """A kernel whose machine code is none."""
    kernel = CompiledKernel.unpacked(packed(scale()))
    code = bytearray(kernel.code)
    offset, size, count = (*unpack_from("<Q", code, 40), *unpack_from("<HH", code, 58))
    for k in range(count):
        flags, _, start, length = unpack_from("<QQQQ", code, offset + k * size + 8)
        if flags & 4:
            code[start : start + length] = b"\x00" * length
    return replace(kernel, code=bytes(code)).packed()


@pytest.fixture(scope="module")
def measurer() -> Iterator[LocalMeasurer]:
    made = LocalMeasurer(timeout=2.0, memory=1 << 28)
    found = made.begin(Task(scale(), HOST), packed(scale()))
    assert not found.failure, found
    yield made
    made.close()


def measured(measurer: LocalMeasurer, code: bytes, *, early: bool = True) -> Measured:
    ((number, found),) = measurer.measure([code], 3, early=early)
    assert number == 0
    return found


def is_fine(measurer: LocalMeasurer) -> bool:
    found = measured(measurer, packed(scale(), "rules {}"), early=False)
    return found.failure is None and len(found.ratios) == 3 and found.ratio > 0


def test_a_candidate_is_measured_beside_the_default(measurer: LocalMeasurer) -> None:
    assert is_fine(measurer)


def test_a_wrong_answer(measurer: LocalMeasurer) -> None:
    found = measured(measurer, packed(scale(2.5)))
    assert found.failure == "wrong answer" and "differs in 1000 of 1000" in found.reason
    assert is_fine(measurer)


def test_a_hang(measurer: LocalMeasurer) -> None:
    found = measured(measurer, packed(forever))
    assert found.failure == "time-out"
    assert is_fine(measurer)


@pytest.mark.skipif(sys.platform != "linux", reason="writes into ELF files")
def test_a_crash(measurer: LocalMeasurer) -> None:
    found = measured(measurer, crashing())
    assert found.failure == "crash" and "SIG" in found.reason
    assert is_fine(measurer)


@pytest.mark.skipif(sys.platform != "linux", reason="limits are Linux's")
def test_too_much_memory(measurer: LocalMeasurer) -> None:
    found = measured(measurer, packed(greedy()))
    assert found.failure == "memory"
    assert is_fine(measurer)


class Injecting(LocalMeasurer):
    """Puts kernels in the place of the first candidates."""

    injected: Iterator[bytes] = iter(())

    def measure(
        self, candidates: Iterable[bytes], rounds: int, *, early: bool = True
    ) -> Iterator[tuple[int, Measured]]:
        return super().measure((next(self.injected, c) for c in candidates), rounds, early=early)


@pytest.mark.skipif(sys.platform != "linux", reason="limits are Linux's")
def test_no_candidate_stops_a_search(tmp_path: Path) -> None:
    @tw.tune.template
    def cut(s: Schedule, space: Knobs) -> None:
        (i,) = s.loops("y")
        s.split(i, None, space.choice("size", range(1, 17)))

    measurer = Injecting(timeout=2.0, memory=1 << 28)
    bad = (crashing(), packed(forever), packed(scale(2.5)), packed(greedy()))
    measurer.injected = iter(bad)
    path = tmp_path / "r.jsonl"
    summary = cut.tune(scale(), budget=100, trials=7, tuner="grid", records=path, measurer=measurer)
    assert summary.trials == 7
    assert summary.failures == {"crash": 1, "time-out": 1, "wrong answer": 1, "memory": 1}
    trials = [r for r in read_records(path) if r.kind == "trial"]
    assert [r.failure is None for r in trials] == [False] * 4 + [True] * 3
    assert all(r.reason for r in trials[:4]) and not any(r.wins for r in trials)


def test_an_answer_that_makes_no_sense_costs_its_candidate(
    measurer: LocalMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a candidate writes where it should not may be the answer."""
    code = packed(scale(), "rules {}")
    for answer in (
        b"{]",
        b"",
        b"[]",
        b"{}",
        b'{"ratios": [0.0]}',
        b'{"ratios": [1], "seconds": 0}',
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Answering, "ask", lambda self, message, timeout, a=answer: a)
            found = measured(measurer, code)
        assert found.failure == "error" and found.reason == "the answer makes no sense"
    assert is_fine(measurer)


def test_a_candidate_for_other_arguments(measurer: LocalMeasurer) -> None:
    kernel = CompiledKernel.unpacked(packed(scale()))
    found = measured(measurer, replace(kernel, code=b"no code").packed())
    assert found.failure == "error"
    assert is_fine(measurer)


def test_a_default_that_does_not_run_is_said_so() -> None:
    measurer = LocalMeasurer(timeout=2.0)
    found = measurer.begin(Task(scale(), HOST), b"\x00" * 16)
    measurer.close()
    assert found.failure


def test_builders_give_kernels_or_reasons() -> None:
    builder = KernelBuilder(HOST)
    task = Task(scale(), HOST)
    good, bad, other = builder.built(task, [None, "luck {}", "rules {}"])
    builder.close()
    assert CompiledKernel.unpacked(good.kernel).name == CompiledKernel.unpacked(other.kernel).name
    assert not bad.kernel and "no scheduler 'luck'" in bad.error


def test_a_builder_that_takes_too_long_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_COMPILE_JOBS", "1")
    builder = KernelBuilder(HOST)
    assert builder.built(Task(scale(), HOST), [None])[0].kernel
    builder._timeout = 0.0
    late, _ = builder.built(Task(scale(), HOST), [None, None])
    builder._timeout = 60.0
    assert builder.built(Task(scale(), HOST), [None])[0].kernel
    builder.close()
    assert "it took too long" in late.error


# ---- answers ------------------------------------------------------------------------------------


def test_sums_in_another_order_are_right() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 64, 4096)).astype(np.float32)
    exact = (a.astype(np.float64) * b).sum(axis=1).astype(np.float32)
    assert not why_wrong([exact], [(a * b)[:, ::-1].cumsum(axis=1)[:, -1]])


@pytest.mark.parametrize(
    ("expected", "got", "is_right"),
    [
        ([1.0, np.nan, np.inf], [1.0, np.nan, np.inf], True),
        ([1.0, 2.0], [1.0, np.nan], False),
        ([1.0, np.inf], [1.0, -np.inf], False),
        ([1.0, np.inf], [1.0, 3.0], False),
        ([1.0, 3.0], [1.0, np.inf], False),
        ([np.nan], [0.0], False),
        ([0.0, 0.0], [0.0, 1e-3], False),
        ([], [], True),
    ],
)
def test_edges_of_floats(expected: list[float], got: list[float], is_right: bool) -> None:
    arrays = [np.asarray(v, np.float32) for v in (expected, got)]
    assert (why_wrong([arrays[0]], [arrays[1]]) == "") == is_right


def test_whole_numbers_are_equal_or_wrong() -> None:
    a = np.arange(4)
    assert not why_wrong([a, a > 1], [a, a > 1])
    assert why_wrong([a], [a + (a == 2)]) == "result 0 differs in 1 of 4 elements"
