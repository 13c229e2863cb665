"""Bad input on every command: one message, the right exit code, nothing half-written."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tilewright.cli import build_parser, main

#: Every command that opens a model, with what else it needs.
OPENING = {
    "compile": ["-o", "out.twm"],
    "run": [],
    "bench": ["--seconds", "0.01"],
    "profile": ["--trace", "trace.json"],
    "inspect": [],
    "report": ["-o", "out.html"],
    "compare": [],
    "export": ["--format", "a", "-o", "out.a"],
    "tune": ["--records", "out.jsonl", "--trials", "1", "--budget", "1s"],
    "quantize": ["--data", "random", "-o", "out.onnx"],
}
pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def _refused(outcome, *words: str) -> None:
    assert outcome.code == 3, outcome
    assert outcome.err.startswith("error: ") and "Traceback" not in outcome.err
    for word in words:
        assert word in outcome.err


def _nothing_left(folder: Path, *allowed: str) -> None:
    assert sorted(p.name for p in folder.iterdir()) == sorted(allowed)


def test_every_command_is_tried() -> None:
    commands = {a.dest: a for a in build_parser()._actions}["command"].choices or ()
    others = {"doctor", "demo", "keygen", "reproduce", "cache", "completion", "records", "rpc"}
    assert set(commands) == {*OPENING, *others}


@pytest.mark.parametrize("command", OPENING)
class TestModels:
    def test_missing(self, tilewright, command: str, tmp_path: Path) -> None:
        _refused(tilewright(command, "gone.onnx", *OPENING[command]), "gone.onnx: no such file")
        _nothing_left(tmp_path)

    def test_a_directory(self, tilewright, command: str, tmp_path: Path) -> None:
        (tmp_path / "folder.onnx").mkdir()
        outcome = tilewright(command, "folder.onnx", *OPENING[command])
        _refused(outcome, "folder.onnx: is a directory")
        _nothing_left(tmp_path, "folder.onnx")

    def test_damaged(self, tilewright, command: str, tmp_path: Path) -> None:
        (tmp_path / "bad.onnx").write_bytes(b"\x00\x01 not a model")
        _refused(tilewright(command, "bad.onnx", *OPENING[command]), "bad.onnx")
        _nothing_left(tmp_path, "bad.onnx")

    def test_an_unknown_target(self, tilewright, command: str, model: Path) -> None:
        if command == "quantize":
            pytest.skip("quantized models are for every target")
        words = [command, model, *OPENING[command], "--target", "llvm -mcpu=pentium99"]
        _refused(tilewright(*words), "pentium99")

    def test_a_shape_of_no_input(self, tilewright, command: str, model: Path) -> None:
        _refused(tilewright(command, model, *OPENING[command], "--shapes", "z=1,8"), "z")

    def test_as_json(self, tilewright, command: str) -> None:
        outcome = tilewright(command, "gone.onnx", *OPENING[command], "--json")
        assert outcome.json["error"] == {
            "code": 3,
            "kind": "refused",
            "message": "gone.onnx: no such file",
        }


@pytest.mark.parametrize("command", ["run", "inspect", "bench", "profile", "report", "export"])
def test_damaged_artifacts(tilewright, command: str, tmp_path: Path) -> None:
    (tmp_path / "bad.twm").write_bytes(b"PK\x03\x04 not an artifact")
    _refused(tilewright(command, "bad.twm"), "bad.twm")
    _nothing_left(tmp_path, "bad.twm")


# ---- arrays -------------------------------------------------------------------------------------


def test_names_that_are_no_inputs(tilewright, artifact: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", xx=np.zeros((1, 8), np.float32))
    _refused(tilewright("run", artifact, "--inputs", "in.npz"), "holds xx", "did you mean x?")


def test_arrays_of_another_type(tilewright, artifact: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.zeros((1, 8)))
    _refused(tilewright("run", artifact, "--inputs", "in.npz"), "input x must be float32[n, 8]")


@pytest.mark.parametrize("content", [b"", b"not arrays", b"PK\x03\x04 nor here"])
def test_files_of_no_arrays(tilewright, artifact: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "in.npz").write_bytes(content)
    _refused(tilewright("run", artifact, "--inputs", "in.npz"), "in.npz is no .npz file")


def test_pickled_arrays_are_not_opened(tilewright, artifact: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.array([{}], object))
    _refused(tilewright("run", artifact, "--inputs", "in.npz"), "in.npz is no .npz file")


# ---- outputs ------------------------------------------------------------------------------------

WRITING = {
    "compile": lambda path: ["-o", path],
    "run": lambda path: ["--outputs", path],
    "profile": lambda path: ["--trace", path],
    "report": lambda path: ["--no-profile", "-o", path],
    "export": lambda path: ["--format", "a", "-o", path if path == "." else f"{path}.a"],
}


@pytest.mark.parametrize("command", WRITING)
def test_outputs_that_cannot_be_written(tilewright, command: str, model: Path) -> None:
    outcome = tilewright(command, model, *WRITING[command]("no/such/folder/out"))
    _refused(outcome, "no/such/folder")
    outcome = tilewright(command, model, *WRITING[command]("."))
    assert outcome.code == 3


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Files cannot grow: writes fail as they do where no space is left."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("command", WRITING)
def test_a_full_disk(tilewright, command: str, model: Path, tmp_path: Path, full_disk) -> None:
    (tmp_path / "out").write_bytes(b"what was there")
    _refused(tilewright(command, model, *WRITING[command]("out")), "cannot write out")
    assert (tmp_path / "out").read_bytes() == b"what was there"
    _nothing_left(tmp_path, "out")


def test_nowhere_to_print(model: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    words = [sys.executable, "-m", "tilewright", "cache"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 3
    assert "No space left" in done.stderr and "Traceback" not in done.stderr


# ---- interruption -------------------------------------------------------------------------------


def test_interruption_while_a_file_is_written(
    tilewright, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(file, **arrays: object) -> None:
        file.write(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    outcome = tilewright("run", model, "--outputs", "out.npz")
    assert outcome.code == 130
    assert outcome.err == "interrupted\n"
    _nothing_left(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
@pytest.mark.parametrize("command", ["run", "bench", "profile"])
def test_an_artifact_of_another_cpu(tilewright, command: str, model: Path, tmp_path: Path) -> None:
    here = tw.Target.of("llvm").arch
    other = "x86_64" if here == "aarch64" else "aarch64"
    target = f"llvm -mtriple={other}-unknown-linux-gnu"
    assert tilewright("compile", model, "-o", "other.twm", "--target", target).code == 0
    _refused(tilewright(command, "other.twm", *OPENING[command]), other)
    _nothing_left(tmp_path, "other.twm")


def test_ctrl_c_while_it_compiles(model: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "tilewright", "compile", str(model), "-o", "out.twm"]
    process = subprocess.Popen(
        [*words, "--print-ir-after", "inline_functions"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TILEWRIGHT_CACHE": "0", "PYTHONUNBUFFERED": "1"},
        # Processes in the background of a shell ignore the signal, and so do their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    # The first pass has run, kernels have not been compiled yet.
    assert process.stdout.readline() == "# after inline_functions\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "interrupted\n")
    _nothing_left(tmp_path)


# ---- the command line itself --------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["frobnicate"],
        ["run"],
        ["run", "m.onnx", "--repeat", "0"],
        ["run", "m.onnx", "--dim", "n"],
        ["compile", "m.onnx", "--shapes", "x"],
        ["compile", "m.onnx", "--opt-level", "9"],
        ["bench", "m.onnx", "--vs", "nobody"],
        ["compare", "m.onnx", "--against", "the wind"],
        ["cache", "burn"],
    ],
)
def test_words_that_make_no_sense(tilewright, words: list[str]) -> None:
    outcome = tilewright(*words)
    assert outcome.code == 2
    assert outcome.err.startswith("usage: ")


def test_a_precision_that_there_is_not(tilewright, model: Path) -> None:
    outcome = tilewright("compile", model, "--precision", "int4")
    assert outcome.code == 3
    assert "there is no precision int4" in outcome.err
    assert "float32, tf32, float16, bf16, float8 or int8-dynamic" in outcome.err


def test_a_fault_of_our_own(tilewright, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.support import cache

    def broken() -> None:
        raise ZeroDivisionError("by nobody's fault but ours")

    monkeypatch.setattr(cache, "default_cache", broken)
    outcome = tilewright("cache")
    assert outcome.code == 4
    assert "internal error: ZeroDivisionError: by nobody's fault but ours" in outcome.err
    assert "please report it" in outcome.err


def test_a_reader_that_goes_away(model: Path) -> None:
    command = f"'{sys.executable}' -m tilewright completion bash | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("_", "")


def test_main_returns_numbers() -> None:
    assert main(["--version"]) == 0
