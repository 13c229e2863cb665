"""Records: files that only grow, survive being killed, and can be merged."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tw
from tilewright.runtime.trials.bundled import KnownCandidates
from tilewright.schedule import Trace
from tilewright.tune import Record, best_records, read_records, write_records
from tilewright.tune.records.best import decisions_of, schedulers_of
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
        {"ratio": 0.0},
        {"ratio": math.nan},
        {"ratio": math.inf},
        {"ratio": 10**400},
        {"ratio": None},
        {"ratio": 1.0},
        {"ratio": True},
        {"seconds": 0.0},
        {"seconds": -1e-3},
        {"seconds": math.nan},
        {"reference": -math.inf},
        {"reference": 0},
        {"reference": "1"},
        {"calls": -1},
        {"calls": 10**30},
        {"at": -1.0},
        {"features": [math.nan]},
        {"sample": {"tile": 1 << 60}},
        {"failure": "crash"},
        {"kind": "trial"},
        {"name": "\ud800"},
        {"values": {"\udc00": "1"}},
        {"trace": None},
        {"trace": {"version": 1, "steps": "none"}},
        {"trace": {**TRACE, "steps": [{"name": "split", "args": [math.inf]}]}},
        {"space": "graph", "values": {}},
    ],
)
def test_lines_that_are_no_records_are_told_of_once(tmp_path: Path, change: dict) -> None:
    path = tmp_path / "r.jsonl"
    bad = json.dumps({**json.loads(record().line()), **change}).encode() + b"\n"
    path.write_bytes(bad + b"{]\n" + b"[" * 5000 + b"\n" + record("b").line() + b"\xff\n")
    with pytest.warns(UserWarning, match=r"line 1 of .*r\.jsonl: .* \(and 3 others\)") as told:
        assert [r.task for r in read_records(path)] == ["b"]
    assert len(told) == 1


def test_failures_have_no_times(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    failed = record(
        kind="trial", ratio=None, seconds=0.0, reference=0.0, wins=False, failure="crash"
    )
    path.write_bytes(failed.line())
    assert read_records(path) == [failed]


#: What may stand in the place of any value of a line.
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([0, -1, 10**30, 10**400, 1 << 63])
    | st.floats()
    | st.text(st.characters(), max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=4,
)
STEPS = [{"name": "split", "args": [{"loop": 0}, 4], "results": [{"loop": 1}, {"loop": 2}]}]


@st.composite
def damaged_lines(draw: st.DrawFn) -> bytes:
    """A line of a winner in which a value was exchanged, at any depth, or bytes were."""
    data = json.loads(record(trace={**TRACE, "steps": STEPS}).line())
    inner, key = data, draw(st.sampled_from(sorted(data)))
    while isinstance(inner[key], dict | list) and inner[key] and draw(st.booleans()):
        inner = inner[key]
        key = draw(st.sampled_from(range(len(inner)) if isinstance(inner, list) else sorted(inner)))
    inner[key] = draw(ANYTHING)
    line = bytearray(json.dumps(data).encode())
    for _ in range(draw(st.integers(0, 3))):
        line[draw(st.integers(0, len(line) - 1))] = draw(st.integers(0, 255))
    return bytes(line).replace(b"\n", b" ") + b"\n"


@given(damaged_lines())
@settings(max_examples=80, deadline=None)
def test_damaged_lines_are_right_or_skipped_with_one_message(line: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        path = Path(folder) / "r.jsonl"
        path.write_bytes(record("b").line() + line)
        found = read_records(path)
        best = best_records(found)
        assert len(told) == (len(found) < 2)
        for winner in (r for of_it in best.values() for r in of_it.values()):
            assert winner.ratio is not None and 0 < winner.ratio < 1
            assert winner.seconds > 0 and winner.reference > 0
        schedulers_of(found)
        decisions_of(found)
        page_of(found).encode()
        write_records(found, Path(folder) / "again.jsonl")
        assert len(told) == (len(found) < 2)
        assert read_records(Path(folder) / "again.jsonl") == found
        KnownCandidates.read(path)


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
