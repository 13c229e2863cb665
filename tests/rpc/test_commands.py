"""`tilewright rpc` on the command line."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.rpc.hosts import started, until
from tilewright.cli import main


def _told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict]:
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_keys_are_for_their_owner_and_never_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "k"
    code, told = _told(capsys, "rpc", "keygen", str(path))
    assert code == 0 and told["key"] == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_text()
    code, told = _told(capsys, "rpc", "keygen", str(path))
    assert code == 3 and "keys are not replaced" in told["error"]["message"]
    assert path.read_text() == before


def test_devices_are_listed(key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        started("tracker", key, tmp_path / "t", "--port", "0") as tracker,
        started("server", key, tmp_path / "s", "--tracker", tracker.address, "--name", "pi"),
    ):
        words = ("rpc", "list", tracker.address, "--key-file", str(key))
        until(lambda: _told(capsys, *words)[1]["devices"])
        assert main(words) == 0
        assert "pi" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "127.0.0.1:1"], "cannot reach 127.0.0.1:1"),
        (["server", "--port", "70000"], "cannot listen on"),
        (["server", "--host", "203.0.113.7"], "cannot listen on 203.0.113.7:0"),
    ],
)
def test_what_cannot_be_done_is_said(
    words: list[str],
    message: str,
    key: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = ["--folder", str(tmp_path), "--target", "llvm"] if words[0] == "server" else []
    code, told = _told(capsys, "rpc", *words, "--key-file", str(key), *more)
    assert code == 3 and message in told["error"]["message"]
    assert not list(tmp_path.iterdir())


def test_a_folder_of_others_is_refused(
    key: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o777)
    words = ("rpc", "tracker", "--key-file", str(key), "--folder", str(tmp_path))
    code, told = _told(capsys, *words)
    assert code == 3 and "this user alone" in told["error"]["message"]
    (tmp_path / "k").write_text("secret")
    words = ("rpc", "tracker", "--key-file", str(tmp_path / "k"))
    code, told = _told(capsys, *words)
    assert code == 3 and "is no key for remote devices" in told["error"]["message"]
