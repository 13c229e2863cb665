"""Rounds important weights more finely: they are scaled by the size of their inputs (AWQ).

Rounding changes a weight by up to half a step of its block, and the output by that times the input.
Weights multiplied by large inputs are scaled up before rounding, so that a step is a smaller part
of them, and their inputs are scaled down. The amount is found by trial: too much of it costs the
other weights of a block more than it gains.

    factors = size of inputs ** share,    share: of 0, 0.1, …, 1 the one with the least error
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from tilewright.graph import Array, Module
from tilewright.quantize.blocks import BITS, packed_rows, unpacked_rows
from tilewright.quantize.equalize import around_one, rescaled
from tilewright.quantize.layers import Layer
from tilewright.quantize.second_order import Key, key_of

_SHARES: Final = tuple(k / 10 for k in range(11))


def scaled_by_activations(
    module: Module, layers: Sequence[Layer], moments: Mapping[Key, Array], weights: str, group: int
) -> Module:
    """The module with weights scaled for the least error of rounding in blocks, given the second
    moments of their inputs."""

    def choose(users: Sequence[Layer]) -> Array:
        sizes = _sizes(moments[key_of(users[0])])
        tried = [sizes**share for share in _SHARES]
        errors = [
            sum(_error(u, moments[key_of(u)], f, weights, group) for u in users) for f in tried
        ]
        return tried[int(np.argmin(errors))]

    return rescaled(module, layers, choose)


def _sizes(moments: Array) -> Array:
    """The relative sizes of input channels; 1 for those that are never seen."""
    return around_one(np.sqrt(np.diag(moments)))


def _error(layer: Layer, moments: Array, factors: Array, weights: str, group: int) -> float:
    """Σ |(W - rounded(W · factors) / factors) x|² over all inputs x."""
    rows = layer.rows.astype(np.float64)
    scaled = (rows * factors).astype(np.float32)
    packed, scales = packed_rows(scaled, BITS[weights], group)
    off = unpacked_rows(packed, scales, BITS[weights], rows.shape[1]) / factors - rows
    return float(((off @ moments) * off).sum())
