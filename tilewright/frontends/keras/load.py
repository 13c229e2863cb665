"""A model from a `.keras` or an `.h5` file, or from its bytes."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.frontends.common.files import mapped_file
from tilewright.frontends.keras.config import as_dict
from tilewright.frontends.keras.weights import (
    MappedFile,
    NoWeights,
    RootNamedWeights,
    TreeWeights,
    WeightFile,
    Weights,
    attributes_of,
)
from tilewright.frontends.sources import Source, is_bytes
from tilewright.graph import Array
from tilewright.support.archives import UNREADABLE, read_member
from tilewright.support.errors import UserError

ZIP_MAGIC: Final = b"PK\x03\x04"
HDF5_MAGIC: Final = b"\x89HDF\r\n\x1a\n"
_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"
_MOST_TEXT: Final = 1 << 26
_MOST_BYTES: Final = 1 << 34
#: The fixed part of the header before each file in an archive.
_LOCAL_HEADER: Final = 30


@dataclass
class KerasModel:
    """The configuration of a model and its weights."""

    config: dict[str, Any]
    weights: Weights
    name: str
    version: str = ""


def is_keras(source: Source) -> bool:
    """Whether bytes or a file are a Keras model, by their content."""
    if source.head.startswith(HDF5_MAGIC):
        # No other front end reads HDF5.
        return True
    if not source.head.startswith(ZIP_MAGIC):
        return False
    try:
        with zipfile.ZipFile(_file(source)) as archive:
            return _CONFIG in archive.namelist()
    except UNREADABLE:
        return _CONFIG.encode() in source.head


def load_model(source: Source) -> KerasModel:
    """Read a file; weights stay in it until they are needed."""
    data = _data(source)
    if source.head.startswith(HDF5_MAGIC):
        return _from_hdf5(data, source.name)
    return _from_archive(data, source.name)


def _file(source: Source) -> Any:
    return source.path if source.path is not None else io.BytesIO(bytes(source.given))


def _data(source: Source) -> Array:
    if is_bytes(source.given):
        return np.frombuffer(source.given, np.uint8)
    assert source.path is not None
    try:
        return mapped_file(source.path)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {source.name}", reason=str(error)) from None


# ---- archives -----------------------------------------------------------------------------------


def _from_archive(data: Array, name: str) -> KerasModel:
    try:
        with zipfile.ZipFile(io.BufferedReader(MappedFile(data))) as archive:
            config = _parsed(_text(archive, _CONFIG, name), name)
            metadata = _metadata(archive, name)
            weights = _archived_weights(archive, data, name)
    except UNREADABLE as error:
        raise UserError(
            f"{name} is no Keras model",
            reason=f"the archive cannot be read ({error})",
            remedy="check that the file is complete",
        ) from None
    return KerasModel(config, weights, name, str(metadata.get("keras_version", "")))


def _metadata(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    if "metadata.json" not in archive.namelist():
        return {}
    return _parsed(_text(archive, "metadata.json", name), name)


def _text(archive: zipfile.ZipFile, member: str, name: str) -> bytes:
    if member not in archive.namelist():
        raise UserError(f"{name} is no Keras model", reason=f"there is no {member} in it")
    return read_member(archive, member, _MOST_TEXT)


def _archived_weights(archive: zipfile.ZipFile, data: Array, name: str) -> Weights:
    if _WEIGHTS not in archive.namelist():
        if "model.weights.json" in archive.namelist():
            raise UserError(
                f"{name} has its weights in several files",
                remedy="save the model without max_shard_size",
            )
        return NoWeights("the model")
    info = archive.getinfo(_WEIGHTS)
    if info.compress_type == zipfile.ZIP_STORED:
        inner = _stored(info, data, name)
    else:
        inner = np.frombuffer(read_member(archive, _WEIGHTS, _MOST_BYTES), np.uint8)
    file = WeightFile(inner, name)
    return TreeWeights(file, file.root)


def _stored(info: zipfile.ZipInfo, data: Array, name: str) -> Array:
    """A file that is stored uncompressed, as a view of the archive."""
    at = info.header_offset
    header = bytes(data[at : at + _LOCAL_HEADER])
    if len(header) < _LOCAL_HEADER or not header.startswith(ZIP_MAGIC):
        raise UserError(f"{name} is damaged", reason=f"{info.filename} is not where it should be")
    names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
    begin = at + _LOCAL_HEADER + names
    if begin + info.file_size > data.size:
        raise UserError(f"{name} is damaged", reason=f"{info.filename} ends after the archive")
    return data[begin : begin + info.file_size]


# ---- HDF5 ---------------------------------------------------------------------------------------


def _from_hdf5(data: Array, name: str) -> KerasModel:
    file = WeightFile(data, name)
    try:
        attributes = dict(attributes_of(file.root))
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{name} is damaged", reason=str(error)) from None
    config = attributes.get("model_config")
    if config is None:
        raise UserError(
            f"{name} holds weights without a model",
            reason="it has no attribute model_config",
            remedy="save the whole model: model.save('model.keras')",
        )
    group = file.member(file.root, "model_weights")
    text = config if isinstance(config, bytes) else str(config).encode()
    weights = NoWeights("the model") if group is None else RootNamedWeights(file, group)
    return KerasModel(_parsed(text, name), weights, name, str(attributes.get("keras_version", "")))


def _parsed(text: bytes, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{name} is damaged", reason=f"its JSON does not parse ({error})") from None
    entries = as_dict(found)
    if entries is None:
        raise UserError(f"{name} is damaged", reason="its configuration is no object")
    return entries
