"""Models are tuned, and compiled with what was found."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder, Module, PassContext
from tilewright.ir import structural_hash
from tilewright.kernels.pipeline import Options, scheduled
from tilewright.runtime import Measured
from tilewright.schedule import Recorded, Trace
from tilewright.tune import Record, best_records, read_records, write_records
from tilewright.tune.settings import seconds_of
from tilewright.tune.tasks import Task, tasks_of


def network(name: str = "x", rows: Any = 24) -> Module:
    rng = np.random.default_rng(0)
    b = Builder()
    x = b.input(name, "f32", (rows, 48))
    hidden = b.relu(b.matmul(x, rng.standard_normal((48, 80)).astype(np.float32)))
    b.output(b.matmul(hidden, rng.standard_normal((80, 32)).astype(np.float32)))
    return b.build()


def compiled() -> tw.Model:
    model = tw.compile(network())
    assert isinstance(model, tw.Model)
    return model


def kernels_of(model: tw.Model) -> Sequence[bytes]:
    return model._program.objects[1:]


class Pretending:
    """Takes kernels for faster the fewer bytes of code they have; runs nothing."""

    def __init__(self, interrupt_after: int | None = None, fails: bool = False) -> None:
        self.measured, self._left, self._fails = 0, interrupt_after, fails
        self._reference = 1

    @property
    def width(self) -> int:
        return 0

    def begin(self, task: Task, reference: bytes) -> Measured:
        self._reference = len(reference)
        return Measured(seconds=1e-3)

    def measure(
        self, candidates: Iterable[bytes], rounds: int, *, early: bool = True
    ) -> Iterator[tuple[int, Measured]]:
        for number, code in enumerate(candidates):
            if self._left is not None:
                if not self._left:
                    raise KeyboardInterrupt
                self._left -= 1
            self.measured += 1
            yield number, self._measured(code, rounds)

    def _measured(self, code: bytes, rounds: int) -> Measured:
        if self._fails:
            return Measured(failure="crash", reason="it ended by SIGSEGV")
        ratio = 0.2 + 0.5 * len(code) / self._reference
        return Measured((ratio,) * rounds, ratio * 1e-3, 1e-3)

    def close(self) -> None:
        pass


def tune(path: Path, model: Module | None = None, **options: Any) -> Any:
    given: dict[str, Any] = {"budget": 100, "trials": 4, "tuner": "ga", **options}
    return tw.tune(model or network(), records=path, **given)


@pytest.fixture(scope="module")
def winners(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records in which schedules have won."""
    path = tmp_path_factory.mktemp("tune") / "records.jsonl"
    summary = tune(path, measurer=Pretending())
    assert summary.gain > 1 and not summary.interrupted
    return path


def test_a_model_is_tuned_for_real(tmp_path: Path) -> None:
    summary = tune(tmp_path / "r.jsonl", trials=2)
    records = read_records(tmp_path / "r.jsonl")
    trials = [r for r in records if r.kind == "trial"]
    assert len(trials) == summary.trials == 4 and not summary.failures
    assert all(r.ratio and r.seconds and r.reference and r.trace for r in trials)
    assert {r.target for r in records} == {compiled().target.machine}
    assert all((r.ratio or 1) < 0.98 for r in records if r.wins)
    assert "4 trials" in str(summary)


def test_tasks_are_distinct_kernels() -> None:
    rng = np.random.default_rng(0)
    b = Builder()
    x = b.input("x", "f32", (32, 32))
    for _ in range(3):
        x = b.relu(b.matmul(x, rng.standard_normal((32, 32)).astype(np.float32)))
    b.output(x)
    model = tw.compile(b.build())
    (task,) = tasks_of(model, {"x": np.ones((32, 32), np.float32)})
    assert task.calls == 3 and task.seconds > 0 and task.flops >= 2 * 32**3


def test_names_of_nodes_do_not_matter(winners: Path) -> None:
    keys = [
        sorted(t.key for t in tasks_of(tw.compile(network(n)), [np.ones((24, 48), np.float32)]))
        for n in ("x", "an other/name:0")
    ]
    assert keys[0] == keys[1]
    with warnings.catch_warnings(), tw.tune.apply_best(winners):
        warnings.simplefilter("error")
        tw.compile(network("renamed/node:0"))


