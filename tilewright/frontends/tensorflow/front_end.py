"""TensorFlow's row in the table of front ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilewright.frontends.sources import FrontEnd, Shapes, Source
from tilewright.frontends.tensorflow.from_tensorflow import from_tensorflow, input_names
from tilewright.frontends.tensorflow.load import is_tensorflow
from tilewright.graph import Module


def _convert(source: Source, shapes: Shapes, values: Mapping[str, Any]) -> Module:
    return from_tensorflow(source, shapes, values)


FRONT_END: Final = FrontEnd("TensorFlow", is_tensorflow, _convert, input_names)
