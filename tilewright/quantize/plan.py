"""How each layer would be quantized: scales of inputs, int8 weights and their scales."""

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
    """Int8 weights, and the scale of each output."""

    array: Array
    scales: Array


@dataclass
class Plan:
    """The layers of a module, and how each is quantized if it is."""

    module: Module
    layers: list[Layer]
    inputs: dict[Value, Scale]
    weights: dict[Layer, StoredWeights]
    #: Added to the outputs of a layer to remove the mean error of its rounded weights.
    corrections: dict[Layer, Array] = field(default_factory=dict[Layer, Array])

    @cached_property
    def images(self) -> dict[Value, Layer]:
        """Other images that are stored as bytes if the layer they come from is quantized."""
        return stored_images(self.module, self.layers)

    @property
    def shared(self) -> set[Value]:
        """Images whose users all read the bytes, so that no float copy is stored."""
        read = {layer.x for layer in self.layers if layer.is_of_images}
        return read | set(self.images)

    def stored(self, chosen: Collection[Layer]) -> set[Value]:
        """The values stored as bytes if these layers are quantized."""
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
    """A plan from calibration statistics."""
    inputs = {v: chosen_scale(s.histogram, how) for v, s in statistics.items()}
    plan = Plan(module, layers, inputs, {layer: stored_weights(layer) for layer in layers})
    if correct:
        plan.corrections = {
            layer: mean_error(layer, plan.weights[layer], statistics[layer.x]) for layer in layers
        }
    return plan


def stored_weights(layer: Layer) -> StoredWeights:
    """Weights rounded to int8, with a scale for each output."""
    array = layer.array.astype(np.float64)
    others = tuple(k for k in range(array.ndim) if k != layer.axis)
    greatest = np.abs(array).max(axis=others, initial=0)
    scales = np.where(greatest / _GREATEST < LEAST, 1.0, greatest / _GREATEST).astype(np.float32)
    stored = np.clip(np.rint(array / layer.by_output(scales)), -_GREATEST, _GREATEST)
    return StoredWeights(stored.astype(np.int8), scales)


def mean_error(layer: Layer, weights: StoredWeights, statistics: Statistics) -> Array:
    """The mean error of each output due to rounded weights, for inputs with the observed means;
    added to the output, it removes the bias of the rounding."""
    real = weights.array * layer.by_output(weights.scales).astype(np.float64)
    lost = (layer.array - real) * layer.by_input(statistics.means)
    others = tuple(k for k in range(lost.ndim) if k != layer.axis)
    # A transposed convolution's output depends on one in every prod(strides) weights.
    phases = prod(layer.call.attrs["strides"]) if layer.call.op.name == "conv_transpose" else 1
    return (lost.sum(axis=others) / phases).astype(np.float32)
