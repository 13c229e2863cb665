"""From a cfg file and its weights to a graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from tilewright.frontends.common.borders import add_output, require_names
from tilewright.frontends.common.converting import converting
from tilewright.frontends.common.damaged import trusting
from tilewright.frontends.common.files import content_of, text_of
from tilewright.frontends.common.input_shapes import (
    Shape,
    input_dims,
    merged_shape,
)
from tilewright.frontends.common.missing import refuse_missing
from tilewright.frontends.darknet.cfg import Section, parse_cfg
from tilewright.frontends.darknet.layer import Layer
from tilewright.frontends.darknet.table import TABLE
from tilewright.frontends.darknet.weights import Weights
from tilewright.graph import Array, Builder, Module, Value, passes
from tilewright.support.errors import UserError

_WHAT: Final = "the Darknet network"
_REMEDY: Final = "check that cfg and weights belong together and are complete"
INPUT: Final = "data"
#: Layers whose results are the outputs of a network.
_RESULTS: Final = frozenset({"yolo", "region", "detection"})


def from_darknet(cfg: Any, weights: Any, shapes: Mapping[str, Shape] | None = None) -> Module:
    """The graph of a Darknet network: cfg and weights, each a path or bytes.

    The input `data` is an image N×C×H×W with the sizes of the cfg file and N = 1, as Darknet runs
    it; `shapes` gives others. Outputs are the detection layers, or else the last layer.
    """
    with trusting(_WHAT, _REMEDY):
        passes.require_shapes(shapes or {})
        require_names("shapes", shapes or {}, [INPUT])
        name = str(cfg) if isinstance(cfg, str) else "the cfg file"
        sections = parse_cfg(text_of(cfg, "the cfg file"), name)
        _require_converters(sections)
        numbers = Weights(content_of(weights, "the weights"))
        return _converted(sections, numbers, (shapes or {}).get(INPUT))


def _require_converters(sections: list[Section]) -> None:
    missing: dict[str, list[str]] = defaultdict(list)
    for section in sections[1:]:
        if TABLE.find("", section.kind) is None:
            missing[f"[{section.kind}]"].append(f"line {section.line}")
    refuse_missing(_WHAT, missing)


def _converted(sections: list[Section], weights: Weights, given: Shape | None) -> Module:
    builder = Builder("main")
    values = [_input(sections[0], builder, given)]
    height, width = (int(getattr(d, "value", 0)) for d in values[0].shape[2:])
    read: set[int] = set()
    named = set(values)
    for index, section in enumerate(sections[1:]):
        origin = f"layer {index} [{section.kind}] of line {section.line}"
        with converting(builder, "layer", origin, _REMEDY):
            convert = TABLE.find("", section.kind)
            assert convert is not None
            layer = Layer(section, index, values, builder, weights, (height, width))
            values.append(_named(convert(layer), named, f"{section.kind}_{index}"))
            read |= layer.reads
    weights.require_end()
    _add_outputs(builder, sections[1:], values, read)
    return builder.build()


def _input(section: Section, builder: Builder, given: Shape | None) -> Value:
    net = Layer(section, 0, [], builder, Weights(_NOTHING), (0, 0))
    net.refuse("time_steps") if net.integer("time_steps", 1) != 1 else None
    if not net.has("height") or not net.has("width"):
        raise UserError("[net] does not say height and width", remedy="add them")
    declared = [1, net.positive("channels", 3), net.positive("height", 1), net.positive("width", 1)]
    shape = merged_shape(INPUT, declared, given, fixed=False)
    return builder.input(INPUT, "f32", input_dims(INPUT, shape, builder))


def _named(value: Any, named: set[Value], name: str) -> Value:
    """Name a layer's value by its number; one that passes through keeps its name."""
    if value not in named:
        value.name = name
        named.add(value)
    return value


def _add_outputs(
    builder: Builder, sections: list[Section], values: list[Value], read: set[int]
) -> None:
    if not sections:
        raise UserError(f"{_WHAT} has no layers")
    results = [k for k, s in enumerate(sections) if s.kind in _RESULTS and k not in read]
    taken = {values[0]}
    for k in results or [len(sections) - 1]:
        add_output(builder, f"{sections[k].kind}_{k}", values[k + 1], taken)


_NOTHING: Final[Array] = np.zeros(16, np.uint8)
