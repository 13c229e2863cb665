"""Weights of four or eight bits in blocks, with float activations.

    y = matmul(x, w)   -->   y = matmul_nbits(x, packed w, scales)

Weights are rounded in blocks of `group` along the reduction axis, each with a scale of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

import numpy as np

from tilewright.graph import (
    Array,
    Binding,
    Builder,
    Call,
    Module,
    Rewriter,
    Value,
    packed_bits,
    unpacked_bits,
)
from tilewright.quantize.layers import Layer, layers_of
from tilewright.support.errors import UserError

#: Bits of each type of weights.
BITS: Final = {"int4": 4, "int8": 8}
#: Packs the weights of a layer, as rows N×K; takes bits and group, gives bytes and scales.
Packer = Callable[[Layer, Array, int, int], tuple[Array, Array]]


def block_layers(module: Module) -> list[Layer]:
    """The matrix products, whose weights can be stored in blocks."""
    return [layer for layer in layers_of(module) if not layer.is_of_images]


def require_blocks(weights: str, group: int) -> None:
    """Refuse unsupported types and block sizes."""
    if weights not in BITS:
        raise UserError(f"there are no weights of {weights}", remedy=f"use {' or '.join(BITS)}")
    if group < 16 or group & (group - 1):
        raise UserError(f"groups of {group} weights", remedy="use a power of two from 16 on")


def with_blocks(
    module: Module, layers: Collection[Layer], weights: str, group: int, pack: Packer
) -> Module:
    """The module with the weights of these layers in blocks of `group`."""
    return _Packing(layers, BITS[weights], group, pack).module(module)


def to_nearest(_layer: Layer, rows: Array, bits: int, group: int) -> tuple[Array, Array]:
    """Round each weight to the nearest step, independently."""
    return packed_rows(rows, bits, group)


class _Packing(Rewriter):
    def __init__(self, layers: Collection[Layer], bits: int, group: int, pack: Packer) -> None:
        super().__init__()
        self._layers = {layer.output: layer for layer in layers}
        self._bits, self._group, self._pack = bits, group, pack
        #: Packed weights, shared by layers with the same weights.
        self._packed: dict[tuple[Value, int], tuple[Value, Value]] = {}

    def visit(self, binding: Binding) -> Sequence[Binding]:
        call = binding.expr
        layer = self._layers.get(binding.outputs[0]) if binding.outputs else None
        if layer is None or not isinstance(call, Call):
            return (binding,)
        b = Builder()
        weight, scales = self._weights(b, layer)
        bias = None if layer.row.bias is None else call.args[layer.row.bias]
        attrs: dict[str, Any] = {
            "depth": layer.rows.shape[1],
            "bits": self._bits,
            "block": self._group,
        }
        plain = bias is None or bias.ndim == 1
        total = b.emit(
            "matmul_nbits", call.args[0], weight, scales, None, bias if plain else None, **attrs
        )
        b.output(total if plain else b.emit("add", total, bias))
        *rest, last = b.function().body
        return [*rest, Binding(binding.outputs, last.expr, binding.origin)]

    def _weights(self, b: Builder, layer: Layer) -> tuple[Value, Value]:
        key = layer.weight, layer.axis
        if key not in self._packed:
            packed, scales = self._pack(layer, layer.rows, self._bits, self._group)
            name = layer.weight.name
            self._packed[key] = (
                b.constant(packed, name=f"{name}_packed"),
                b.constant(scales, name=f"{name}_scales"),
            )
        return self._packed[key]


def packed_rows(rows: Array, bits: int, group: int) -> tuple[Array, Array]:
    """Rows N×K as bytes N×blocks×(group · bits / 8), and scales N×blocks.

    Stored numbers are the rounded weights plus 2 ** (bits - 1), the first in the lowest bits.
    """
    count, depth = rows.shape
    blocks = -(-depth // group)
    padded = np.zeros((count, blocks * group), np.float32)
    padded[:, :depth] = rows
    parts = padded.reshape(count, blocks, group)
    scales = block_scales(parts, bits)
    half = 2 ** (bits - 1)
    with np.errstate(all="ignore"):
        steps = np.rint(parts / scales[..., None])
    return packed_steps(np.clip(np.nan_to_num(steps), -half, half - 1), bits), scales


def unpacked_rows(packed: Array, scales: Array, bits: int, depth: int) -> Array:
    """The rows N×K for packed bytes and scales."""
    steps = unpacked_bits(packed, bits).astype(np.float64) - 2 ** (bits - 1)
    return (steps * scales[..., None]).reshape(len(scales), -1)[:, :depth]


def packed_steps(steps: Array, bits: int) -> Array:
    """Integers N×blocks×group, from -2 ** (bits - 1) on, packed into bytes."""
    return packed_bits((steps + 2 ** (bits - 1)).astype(np.uint8), bits)


def block_scales(parts: Array, bits: int) -> Array:
    """The scale of each block with the least squared error, of a few candidates.

    The range has one more number below zero than above: the scale's sign is chosen so that the
    weight of largest magnitude is on that side.
    """
    half = 2 ** (bits - 1)
    where = np.abs(parts).argmax(axis=-1)[..., None]
    extreme = np.take_along_axis(parts, where, axis=-1)[..., 0].astype(np.float32)
    best = np.where(extreme == 0, np.float32(1), -extreme / np.float32(half))
    least = _errors(parts, best, half)
    for fraction in _FRACTIONS if bits < 8 else ():
        tried = np.where(extreme == 0, 1, -extreme / half * fraction).astype(np.float32)
        errors = _errors(parts, tried, half)
        best = np.where(errors < least, tried, best)
        least = np.minimum(errors, least)
    return best.astype(np.float32)


#: Candidate scales, relative to the one that clips nothing.
_FRACTIONS: Final = (0.84, 0.88, 0.92, 0.96, 1.04, 1.08, 1.14)


def _errors(parts: Array, scales: Array, half: int) -> Array:
    steps = np.clip(np.rint(parts / scales[..., None]), -half, half - 1)
    return np.square(steps * scales[..., None] - parts).sum(axis=-1)
