"""Files of arrays that are damaged, malicious, or not what the model takes."""

from __future__ import annotations

import os
import random
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

X = np.ones((2, 8), np.float32)
pytestmark = pytest.mark.usefixtures("elsewhere")


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("good.npz", x=X)


def _npy(shape: str, data: bytes = bytes(64)) -> bytes:
    """An array as its file format has it, whose header says what it likes."""
    head = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(10 + len(head) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


def _zipped(name: str, data: bytes) -> None:
    with zipfile.ZipFile("in.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, data)


def _central(offset: int, value: int) -> None:
    """The good file with a byte of its directory changed."""
    data = bytearray(Path("good.npz").read_bytes())
    data[data.rfind(b"PK\x01\x02") + offset] = value
    Path("in.npz").write_bytes(data)


MALICIOUS: dict[str, Callable[[], object]] = {
    "encrypted": lambda: _central(8, 1),
    "packed by an unknown method": lambda: _central(10, 99),
    "an extent that no machine has": lambda: _zipped("x.npy", _npy(f"({10**30}, 8)")),
    "a negative extent": lambda: _zipped("x.npy", _npy("(-1, 8)")),
    "code in the header": lambda: _zipped("x.npy", _npy("__import__('os').mkdir('made')")),
    "a header nested deeply": lambda: _zipped("x.npy", _npy("(" * 500 + ")" * 500)),
    "no array": lambda: _zipped("x", b"hello"),
    "a pipe": lambda: os.mkfifo("in.npz"),
    "objects": lambda: np.savez("in.npz", x=np.array([{}, 1], object)),
}


@pytest.mark.parametrize("what", list(MALICIOUS))
def test_files_that_are_no_arrays(what: str, tilewright, artifact: Path) -> None:
    MALICIOUS[what]()
    outcome = tilewright("run", artifact, "--inputs", "in.npz")
    assert outcome.code == 3
    assert outcome.err.startswith("error: in.npz is no .npz file of arrays: ")
    assert not Path("made").exists()


def test_more_than_there_is_memory_for(tilewright, artifact: Path) -> None:
    _zipped("x.npy", _npy(f"({1 << 46}, 8)"))
    outcome = tilewright("run", artifact, "--inputs", "in.npz")
    assert outcome.code == 3 and "not enough memory" in outcome.err


def test_files_without_arrays_are_not_made_up(tilewright, artifact: Path) -> None:
    np.savez("in.npz")
    outcome = tilewright("run", artifact, "--inputs", "in.npz")
    assert outcome.code == 3 and "in.npz lacks x" in outcome.err
    assert tilewright("run", artifact, "--inputs", "in.npz", "--fill", "ones").code == 0


def test_damaged_files(tilewright, artifact: Path) -> None:
    good = Path("good.npz").read_bytes()
    rng = random.Random(0)
    for trial in range(60):
        data = bytearray(good[: rng.randrange(len(good))] if trial % 3 == 0 else good)
        for _ in range(rng.randrange(1, 6)):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        Path("in.npz").write_bytes(data)
        outcome = tilewright("run", artifact, "--inputs", "in.npz")
        assert outcome.code in (0, 3), (trial, outcome)
