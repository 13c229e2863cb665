"""ONNX's row in the table of front ends."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from tilewright.frontends.onnx.from_onnx import from_onnx, input_names
from tilewright.frontends.sources import FrontEnd, Shapes, Source
from tilewright.graph import Module


def _recognises(source: Source) -> bool:
    """Paths and bytes that no other front end has taken, and ONNX's own objects."""
    given = source.given
    if isinstance(given, str | os.PathLike | bytes | bytearray | memoryview):
        return True
    return type(given).__name__ == "ModelProto"


def _convert(source: Source, shapes: Shapes, values: Mapping[str, Any]) -> Module:
    return from_onnx(source.given, shapes=shapes, values=values, mapped=True)


FRONT_END: Final = FrontEnd("ONNX", _recognises, _convert, lambda s: input_names(s.given))
