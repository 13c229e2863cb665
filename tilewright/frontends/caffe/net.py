"""The layers of a network at inference: those of the phase TEST, by their current names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.frontends.caffe.prototxt import Message
from tilewright.support.errors import UserError

#: Names of layers before types were strings, where they differ.
_OLD_TYPES: Final = {
    "ABSVAL": "AbsVal",
    "ACCURACY": "Accuracy",
    "ARGMAX": "ArgMax",
    "BNLL": "BNLL",
    "CONCAT": "Concat",
    "CONVOLUTION": "Convolution",
    "DATA": "Data",
    "DECONVOLUTION": "Deconvolution",
    "DROPOUT": "Dropout",
    "DUMMY_DATA": "DummyData",
    "ELTWISE": "Eltwise",
    "EUCLIDEAN_LOSS": "EuclideanLoss",
    "EXP": "Exp",
    "FLATTEN": "Flatten",
    "HDF5_DATA": "HDF5Data",
    "IMAGE_DATA": "ImageData",
    "INNER_PRODUCT": "InnerProduct",
    "LRN": "LRN",
    "MEMORY_DATA": "MemoryData",
    "MVN": "MVN",
    "POOLING": "Pooling",
    "POWER": "Power",
    "RELU": "ReLU",
    "SIGMOID": "Sigmoid",
    "SILENCE": "Silence",
    "SLICE": "Slice",
    "SOFTMAX": "Softmax",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "SPLIT": "Split",
    "TANH": "TanH",
    "THRESHOLD": "Threshold",
}
#: Layers that stand for inputs.
_INPUTS: Final = ("Input", "MemoryData", "DummyData")


@dataclass(slots=True)
class LayerDef:
    """A layer of the text: its name and type, the blobs it reads and computes, and all the rest."""

    name: str
    type: str
    bottoms: list[str]
    tops: list[str]
    message: Message

    def __str__(self) -> str:
        return f"layer {self.name} ({self.type})"


@dataclass(slots=True)
class Net:
    """The inputs, with the shapes that are declared, and the layers in order."""

    inputs: dict[str, list[int]]
    layers: list[LayerDef]


def read_net(message: Message) -> Net:
    """The network that a text describes."""
    if "layer" in message and "layers" in message:
        raise UserError("the network has layers of two generations: layer and layers")
    inputs = _declared_inputs(message)
    layers: list[LayerDef] = []
    for part in (*message.messages("layer"), *message.messages("layers")):
        if not _is_used(part):
            continue
        layer = _layer(part)
        if layer.type in _INPUTS:
            inputs.update(_input_layer(layer))
        else:
            layers.append(layer)
    return Net(inputs, layers)


def _layer(message: Message) -> LayerDef:
    if "layer" in message:
        raise UserError(
            f"the layer of line {message.line} is of the first generation",
            remedy="upgrade the text with Caffe's upgrade_net_proto_text",
        )
    kind = message.text("type")
    return LayerDef(
        message.text("name"),
        _OLD_TYPES.get(kind, kind),
        message.texts("bottom"),
        message.texts("top"),
        message,
    )


def _declared_inputs(message: Message) -> dict[str, list[int]]:
    """Inputs at the top of the text: four numbers each, or a shape each."""
    names = message.texts("input")
    dims, shapes = message.integers("input_dim"), message.messages("input_shape")
    if shapes:
        found = [s.integers("dim") for s in shapes]
    else:
        found = [dims[k : k + 4] for k in range(0, len(dims), 4)]
    if len(found) != len(names):
        raise UserError(f"the network has {len(names)} inputs and {len(found)} shapes for them")
    return dict(zip(names, found, strict=True))


def _input_layer(layer: LayerDef) -> dict[str, list[int]]:
    if layer.type == "MemoryData":
        given = layer.message.message("memory_data_param")
        image = [given.integer(k, 1) for k in ("batch_size", "channels", "height", "width")]
        return dict(zip(layer.tops, [image, image[:1]], strict=False))
    name = "input_param" if layer.type == "Input" else "dummy_data_param"
    shapes = [s.integers("dim") for s in layer.message.message(name).messages("shape")]
    if len(shapes) not in (1, len(layer.tops)):
        raise UserError(f"{layer} has {len(layer.tops)} tops and {len(shapes)} shapes for them")
    every = shapes * len(layer.tops) if len(shapes) == 1 else shapes
    return dict(zip(layer.tops, every, strict=True))


def _is_used(layer: Message) -> bool:
    """Whether a layer exists in the phase TEST, at level 0, without stages."""
    include, exclude = layer.messages("include"), layer.messages("exclude")
    if include:
        return any(_holds(rule) for rule in include)
    return not any(_holds(rule) for rule in exclude)


def _holds(rule: Message) -> bool:
    phase_fits = rule.text("phase", "TEST") in ("TEST", "1")
    level_fits = rule.integer("min_level", 0) <= 0 <= rule.integer("max_level", 0)
    return phase_fits and level_fits and not rule.texts("stage")
