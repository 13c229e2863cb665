"""Weights that matter more are rounded more finely: scaled by what they are multiplied by (AWQ).

A weight is off by up to half a step of its block, and the output by that times the input. Weights
that meet large inputs are made larger before they are rounded, so that a step is a smaller part of
them, and what they are multiplied by is made smaller. How far that goes is tried out: beyond some
point, the large ones cost the others of their block too much.

    factors = size of inputs ** share,    share: of 0, 0.1, …, 1 what gives the least error
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
    """The same module, with its weights scaled such that rounding them in blocks costs the least,
    by the second moments of what they are multiplied by."""

    def choose(users: Sequence[Layer]) -> Array:
        sizes = _sizes(moments[key_of(users[0])])
        tried = [sizes**share for share in _SHARES]
        errors = [
            sum(_error(u, moments[key_of(u)], f, weights, group) for u in users) for f in tried
        ]
        return tried[int(np.argmin(errors))]

    return rescaled(module, layers, choose)


def _sizes(moments: Array) -> Array:
    """How large inputs are, beside each other; 1 for those that are never seen."""
    return around_one(np.sqrt(np.diag(moments)))


def _error(layer: Layer, moments: Array, factors: Array, weights: str, group: int) -> float:
    """Σ |(W - rounded(W · factors) / factors) x|² over all inputs x."""
    rows = layer.rows.astype(np.float64)
    scaled = (rows * factors).astype(np.float32)
    packed, scales = packed_rows(scaled, BITS[weights], group)
    off = unpacked_rows(packed, scales, BITS[weights], rows.shape[1]) / factors - rows
    return float(((off @ moments) * off).sum())