def test_records_change_the_code_and_not_the_answer(winners: Path) -> None:
    x = np.random.default_rng(1).standard_normal((24, 48)).astype(np.float32)
    plain = compiled()
    with tw.tune.apply_best(winners):
        tuned = compiled()
        with PassContext(opt_level=3):
            nested = compiled()
    codes = [kernels_of(m) for m in (plain, tuned, nested, compiled())]
    assert codes[0] == codes[3] != codes[1] == codes[2]
    np.testing.assert_allclose(tuned.run([x])[0], plain.run([x])[0], rtol=1e-4, atol=1e-4)


def test_replaying_a_record_gives_the_same_loops(winners: Path) -> None:
    model = compiled()
    tasks = {t.key: t for t in tasks_of(model, [np.ones((24, 48), np.float32)])}
    for record in read_records(winners):
        task = tasks[record.task]
        assert record.trace is not None
        trace = Trace.from_json(dict(record.trace))
        by_trace = Recorded(trace).schedule(task.function, task.target).function
        options = Options(scheduler=record.scheduler)
        by_pipeline = scheduled(model.ir(record.name), task.target, options)
        assert structural_hash(by_trace) == structural_hash(by_pipeline)


def test_a_record_that_does_not_apply_is_told_of_once(winners: Path, tmp_path: Path) -> None:
    def broken(r: Record) -> Record:
        steps = [{"name": "split", "args": [{"loop": 77}, 4], "results": []}]
        return replace(r, trace={"version": 1, "steps": steps})

    write_records(map(broken, read_records(winners)), tmp_path / "r.jsonl")
    x = np.ones((24, 48), np.float32)
    expected = tw.compile(network()).run([x])[0]
    for _ in range(2):  # compiled, and from the cache
        told = pytest.warns(UserWarning, match="does not apply any more, so that the default")
        with tw.tune.apply_best(tmp_path / "r.jsonl"), told as found:
            model = tw.compile(network())
        assert len(found) == 1
        np.testing.assert_array_equal(model.run([x])[0], expected)


def test_records_of_other_machines_change_nothing(winners: Path, tmp_path: Path) -> None:
    others = [replace(r, target="llvm -mcpu=znver4") for r in read_records(winners)]
    write_records(others, tmp_path / "r.jsonl")
    with tw.tune.apply_best(tmp_path / "r.jsonl"):
        tuned = compiled()
    assert kernels_of(tuned) == kernels_of(compiled())


def test_what_is_known_is_not_measured_again(tmp_path: Path) -> None:
    first, again = Pretending(), Pretending()
    one = tune(tmp_path / "r.jsonl", measurer=first)
    two = tune(tmp_path / "r.jsonl", measurer=again)
    assert first.measured and not again.measured
    assert two.gain == pytest.approx(one.gain, rel=0.5) and two.gain > 1


def test_an_interrupt_keeps_everything(tmp_path: Path) -> None:
    summary = tune(tmp_path / "r.jsonl", measurer=Pretending(interrupt_after=3))
    assert summary.interrupted and summary.trials
    assert "interrupted" in str(summary)
    records = read_records(tmp_path / "r.jsonl")
    assert len(records) == 3 and best_records(records)


class ReplacingInterrupts(Pretending):
    """Gets an interrupt where a lock is waited for, which raises another error in its place."""

    def _measured(self, code: bytes, rounds: int) -> Measured:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RuntimeError("release unlocked lock") from None
        raise AssertionError


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_that_becomes_another_error_is_one(tmp_path: Path) -> None:
    summary = tune(tmp_path / "r.jsonl", measurer=ReplacingInterrupts())
    assert summary.interrupted
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class Faulty(Pretending):
    def _measured(self, code: bytes, rounds: int) -> Measured:
        raise RuntimeError("no interrupt")


def test_other_errors_are_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no interrupt"):
        tune(tmp_path / "r.jsonl", measurer=Faulty())


