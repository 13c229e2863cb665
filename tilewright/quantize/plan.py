"""How each layer would be quantized: scales of what goes in, bytes and scales of weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Final

import numpy as np

from tilewright.graph import Array, Module, Value
from tilewright.quantize.layers import Layer, stored_images
from tilewright.quantize.observe import Statistics
from tilewright.quantize.ranges import LEAST, Calibration, Scale, chosen_scale

#: -128 is not used, so that the range is symmetric.
_GREATEST: Final = 127


@dataclass(frozen=True)
class StoredWeights:
    """Signed bytes, and the scale of each output."""

    array: Array
    scales: Array


@dataclass
class Plan:
    """The layers of a module, and how each is quantized if it is."""

    module: Module
    layers: list[Layer]
    inputs: dict[Value, Scale]
    weights: dict[Layer, StoredWeights]
    #: What is added to the outputs of a layer: its mean error, taken out.
    corrections: dict[Layer, Array] = field(default_factory=dict[Layer, Array])

    @cached_property
    def images(self) -> dict[Value, Layer]:
        """Other images that are stored as bytes if the layer that they come from is quantized."""
        return stored_images(self.module, self.layers)

    @property
    def shared(self) -> set[Value]:
        """Images of which all users read the bytes, so that nothing else of them is stored."""
        read = {layer.x for layer in self.layers if layer.is_of_images}
        return read | set(self.images)

    def stored(self, chosen: Collection[Layer]) -> set[Value]:
        """What is stored as bytes if these layers are quantized."""
        read = {layer.x for layer in chosen}
        return read | {image for image, layer in self.images.items() if layer in chosen}


def planned(
    module: Module,
    layers: list[Layer],
    statistics: Mapping[Value, Statistics],
    how: Calibration,
    *,
    correct: bool = True,
) -> Plan:
    """A plan by what was observed."""
    inputs = {v: chosen_scale(s.histogram, how) for v, s in statistics.items()}
    plan = Plan(module, layers, inputs, {layer: stored_weights(layer) for layer in layers})
    if correct:
        plan.corrections = {
            layer: mean_error(layer, plan.weights[layer], statistics[layer.x]) for layer in layers
        }
    return plan


def stored_weights(layer: Layer) -> StoredWeights:
    """Weights rounded to bytes, with a scale for each output."""
    array = layer.array.astype(np.float64)
    others = tuple(k for k in range(array.ndim) if k != layer.axis)
    greatest = np.abs(array).max(axis=others, initial=0)
    scales = np.where(greatest / _GREATEST < LEAST, 1.0, greatest / _GREATEST).astype(np.float32)
    stored = np.clip(np.rint(array / layer.by_output(scales)), -_GREATEST, _GREATEST)
    return StoredWeights(stored.astype(np.int8), scales)


def mean_error(layer: Layer, weights: StoredWeights, statistics: Statistics) -> Array:
    """What rounding weights takes from each output on average, for inputs of the mean that was
    seen: added to the output, it takes the bias of the rounding out."""
    real = weights.array * layer.by_output(weights.scales).astype(np.float64)
    lost = (layer.array - real) * layer.by_input(statistics.means)
    others = tuple(k for k in range(lost.ndim) if k != layer.axis)
    # An output of a transposed convolution sees one of the weights in every so many.
    phases = prod(layer.call.attrs["strides"]) if layer.call.op.name == "conv_transpose" else 1
    return (lost.sum(axis=others) / phases).astype(np.float32)
