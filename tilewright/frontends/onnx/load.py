"""A model from a path, from bytes or from a ModelProto, with its outer shape checked."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.frontends.common.files import mapped_file
from tilewright.frontends.onnx.package import onnx_package
from tilewright.frontends.onnx.wire import without_weights
from tilewright.support.errors import UserError
from tilewright.support.narrowing import is_bytes, is_path

#: Smaller models are parsed directly.
_LARGE: Final = 1 << 22

#: The versions of the standard operators that the converters know.
NEWEST: Final = {
    "": 28,
    "ai.onnx.ml": 5,
    "ai.onnx.preview": 1,
    "ai.onnx.preview.training": 1,
    "com.microsoft": 1,
}


@dataclass(slots=True)
class LoadedModel:
    """A parsed model; `folder` is where its external data may be."""

    proto: Any
    name: str
    folder: Path | None = None
    #: Whether nobody else uses the proto, so that weights may be removed from it.
    owned: bool = False
    #: The file itself, if large weights were left in it.
    file: np.ndarray[Any, Any] | None = None
    versions: dict[str, int] = field(default_factory=dict[str, int])


def load_model(source: Any, *, mapped: bool = False) -> LoadedModel:
    """Read and parse a model; if `mapped`, large weights in a file stay there."""
    onnx = onnx_package()
    light = _load_light(source, onnx) if mapped else None
    model = light or _load(source, onnx)
    if not model.proto.HasField("graph"):
        raise UserError(
            f"{model.name} is no ONNX model",
            reason="it has no graph",
            remedy="check that the file is complete",
        )
    model.versions = read_versions(model.proto.opset_import, model.name)
    return model


def _load_light(source: Any, onnx: Any) -> LoadedModel | None:
    """A model whose weights stay in its file; None if it is small or unusual."""
    if not is_path(source):
        return None
    path = Path(os.fspath(source))
    try:
        file = mapped_file(path)
    except (OSError, ValueError):
        return None
    data = without_weights(file.data) if file.size >= _LARGE else None
    if data is None:
        return None
    return LoadedModel(_parse(data, str(path), onnx), str(path), path.parent, True, file)


def _load(source: Any, onnx: Any) -> LoadedModel:
    if is_path(source):
        path = Path(os.fspath(source))
        return LoadedModel(_parse(_read(path), str(path), onnx), str(path), path.parent, True)
    if is_bytes(source):
        data = bytes(source)
        return LoadedModel(_parse(data, "the model", onnx), "the model", None, True)
    if isinstance(source, onnx.ModelProto):
        return LoadedModel(source, "the model")
    raise UserError(
        f"cannot read an ONNX model from {type(source).__name__}",
        remedy="pass a path, bytes or an onnx.ModelProto",
    )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}", reason=error.strerror or str(error)) from None


def _parse(data: bytes, name: str, onnx: Any) -> Any:
    try:
        return onnx.ModelProto.FromString(data)
    except Exception as error:
        # The parser's own error class depends on the installed protobuf.
        raise UserError(
            f"{name} is no ONNX model",
            reason=f"it does not parse ({str(error) or type(error).__name__})",
            remedy="check that the file is complete and is in ONNX's binary format",
        ) from None


def read_versions(imports: Any, name: str) -> dict[str, int]:
    """The version of each domain that a model or a function imports."""
    versions: dict[str, int] = {}
    for entry in imports:
        domain = plain_domain(entry.domain)
        if versions.setdefault(domain, entry.version) != entry.version:
            raise UserError(f"{name} imports two versions of the operators {domain or 'ai.onnx'}")
        newest = NEWEST.get(domain)
        if entry.version < 1 or (newest is not None and entry.version > newest):
            raise UserError(
                f"{name} uses version {entry.version} of the operators {domain or 'ai.onnx'}",
                reason=f"versions 1 to {newest} are known" if newest else "there is none",
                remedy=f"export the model for opset {newest}" if newest else "",
            )
    return versions


def plain_domain(domain: str) -> str:
    """The domain as the table of converters names it."""
    return "" if domain == "ai.onnx" else domain
