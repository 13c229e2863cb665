"""Standard streams that are closed, full, or read by nobody."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TILEWRIGHT = [sys.executable, "-m", "tilewright"]


def _shell(line: str, *words: object) -> subprocess.CompletedProcess[str]:
    """A command whose streams bash has tied as `line` says."""
    command: list[Any] = ["bash", "-c", line, "bash", *TILEWRIGHT, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("words", [["inspect"], ["run"], ["run", "--json"]], ids=" ".join)
def test_a_reader_that_goes(words: list[str], artifact: Path) -> None:
    done = _shell('set -o pipefail; "$@" | true', words[0], artifact, *words[1:])
    assert (done.returncode, done.stderr) == (0, "")


def test_stdout_that_is_closed(artifact: Path) -> None:
    done = _shell('"$@" >&-', "inspect", artifact)
    assert (done.returncode, done.stderr) == (0, "")


def test_stderr_that_is_closed(artifact: Path) -> None:
    done = _shell('"$@" 2>&-', "inspect", "nothing.onnx")
    assert (done.returncode, done.stdout) == (3, "")
    assert _shell('"$@" >&- 2>&-', "inspect", artifact).returncode == 0


def test_errors_that_nobody_reads(artifact: Path) -> None:
    line = 'exec 3>&1; { "$@" 2>&1 >/dev/null; echo $? >&3; } | true'
    assert _shell(line, "inspect", "nothing.onnx").stdout == "3\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk(artifact: Path) -> None:
    done = _shell('"$@" >/dev/full', "inspect", artifact)
    assert done.returncode == 3 and "No space left on device" in done.stderr


def test_more_threads_than_there_can_be(artifact: Path) -> None:
    for count in ("4294967298", "5000"):
        done = _shell(f'TILEWRIGHT_NUM_THREADS={count} "$@"', "run", artifact)
        assert done.returncode == 3 and f"a pool of {count} threads" in done.stderr
