"""Archives that are damaged, or made to do harm."""

from __future__ import annotations

import contextlib
import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.frontends.keras.files import archive as keras_archive
from tests.frontends.keras.files import functional, input_layer, layer
from tilewright.frontends.sources import Source, front_end_of, read_model
from tilewright.runtime.trials.bundle import Bundle
from tilewright.support.archives import UNREADABLE, read_member
from tilewright.support.errors import UserError


def packed(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return made.getvalue()


def other_directories(data: bytes) -> Iterator[bytes]:
    """The archive with one byte of its headers, its directory or its end changed."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        places = [*range(30), *range(archive.start_dir, len(data))]
    for at in places:
        for change in (0x01, 0x40, 0xFF):
            yield data[:at] + bytes([data[at] ^ change]) + data[at + 1 :]


def keras() -> bytes:
    return keras_archive(
        functional([input_layer("x", 3), layer("ReLU", "y", "x")], ["x"], ["y"]), {}
    )


@pytest.mark.parametrize(
    "data",
    [keras(), packed({"net/data.pkl": b"\x80"}), packed({"net/models/model.json": b"{}"})],
    ids=["keras", "pickle", "pt2"],
)
def test_front_ends_refuse_what_they_cannot_read(data: bytes) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("h5py")
    for changed in other_directories(data):
        with contextlib.suppress(UserError):
            front_end_of(Source(changed))
            read_model(changed)


def test_bundles_of_candidates(tmp_path: Path) -> None:
    for changed in other_directories(packed({"bundle.json": b"{}", "pool": bytes(64)})):
        (tmp_path / "b.zip").write_bytes(changed)
        with pytest.raises(UserError):
            Bundle(tmp_path / "b.zip")


def refusal(data: bytes, most: int = 1 << 40) -> Callable[[], bytes]:
    return lambda: read_member(zipfile.ZipFile(io.BytesIO(data)), "a", most)


def test_members_are_read_as_far_as_they_are_sound() -> None:
    assert refusal(packed({"a": b"abc"}))() == b"abc"
    with pytest.raises(UserError, match="a has 3 bytes"):
        refusal(packed({"a": b"abc"}), most=2)()
    with pytest.raises(UserError, match="a has 134217728 bytes: that cannot be"):
        refusal(packed({"a": bytes(1 << 27)}))()
    with pytest.raises(UserError, match="packed in a way that is not supported"):
        refusal(packed({"a": b"abc"}, zipfile.ZIP_LZMA))()


def test_members_whose_bytes_are_damaged() -> None:
    data = packed({"a": bytes(range(256)) * 9})
    for at in range(31, len(data) - 80):
        changed = data[:at] + b"\xff" + data[at + 1 :]
        with contextlib.suppress(*UNREADABLE):
            assert refusal(changed)() == bytes(range(256)) * 9
