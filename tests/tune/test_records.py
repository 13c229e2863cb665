"""Records: files that only grow, survive being killed, and can be merged."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import tilewright as tw
from tilewright.schedule import Trace
from tilewright.tune import Record, best_records, read_records, write_records
from tilewright.tune.records.best import schedulers_of
from tilewright.tune.records.file import RecordFile
from tilewright.tune.report import page_of

TRACE = Trace().to_json()


def record(task: str = "a", **fields: object) -> Record:
    own = Record(
        task=task,
        name=f"kernel_{task}",
        calls=2,
        target="llvm",
        kind="verdict",
        space="rules",
        sample={"tile": 1},
        values={"tile": "6 by 4"},
        ratio=0.9,
        seconds=0.9e-3,
        reference=1e-3,
        wins=True,
        trace=TRACE,
        features=(1.0, 2.5),
        at=1.0,
        versions={"tilewright": "0"},
    )
    return replace(own, **fields)  # type: ignore[arg-type]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    records = [record("a"), record("b", ratio=None, failure="crash", wins=False, trace=None)]
    file = RecordFile(path)
    for r in records:
        file.add(r)
    file.close()
    assert read_records(path) == records
    write_records(records * 2, tmp_path / "two.jsonl")
    assert read_records([path, tmp_path / "two.jsonl"]) == records * 3


@pytest.mark.parametrize("cut", [1, 2, 30, 200])
def test_a_torn_line_is_no_record_and_is_ended(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(record("a").line() + record("b").line()[:-cut])
    assert [r.task for r in read_records(path)] == ["a"]
    file = RecordFile(path)
    file.add(record("c"))
    file.close()
    found = [r.task for r in _quietly(path)]
    assert found in (["a", "c"], ["a", "b", "c"]), "only a line that is whole may come back"


def _quietly(path: Path) -> list[Record]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read_records(path)


WRITER = """
import sys
from dataclasses import replace
from tilewright.tune.records.file import RecordFile
from tilewright.tune.records.record import Record
first = Record.of_line(sys.stdin.buffer.readline())
file = RecordFile(sys.argv[1])
for k in range(10**9):
    file.add(replace(first, task=str(k)))
    print(k, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_killed_at_any_moment_only_the_line_under_way_is_lost(tmp_path: Path) -> None:
    path, rng = tmp_path / "r.jsonl", random.Random(0)
    for _ in range(4):
        before = len(_quietly(path)) if path.exists() else 0
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(tw.__file__).parent.parent)},
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(record().line())
        process.stdin.close()
        process.stdout.readline()
        time.sleep(rng.uniform(0, 0.02))
        process.send_signal(signal.SIGKILL)
        told = 1 + len(process.stdout.read().split(b"\n")[:-1])
        process.wait()
        assert len(_quietly(path)) - before >= told, "what was told of is there"


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"sample": {"tile": "many"}},
        {"sample": None},
        {"ratio": "fast"},
        {"ratio": -1.0},
        {"features": [None]},
        {"kind": "guess"},
        {"trace": 7},
        {"calls": True},
        {"task": 3},
    ],
)
def test_lines_that_are_no_records_are_told_of_once(tmp_path: Path, change: dict) -> None:
    path = tmp_path / "r.jsonl"
    bad = json.dumps({**json.loads(record().line()), **change}).encode() + b"\n"
    path.write_bytes(bad + b"{]\n" + b"[" * 5000 + b"\n" + record("b").line() + b"\xff\n")
    with pytest.warns(UserWarning, match=r"line 1 of .*r\.jsonl: its .* \(and 3 others\)") as told:
        assert [r.task for r in read_records(path)] == ["b"]
    assert len(told) == 1


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(tw.UserError, match=r"cannot read the records in .*none"):
        read_records(tmp_path / "none")
    with pytest.raises(tw.UserError, match="cannot write the records in"):
        RecordFile(tmp_path / "no" / "folder")


def test_the_fastest_winner_is_applied() -> None:
    records = [
        record("a", ratio=0.8),
        record("a", ratio=0.7, trace={**TRACE, "steps": [{"name": "x", "args": []}]}),
        record("a", ratio=0.5, wins=False, trace={**TRACE, "steps": [1]}),
        record("a", ratio=0.4, kind="trial", wins=False, trace={**TRACE, "steps": [2]}),
        record("a", target="llvm -mcpu=znver4", ratio=0.3),
        record("b", ratio=1.2, wins=False),
    ]
    best = best_records(records)
    assert {t: {k: r.ratio for k, r in found.items()} for t, found in best.items()} == {
        "llvm": {"a": 0.7},
        "llvm -mcpu=znver4": {"a": 0.3},
    }


def test_what_was_measured_last_decides_about_a_schedule() -> None:
    assert best_records([record(), record(ratio=1.1, wins=False)]) == {}


def test_a_record_whose_trace_is_damaged_is_left_out() -> None:
    damaged = record("b", trace={"version": 1, "steps": "none"})
    with pytest.warns(UserWarning, match="the record of kernel_b is left out: cannot read"):
        found = schedulers_of([record("a"), damaged])
    assert list(found["llvm"]) == ["a"]


def test_the_report_is_one_page_that_escapes_what_it_shows() -> None:
    trials = [record(kind="trial", ratio=r, wins=False) for r in (1.2, 0.95, None, 0.9)]
    page = page_of([*trials, record(name="<script>"), record("b", failure="crash", ratio=None)])
    assert "&lt;script&gt;" not in page.split("<h2>")[0] or "<script" not in page
    assert "<script" not in page and "http" not in page
    assert "×1.11" in page and "1 crash" in page and page.count("<svg") == 1