def test_failures_never_stop_a_search(tmp_path: Path) -> None:
    summary = tune(tmp_path / "r.jsonl", measurer=Pretending(fails=True))
    assert summary.failures == {"crash": 8} and summary.gain == 1
    assert all(r.failure == "crash" and r.reason for r in read_records(tmp_path / "r.jsonl"))


def test_every_sample_is_measured_in_the_end(tmp_path: Path) -> None:
    """Also where many are known or illegal by then."""
    b = Builder()
    b.output(b.softmax(b.input("x", "f32", (16, 300))))
    counts: set[int] = set()
    for tuner in ("grid", "random"):
        path = tmp_path / f"{tuner}.jsonl"
        alone: dict[str, Any] = {"target": "llvm -num-cores=1", "measurer": Pretending()}
        summary = tune(path, b.build(), trials=None, tuner=tuner, **alone)
        assert "no more samples" in summary.tasks[0].ended
        counts.add(summary.trials)
    # How many there are depends on the widths of vectors.
    assert len(counts) == 1 and min(counts) >= 3


def test_sizes_that_are_not_known(tmp_path: Path) -> None:
    summary = tune(tmp_path / "r.jsonl", network("x", "n"), trials=1, dims={"n": 7})
    assert summary.trials == 2 and not summary.failures


def test_good_schedules_of_others_are_tried_first(winners: Path, tmp_path: Path) -> None:
    tune(tmp_path / "r.jsonl", network("x", 20), trials=1, transfer=[winners], tuner="random")
    best = {json.dumps(dict(r.values)) for r in read_records(winners) if r.kind == "trial"}
    first = [r for r in read_records(tmp_path / "r.jsonl") if r.kind == "trial"]
    assert first and all(json.dumps(dict(r.values)) in best for r in first)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1.5h", 5400), (7, 7), ("3", 3)]
)
def test_budgets(text: Any, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-3s", "0", "nan", "inf", "10 weeks"])
def test_budgets_that_are_none(text: str) -> None:
    with pytest.raises(tw.UserError, match="is no time to spend"):
        seconds_of(text)


def test_bad_calls(tmp_path: Path) -> None:
    with pytest.raises(tw.UserError, match="cannot search with 0 trials"):
        tune(tmp_path / "r.jsonl", trials=0)
    with pytest.raises(tw.UserError, match="kernels for llvm cannot be measured here"):
        other = "x86_64" if tw.Target.of("llvm").arch == "aarch64" else "aarch64"
        tune(tmp_path / "r.jsonl", target=f"llvm -mtriple={other}-linux-gnu")
    with pytest.raises(tw.UserError, match="cannot measure on a str"):
        tune(tmp_path / "r.jsonl", on="rasp4")
    with pytest.raises(tw.UserError, match="there is no tuner 'luck'"):
        tune(tmp_path / "r.jsonl", tuner="luck")


# ---- killed -------------------------------------------------------------------------------------

KILLED = """
import sys
sys.path.insert(0, sys.argv[2])
from test_tune import Counting, tune
tune(sys.argv[1], measurer=Counting(sys.argv[1] + ".log"), trials=40)
"""


class Counting(Pretending):
    """Leaves a byte in a file for every measurement that is done."""

    def __init__(self, log: str) -> None:
        super().__init__()
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def _measured(self, code: bytes, rounds: int) -> Measured:
        os.write(self._log, b".")
        return super()._measured(code, rounds)


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_killed_at_any_moment_a_search_loses_what_was_under_way_at_most(tmp_path: Path) -> None:
    path, rng, before, counted = tmp_path / "r.jsonl", random.Random(0), 0, 0
    log = tmp_path / "r.jsonl.log"
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(path), str(Path(__file__).parent)],
            env={**os.environ, "PYTHONPATH": str(Path(tw.__file__).parent.parent)},
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and _lines(path) <= before + 1:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
        process.wait()
        found, done = len(read_records(path)), log.stat().st_size
        assert found > before, "what was measured is kept"
        assert (done - counted) - (found - before) <= 1, "all but what was under way"
        before, counted = found, done
    trials = [(r.task, json.dumps(r.sample)) for r in read_records(path) if r.kind == "trial"]
    assert len(set(trials)) == len(trials), "nothing is measured twice"


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
