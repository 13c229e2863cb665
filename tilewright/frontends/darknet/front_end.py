"""Darknet's row in the table of front ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tilewright.frontends.darknet.cfg import is_cfg
from tilewright.frontends.darknet.importer import INPUT, from_darknet
from tilewright.frontends.sources import FrontEnd, Shapes, Source
from tilewright.graph import Module
from tilewright.support.errors import UserError


def _convert(source: Source, shapes: Shapes, values: Mapping[str, Any]) -> Module:
    del values  # nothing in a cfg file depends on them
    return from_darknet(source.given, _weights(source), shapes)


def _weights(source: Source) -> Any:
    """The weights as they are given, or the file beside the cfg file."""
    if source.params is not None:
        return source.params
    beside = source.path.with_suffix(".weights") if source.path is not None else None
    if beside is None or not beside.is_file():
        raise UserError(
            f"{source.name} has its weights in a file of its own",
            reason="none is given" + ("" if beside is None else f", and there is no {beside.name}"),
            remedy="pass params='….weights'",
        )
    return beside


FRONT_END: Final = FrontEnd("Darknet", lambda s: is_cfg(s.head), _convert, lambda _: [INPUT])
