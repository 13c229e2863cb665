"""The file of a reproducer: what it keeps, where it goes, what is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tilewright as tw
from tests.reproducers.faults import Break, fault_of
from tilewright.graph import Module
from tilewright.reproducers import Reproducer, read_reproducer, run_again
from tilewright.reproducers.failure import Failure
from tilewright.reproducers.file import Conditions


def example(subject: str = "def main():\n    return\n") -> Reproducer:
    failure = Failure("KeyError", "tilewright/a.py: f", "it's \"odd\"\x7f\n'''", "one\ntwo")
    options = {"limit": 1.5, "most": float("inf"), "name": "ü"}
    conditions = Conditions("llvm", 2, "bf16", ("fuse",), options, True, True, "keep")
    constants = {"w": "zeros", "k": [[1, 2], [3, 4]]}
    nodes = ("node /a (B)", "c")
    return Reproducer("pass", "x", conditions, failure, subject, "zeros", constants, nodes, True)


def test_all_of_it_comes_back(tmp_path: Path) -> None:
    path = example().write(tmp_path)
    assert read_reproducer(path) == example()
    assert path.name.startswith("tilewright-fault-") and path.suffix == ".txt"
    assert path.stat().st_mode & 0o077 == 0 or os.name != "posix"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    first = example().write(tmp_path)
    assert example().write(tmp_path) == first
    first.write_text("mine")
    other = example().write(tmp_path)
    assert other != first and first.read_text() == "mine"
    assert read_reproducer(other) == example()


def test_a_folder_is_made(tmp_path: Path) -> None:
    assert read_reproducer(example().write(tmp_path / "a" / "b")) == example()


def test_links_are_not_followed(tmp_path: Path) -> None:
    path = example().write(tmp_path)
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    assert example().write(tmp_path) != path and not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_folder_that_cannot_be_written_costs_only_the_file(
    network: Module, break_pass: Break, folder: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (folder / "file").touch()
    monkeypatch.setenv("TILEWRIGHT_FAULTS_DIR", str(folder / place))
    break_pass("tail_recursion", lambda _: True, KeyError("x"))
    error = fault_of(network)
    assert error.reproducer == "" and str(error).endswith("please report it")
    assert error.places["pass"] == "tail_recursion"


def test_a_full_disk_leaves_no_half_file(
    network: Module, break_pass: Break, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    class Full:
        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            os.close(self.number)

        def __init__(self, number: int, _: str) -> None:
            self.number = number

        def write(self, _: bytes) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("tilewright.reproducers.file.open", Full, raising=False)
    break_pass("tail_recursion", lambda _: True, KeyError("x"))
    assert fault_of(network).reproducer == ""
    assert not list(folder.iterdir()) and os.open is opened


def test_without_a_setting_it_goes_to_the_temporary_folder(
    network: Module, break_pass: Break, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TILEWRIGHT_FAULTS_DIR")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    break_pass("tail_recursion", lambda _: True, KeyError("x"))
    assert Path(fault_of(network).reproducer or "").parent == tmp_path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not toml", "no reproducer"),
        ("format = 2", "its format is 2"),
        ("format = 1", "it is not complete"),
        ("format = 1\nconditions = 3", "it is not complete"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "f.txt").write_text(text)
    with pytest.raises(tw.UserError, match=message):
        read_reproducer(tmp_path / "f.txt")


def test_binary_files_and_missing_ones_are_refused(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_bytes(b"\xff\xfe\x00")
    for name in ("f.txt", "g.txt"):
        with pytest.raises(tw.UserError, match="cannot read the reproducer"):
            read_reproducer(tmp_path / name)


def test_a_report_without_a_subject_cannot_be_run() -> None:
    with pytest.raises(tw.UserError, match="nothing to run"):
        run_again(example(subject=""))
