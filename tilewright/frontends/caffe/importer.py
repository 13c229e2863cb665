"""From a prototxt and its caffemodel to a graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from tilewright.frontends.caffe.caffemodel import read_blobs
from tilewright.frontends.caffe.layer import Layer
from tilewright.frontends.caffe.net import LayerDef, Net, read_net
from tilewright.frontends.caffe.prototxt import parse_prototxt
from tilewright.frontends.caffe.table import TABLE
from tilewright.frontends.common.borders import add_output, require_names
from tilewright.frontends.common.converting import as_list, converting
from tilewright.frontends.common.damaged import trusting
from tilewright.frontends.common.files import content_of, text_of
from tilewright.frontends.common.input_shapes import (
    Shape,
    input_dims,
    merged_shape,
)
from tilewright.frontends.common.missing import refuse_missing
from tilewright.graph import Array, Builder, Module, Value, passes
from tilewright.support.errors import UserError, nearest

_WHAT: Final = "the Caffe network"
_REMEDY: Final = "check that prototxt and caffemodel belong together and are complete"
_DEPLOY: Final = "use the network's deploy.prototxt, which has inputs in place of data and no loss"
#: What can be done about layers that will not be supported.
_HINTS: Final[dict[str, str]] = dict.fromkeys(
    "Data ImageData HDF5Data WindowData AnnotatedData SoftmaxWithLoss Accuracy EuclideanLoss "
    "SigmoidCrossEntropyLoss MultiBoxLoss HingeLoss DetectionEvaluate".split(),
    _DEPLOY,
)


def from_caffe(
    prototxt: Any, caffemodel: Any = None, shapes: Mapping[str, Shape] | None = None
) -> Module:
    """The graph of a Caffe network: a prototxt and the caffemodel with its weights, each a path or
    bytes.

    It is the network of the phase TEST. Inputs have the shapes that the text declares; `shapes`
    gives others. Outputs are the blobs that no layer reads.
    """
    with trusting(_WHAT, _REMEDY):
        passes.require_shapes(shapes or {})
        net = _net(prototxt)
        require_names("shapes", shapes or {}, net.inputs)
        _require_converters(net)
        blobs = {} if caffemodel is None else read_blobs(content_of(caffemodel, "the caffemodel"))
        return _Importer(blobs).converted(net, shapes or {})


def input_names(prototxt: Any) -> list[str]:
    """The names of the inputs of a network, in order."""
    with trusting(_WHAT, _REMEDY):
        return list(_net(prototxt).inputs)


def _net(prototxt: Any) -> Net:
    name = str(prototxt) if isinstance(prototxt, str) else "the prototxt"
    return read_net(parse_prototxt(text_of(prototxt, "the prototxt"), name))


def _require_converters(net: Net) -> None:
    missing: dict[str, list[str]] = defaultdict(list)
    for layer in net.layers:
        if TABLE.find("", layer.type) is None:
            missing[layer.type or "nothing"].append(layer.name)
    refuse_missing(_WHAT, missing, hints=_HINTS)


class _Importer:
    """Converts one network. Blobs are values by name: a layer may replace the one it reads."""

    def __init__(self, weights: Mapping[str, list[Array]]) -> None:
        self._builder = Builder("main")
        self._weights = weights
        self._values: dict[str, Value] = {}
        #: Blobs that no layer has read since they were computed, in their order.
        self._unread: dict[str, None] = {}
        self._named: set[Value] = set()

    def converted(self, net: Net, shapes: Mapping[str, Shape]) -> Module:
        if not net.inputs:
            raise UserError(f"{_WHAT} has no inputs", remedy=_DEPLOY)
        for name, declared in net.inputs.items():
            shape = merged_shape(name, declared, shapes.get(name), fixed=False)
            dims = input_dims(name, shape, self._builder)
            self._values[name] = self._builder.input(name, "f32", dims)
        inputs = set(self._values.values())
        self._named |= inputs
        for layer in net.layers:
            with converting(self._builder, "layer", str(layer), _REMEDY):
                self._convert(layer)
        if not self._unread:
            raise UserError(f"{_WHAT} has no outputs", reason="every blob is read by a layer")
        for name in self._unread:
            add_output(self._builder, name, self._values[name], inputs)
        return self._builder.build()

    def _convert(self, definition: LayerDef) -> None:
        inputs = [self._value(name) for name in definition.bottoms]
        layer = Layer(definition, inputs, self._weights.get(definition.name, ()), self._builder)
        convert = TABLE.find("", definition.type)
        assert convert is not None
        results = as_list(convert(layer))
        for name in definition.bottoms:
            self._unread.pop(name, None)
        if len(results) < len(definition.tops):
            raise UserError(f"it has {len(definition.tops)} tops", reason="it makes fewer")
        for name, value in zip(definition.tops, results, strict=False):
            if value is None:
                continue
            if value not in self._named:
                value.name = name
                self._named.add(value)
            self._values[name] = value
            self._unread[name] = None

    def _value(self, name: str) -> Value:
        if name not in self._values:
            raise UserError(
                f"it reads the blob {name[:60]}",
                reason="no layer before it makes one of that name",
                remedy=nearest(name, self._values),
            )
        return self._values[name]
