"""TFLite's row in the table of front ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilewright.frontends.sources import FrontEnd, Shapes, Source
from tilewright.frontends.tflite.from_tflite import from_tflite, input_names
from tilewright.frontends.tflite.load import MARK
from tilewright.graph import Module


def _recognises(source: Source) -> bool:
    """Files and bytes with TFLite's identifier."""
    return source.head[4:8] == MARK


def _convert(source: Source, shapes: Shapes, values: Mapping[str, Any]) -> Module:
    return from_tflite(source.given, shapes, values)


FRONT_END: Final = FrontEnd("TFLite", _recognises, _convert, lambda s: input_names(s.given))
