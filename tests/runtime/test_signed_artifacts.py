"""Signed artifacts: what no trusted key signed is refused before anything in it is used."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.networks import mlp, random
from tilewright.cli import main
from tilewright.runtime import make_key_pair
from tilewright.runtime.artifact import container
from tilewright.support.errors import UserError

pytest.importorskip("cryptography")
X = random(3, 24)


@pytest.fixture(scope="module")
def model() -> Any:
    return tw.compile(mlp())


@pytest.fixture(scope="module")
def keys() -> tuple[bytes, bytes]:
    return make_key_pair()


@pytest.fixture
def signed(model: Any, keys: tuple[bytes, bytes], tmp_path: Path) -> Path:
    model.save(tmp_path / "signed.twm", key=keys[0])
    return tmp_path / "signed.twm"


def test_what_is_signed_loads(
    model: Any, keys: tuple[bytes, bytes], signed: Path, tmp_path: Path
) -> None:
    (tmp_path / "mine.pub.pem").write_bytes(keys[1])
    other = make_key_pair()[1]
    for trusted in (keys[1], tmp_path / "mine.pub.pem", [other, str(tmp_path / "mine.pub.pem")]):
        found = tw.load(signed, trusted=trusted).run([X])
        np.testing.assert_array_equal(found[0], model.run([X])[0])
    # Without keys, a signature changes nothing.
    tw.load(signed).run([X])


def test_raw_keys(model: Any, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    model.save(tmp_path / "m.twm", key=private.private_bytes_raw())
    tw.load(tmp_path / "m.twm", trusted=private.public_key().public_bytes_raw()).run([X])


def test_what_is_not_signed_by_the_trusted_is_refused(
    model: Any, keys: tuple[bytes, bytes], signed: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="no key that is trusted signed it"):
        tw.load(signed, trusted=make_key_pair()[1])
    model.save(tmp_path / "plain.twm")
    with pytest.raises(UserError, match="it is not signed"):
        tw.load(tmp_path / "plain.twm", trusted=keys[1])


@pytest.mark.parametrize("change", ["manifest.json", "params.bin", "texts/graph.txt", "extra", "o"])
def test_any_change_breaks_the_signature(
    keys: tuple[bytes, bytes], signed: Path, tmp_path: Path, change: str
) -> None:
    path = tmp_path / "changed.twm"
    with zipfile.ZipFile(signed) as old, container.ContainerWriter(path) as new:
        for name in old.namelist():
            data = old.read(name)
            if name == change or (change == "o" and name.endswith(".o")):
                data = data[:-1] + bytes([data[-1] ^ 1])
            new.add(name, [data], len(data))
        if change == "extra":
            new.add("extra", [b"more"], 4)
    with pytest.raises(UserError, match="no key that is trusted signed it"):
        tw.load(path, trusted=keys[1])


def test_keys_that_are_none(model: Any, keys: tuple[bytes, bytes], signed: Path) -> None:
    for key in (b"short", keys[1], "missing.pem", b"-----BEGIN PRIVATE KEY-----\nx"):
        with pytest.raises(UserError, match="cannot sign by"):
            model.save("never.twm", key=key)
    for trusted in (keys[0], b"", "a\0b", Path("missing.pem")):
        with pytest.raises(UserError, match="cannot trust"):
            tw.load(signed, trusted=trusted)
    with pytest.raises(UserError, match="cannot trust nobody"):
        tw.load(signed, trusted=[])


def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx = pytest.importorskip("onnx")
    from tests.frontends.onnx.models import info, make, node

    monkeypatch.chdir(tmp_path)
    onnx.save(make([node("Relu", ["x"])], [info("x", shape=[4])], ["y"]), "m.onnx")
    assert main(["keygen", "mine"]) == 0 and main(["keygen", "other"]) == 0
    assert stat.S_IMODE(Path("mine.pem").stat().st_mode) == 0o600
    assert main(["keygen", "mine"]) == 3
    assert main(["compile", "m.onnx", "--sign-key", "mine.pem"]) == 0
    run = ["run", "m.twm", "--fill", "ones"]
    assert main([*run, "--trusted", "mine.pub.pem"]) == 0
    assert main([*run, "--trusted", "other.pub.pem", "--trusted", "mine.pub.pem"]) == 0
    assert main([*run, "--trusted", "other.pub.pem"]) == 3
    assert main(["run", "m.onnx", "--fill", "ones", "--trusted", "mine.pub.pem"]) == 3
    assert "only artifacts are signed" in capsys.readouterr().err
