"""Signatures that the runtime in C checks, beside the library that made them."""

from __future__ import annotations

import ctypes
import random as randomness
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.device_runtime.built import Runtime
from tests.device_runtime.served import Served
from tilewright.device_runtime import SOURCE
from tilewright.graph import Builder
from tilewright.runtime import RunnableModel, make_key_pair

pytest.importorskip("cryptography")
pytestmark = pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")

Check = Callable[[bytes, bytes, bytes], bool]
#: The order of the base point: adding it to the second half of a signature makes another form.
_ORDER = 2**252 + 27742317777372353535851937790883648493


@pytest.fixture(scope="module")
def holds(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """The function that checks a signature of a text by a key."""
    library = tmp_path_factory.mktemp("signing") / "signing.so"
    sources = [str(SOURCE / "signing" / name) for name in ("ed25519.c", "sha512.c")]
    words = ["cc", "-O2", "-shared", "-fPIC", "-std=c11", "-Wall", "-Wextra", "-Werror", *sources]
    subprocess.run([*words, "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).tw_ed25519_holds
    function.restype = ctypes.c_bool
    function.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    return lambda signature, key, text: function(signature, key, text, len(text))


def test_signatures_of_others_hold(holds: Check) -> None:
    """Those of RFC 8032: of nothing, and of two bytes."""
    for key, text, signature in [
        (
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
            "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
            "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
        ),
    ]:
        assert holds(bytes.fromhex(signature), bytes.fromhex(key), bytes.fromhex(text))


def test_it_agrees_with_the_library_that_signs(holds: Check) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    rng = randomness.Random(5)
    for size in range(0, 300, 3):
        private = Ed25519PrivateKey.from_private_bytes(rng.randbytes(32))
        key, text = private.public_key().public_bytes_raw(), rng.randbytes(size)
        signature = private.sign(text)
        assert holds(signature, key, text)
        assert not holds(_flipped(signature, rng), key, text)
        assert not holds(signature, _flipped(key, rng), text)
        assert not holds(signature, key, text + b"\0")
        other = int.from_bytes(signature[32:], "little") + _ORDER
        assert not holds(signature[:32] + other.to_bytes(32, "little"), key, text)


def _flipped(data: bytes, rng: randomness.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


# ---- artifacts ----------------------------------------------------------------------------------


def _signed(path: Path, key: bytes | None) -> RunnableModel:
    b = Builder()
    b.output(b.relu(b.input("x", "f32", ("n", 4)) + np.arange(4, dtype=np.float32)))
    model = tw.compile(b.build())
    model.save(path, key=key)
    return model


def test_artifacts_of_those_who_are_trusted(sanitized: Runtime, tmp_path: Path) -> None:
    private, public = make_key_pair()
    _signed(tmp_path / "m.twm", private)
    (tmp_path / "ours.pem").write_bytes(public)
    (tmp_path / "other.pem").write_bytes(make_key_pair()[1])
    ours, other = (("--trusted", tmp_path / name) for name in ("ours.pem", "other.pem"))
    for words in ((), ours, (*other, *ours)):
        done = sanitized.call(tmp_path / "m.twm", *words)
        assert done.returncode == 0 and "input  x: float32[n, 4]" in done.stdout, done.stderr
    done = sanitized.call(tmp_path / "m.twm", *other)
    assert done.returncode == 1 and "no key that is trusted signed it as it is" in done.stderr
    _signed(tmp_path / "plain.twm", None)
    done = sanitized.call(tmp_path / "plain.twm", *ours)
    assert done.returncode == 1 and "it is not signed" in done.stderr
    assert sanitized.call(tmp_path / "plain.twm").returncode == 0


def test_no_part_may_be_exchanged(sanitized: Runtime, tmp_path: Path) -> None:
    """A member that is another one's, with checksums that are right, is not what was signed."""
    import zipfile

    from tests.device_runtime.built import rewritten

    private, public = make_key_pair()
    (tmp_path / "k.pem").write_bytes(public)
    _signed(tmp_path / "m.twm", private)
    with zipfile.ZipFile(tmp_path / "m.twm") as file:
        manifest = file.read("manifest.json").decode()
        names = file.namelist()
    assert "signature" in names
    words = ("--trusted", tmp_path / "k.pem")
    rewritten(tmp_path / "m.twm", tmp_path / "same.twm", {}, manifest)
    assert sanitized.call(tmp_path / "same.twm", *words).returncode == 0
    edits = {name: (name, b"x") for name in names if name != "manifest.json"}
    for name, edit in edits.items():
        rewritten(tmp_path / "m.twm", tmp_path / "e.twm", {name: edit}, manifest)
        done = sanitized.call(tmp_path / "e.twm", *words, leaks=False)
        assert done.returncode == 1 and "no key that is trusted" in done.stderr, name
    rewritten(tmp_path / "m.twm", tmp_path / "e.twm", {}, manifest + " ")
    assert "no key that is trusted" in sanitized.call(tmp_path / "e.twm", *words).stderr


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"?" * 31,
        b"-----BEGIN PUBLIC KEY-----\n",
        b"-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n",
        b"-----BEGIN PUBLIC KEY-----\n" + b"MCowBQYDK2VwAyEA" * 200 + b"\n",
        make_key_pair()[0],
    ],
    ids=["empty", "short", "cut", "no bytes", "long", "private"],
)
def test_files_that_are_no_keys(data: bytes, sanitized: Runtime, tmp_path: Path) -> None:
    _signed(tmp_path / "m.twm", make_key_pair()[0])
    (tmp_path / "k").write_bytes(data)
    done = sanitized.call(tmp_path / "m.twm", "--trusted", tmp_path / "k", leaks=False)
    assert done.returncode == 1 and "it holds no public key of Ed25519" in done.stderr
    done = sanitized.call(tmp_path / "m.twm", "--trusted", tmp_path / "none", leaks=False)
    assert done.returncode == 1 and "cannot trust" in done.stderr


def test_a_server_that_asks_for_signatures(program: Path, tmp_path: Path) -> None:
    private, public = make_key_pair()
    (tmp_path / "k.pem").write_bytes(public)
    made = Served(program, tmp_path, "--trusted", str(tmp_path / "k.pem"))
    try:
        with made.connect() as device:
            model = _signed(tmp_path / "m.twm", private)
            there, x = device.load(tmp_path / "m.twm"), np.ones((2, 4), np.float32)
            np.testing.assert_array_equal(there(x), model(x))
            with pytest.raises(tw.UserError, match="it is not signed"):
                device.load(model)
            with pytest.raises(tw.UserError, match="nobody has signed"):
                there.profile([x])
    finally:
        assert made.stop() == 0
