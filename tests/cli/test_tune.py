"""`tilewright tune`, `tilewright records` and `compile --records`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.tune.test_records import record
from tilewright.cli.report.collect import collect
from tilewright.schedule import Trace
from tilewright.tune.tasks import key_of_kernel


def test_a_model_is_tuned_shown_and_compiled(tilewright: Any, model: Path, tmp_path: Path) -> None:
    records, page = tmp_path / "r.jsonl", tmp_path / "page.html"
    options = ["--records", records, "--budget", "60s", "--trials", 1, "--tuner", "ga"]
    found = tilewright("tune", model, *options, "--dim", "n=64", "--report", page, "--json")
    assert found.code == 0, found.err
    assert found.json["trials"] >= 1 and found.json["gain"] >= 1
    assert "<svg" in page.read_text(encoding="utf-8")
    shown = tilewright("records", records, "--json").json
    assert shown["measurements"] >= 1 and shown["tasks"] >= 1
    merged = tmp_path / "merged.jsonl"
    assert tilewright("records", records, records, "-o", merged).code == 0
    assert tilewright("records", merged, "--json").json["measurements"] == 2 * shown["measurements"]
    out = tmp_path / "m.twm"
    assert tilewright("compile", model, "--records", merged, "-o", out).code == 0
    assert tilewright("run", out, "--records", merged).code == 3


def test_what_records_change_is_shown(tilewright: Any, model: Path, tmp_path: Path) -> None:
    plain = tw.compile(str(model))
    assert isinstance(plain, tw.Model)
    path, name = tmp_path / "r.jsonl", plain.kernels[0]
    own = record(key_of_kernel(plain, name), target=plain.target.machine, trace=Trace().to_json())
    tw.tune.write_records([own], path)
    default = tilewright("inspect", model, "--schedule", name)
    found = tilewright("inspect", model, "--schedule", name, "--records", path)
    assert default.code == found.code == 0 and default.out != found.out
    with tw.tune.apply_best(path):
        tuned = tw.compile(str(model))
    assert isinstance(tuned, tw.Model)
    assert collect(tuned, "a model")["tuned"] == {"kernels": [name], "decisions": []}
    assert collect(plain, "a model")["tuned"]["kernels"] == []


def test_what_cannot_be_used_is_said_before_the_work(
    tilewright: Any, model: Path, tmp_path: Path
) -> None:
    assert tilewright("tune", tmp_path / "none.onnx").code == 3
    found = tilewright("tune", model, "--records", tmp_path / "no" / "r.jsonl")
    assert found.code == 3 and "no such directory" in found.err
    assert "no time to spend" in tilewright("tune", model, "--budget", "soon").err
    assert tilewright("tune", model, "--tuner", "luck").code == 2
    assert tilewright("compile", model, "--records", tmp_path / "none").code == 3


def test_a_bundle_is_written_and_measured(tilewright: Any, model: Path, tmp_path: Path) -> None:
    bundle, records = tmp_path / "b.zip", tmp_path / "r.jsonl"
    found = tilewright("tune", model, "--bundle", bundle, "--trials", 1, "--dim", "n=64", "--json")
    assert found.code == 0, found.err
    assert found.json["candidates"] == found.json["tasks"] == 2
    found = tilewright("tune", "--measure", bundle, "--records", records)
    assert found.code == 0, found.err
    assert "2 trials of 2 kernels" in found.out and found.err.count("1 trials") == 2
    out = tmp_path / "m.twm"
    assert tilewright("compile", model, "--records", records, "-o", out).code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give a MODEL to tune, or a bundle to --measure"),
        (["m.twm", "--measure", "b.zip"], "m.twm"),
        (["m.onnx", "--bundle", "b.zip", "--on", "h:1"], "--bundle and --on do not go together"),
        (["m.onnx", "--name", "rasp4"], "--name and --key-file belong to --on"),
        (["m.onnx", "--on", "h:1"], "--on needs the --key-file"),
        ([__file__, "--on", "/nowhere"], "cannot open /nowhere"),
        (["--measure", "none.zip"], "none.zip"),
    ],
)
def test_ways_that_do_not_go_together(
    tilewright: Any, words: list[str], message: str, tmp_path: Path
) -> None:
    found = tilewright("tune", *words, "--records", tmp_path / "r.jsonl")
    assert found.code == 3 and message in found.err


def test_a_model_is_tuned_on_a_device(tilewright: Any, model: Path, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    from tests.rpc.hosts import started, until

    key, records = tmp_path / "k", tmp_path / "r.jsonl"
    tw.rpc.write_key(key)
    with started("tracker", key, tmp_path / "t", "--port", "0") as tracker:
        named = ("--tracker", tracker.address, "--name", "board")
        with started("server", key, tmp_path / "s", *named):
            until(lambda: tw.rpc.connect(tracker.address, key).pool("board").size)
            on = ["--on", tracker.address, "--key-file", key]
            found = tilewright("tune", model, *on)
            assert found.code == 3 and "is a tracker: give the --name" in found.err
            options = ["--records", records, "--trials", 1, "--tuner", "ga", "--dim", "n=64"]
            found = tilewright("tune", model, *on, "--name", "board", *options, "--json")
    assert found.code == 0, found.err
    assert found.json["trials"] == 2 and not found.json["failures"]


@pytest.mark.skipif(os.name != "posix", reason="sends signals")
def test_ctrl_c_keeps_everything_and_tells_what_was_gained(model: Path, tmp_path: Path) -> None:
    records = tmp_path / "r.jsonl"
    words = ["tune", str(model), "--records", str(records), "--budget", "10m", "--dim", "n=96"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tilewright", *words, "--tuner", "ga"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(tw.__file__).parent.parent)},
        text=True,
        # Processes in the background of a shell ignore the signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while process.poll() is None and not (records.exists() and records.stat().st_size):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted: " in out and "trials" in out
    assert tw.tune.read_records(records)
