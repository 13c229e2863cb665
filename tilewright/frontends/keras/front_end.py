"""Keras's row in the table of front ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilewright.frontends.keras.from_keras import from_keras, input_names
from tilewright.frontends.keras.load import is_keras
from tilewright.frontends.sources import FrontEnd, Shapes, Source
from tilewright.graph import Module


def _convert(source: Source, shapes: Shapes, values: Mapping[str, Any]) -> Module:
    return from_keras(source, shapes, values)


FRONT_END: Final = FrontEnd("Keras", is_keras, _convert, input_names)
