"""Weights in files beside the model or in its own: mapped, never read outside its folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.frontends.common.files import mapped_file
from tilewright.frontends.onnx.wire import OWN_FILE
from tilewright.support.errors import UserError


class ExternalFiles:
    """The files of one model; each is mapped once, when it is first needed."""

    def __init__(self, folder: Path | None, own: np.ndarray[Any, Any] | None = None) -> None:
        """`own` is the model's own file, if weights were left in it."""
        self._folder = None if folder is None else Path(os.path.realpath(folder))
        self._own = own
        self._maps: dict[Path, np.ndarray[Any, Any]] = {}

    def read(self, proto: Any, size: int) -> np.ndarray[Any, Any]:
        """The bytes of a tensor that takes `size` of them."""
        name = proto.name or "a tensor"
        entries = {e.key: e.value for e in proto.external_data}
        location = entries.get("location", "")
        is_own = self._own is not None and location == OWN_FILE
        file = Path("the model") if is_own else self._resolve(name, location)
        offset = _number(name, "offset", entries.get("offset", "0"))
        length = _number(name, "length", entries.get("length", str(size)))
        data = self._own if self._own is not None and is_own else self._mapped(name, file)
        if length != size:
            raise UserError(
                f"{name} has {length} bytes of external data",
                reason=f"its type and shape take {size}",
            )
        if offset + length > data.size:
            raise UserError(
                f"{name} lies at bytes {offset} to {offset + length} of {file.name}",
                reason=f"the file has {data.size}",
                remedy="check that the file is complete",
            )
        return data[offset : offset + length]

    def _resolve(self, name: str, location: str) -> Path:
        if self._folder is None:
            raise UserError(
                f"{name} has its data in the file {location!r}",
                reason="the model was not given as a path, so its folder is not known",
                remedy="pass the path of the model, or load its external data first",
            )
        if not location or "\0" in location:
            raise UserError(f"{name} has external data without a file name")
        path = Path(os.path.realpath(self._folder / location))
        if os.path.isabs(location) or not path.is_relative_to(self._folder):
            raise UserError(
                f"{name} has its data in the file {location!r}",
                reason="it lies outside the model's folder",
                remedy="move the file beside the model",
            )
        return path

    def _mapped(self, name: str, file: Path) -> np.ndarray[Any, Any]:
        if file not in self._maps:
            try:
                self._maps[file] = mapped_file(file)
            except (OSError, ValueError) as error:
                reason = getattr(error, "strerror", None) or str(error)
                raise UserError(
                    f"cannot read {file.name}, where {name} has its data", reason=reason
                ) from None
        return self._maps[file]


def _number(name: str, key: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise UserError(f"{name} has external data with the {key} {text!r}")
    return int(text)
