"""Caffe's row in the table of front ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilewright.frontends.caffe.importer import from_caffe, input_names
from tilewright.frontends.caffe.prototxt import is_network
from tilewright.frontends.sources import FrontEnd, Shapes, Source
from tilewright.graph import Module


def _convert(source: Source, shapes: Shapes, values: Mapping[str, Any]) -> Module:
    del values  # nothing in a prototxt depends on them
    return from_caffe(source.given, _weights(source), shapes)


def _weights(source: Source) -> Any:
    """The weights as they are given, or the file beside the text; networks may have none."""
    if source.params is not None or source.path is None:
        return source.params
    beside = source.path.with_suffix(".caffemodel")
    return beside if beside.is_file() else None


FRONT_END: Final = FrontEnd(
    "Caffe", lambda s: is_network(s.head), _convert, lambda s: input_names(s.given)
)
