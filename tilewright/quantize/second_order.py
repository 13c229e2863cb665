"""Rounds weights using second-order information of their inputs (GPTQ).

The error of rounding one weight is compensated by the weights of the same output that are rounded
after it, as far as inputs are correlated. The amounts follow from the inverse of the second moments
H = Σ x xᵀ of the inputs, by its Cholesky factor U (H⁻¹ = Uᵀ U):

    for each column k:    e = (w[k] - rounded(w[k])) / U[k, k]
                          w[k + 1:] -= e · U[k, k + 1:]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.graph import Array, Module, Value
from tilewright.quantize.blocks import block_scales, packed_steps
from tilewright.quantize.layers import Layer
from tilewright.quantize.observe import Batch, tapped_values

#: Added to all second moments, as a fraction of their mean: inputs with little variance say little.
_DAMPING: Final = 0.01
#: Columns per block, after which errors are propagated to all following columns at once.
_COLUMNS: Final = 128
#: Bytes of moments accumulated in one pass over the data.
_MOST_BYTES: Final = 1 << 30

#: Identifies weights: the constant, and its output axis.
Key = tuple[Value, int]


def second_moments(
    module: Module,
    layers: Sequence[Layer],
    batches: Callable[[], Iterable[Batch]],
    step: Callable[[], None],
) -> dict[Key, Array]:
    """Σ x xᵀ over the inputs of layers, for each array of weights; makes as many passes over the
    data as needed for the sums to fit in memory."""
    found: dict[Key, Array] = {}
    for part in _parts(layers):
        for layer in part:
            depth = layer.array.shape[1 - layer.axis]
            found.setdefault(key_of(layer), np.zeros((depth, depth)))
        inputs = list(dict.fromkeys(layer.x for layer in part))
        for values in tapped_values(module, inputs, batches()):
            for layer in part:
                rows = values[layer.x].reshape(-1, values[layer.x].shape[-1]).astype(np.float64)
                found[key_of(layer)] += rows.T @ rows
            step()
    return found


def key_of(layer: Layer) -> Key:
    """The key shared by layers with the same weights."""
    return layer.weight, layer.axis


def _parts(layers: Sequence[Layer]) -> list[list[Layer]]:
    """Groups of layers whose moments fit in memory together."""
    parts: list[list[Layer]] = []
    room = 0
    for layer in layers:
        size = 8 * layer.array.shape[1 - layer.axis] ** 2
        if size > room or not parts:
            parts.append([])
            room = _MOST_BYTES
        parts[-1].append(layer)
        room -= size
    return parts


def rounded_by_moments(rows: Array, moments: Array, bits: int, group: int) -> tuple[Array, Array]:
    """Rows N×K rounded in blocks, as by `packed_rows`, with the least error at the outputs."""
    count, depth = rows.shape
    blocks = -(-depth // group)
    left = np.zeros((count, blocks * group))
    left[:, :depth] = rows
    factor = _factor(moments, blocks * group)
    steps = np.zeros(left.shape)
    scales = np.zeros((count, blocks), np.float32)
    width = max(group, _COLUMNS // group * group)
    for start in range(0, blocks * group, width):
        end = min(start + width, blocks * group)
        errors = _round_columns(left, factor, (start, end), bits, group, steps, scales)
        left[:, end:] -= errors @ factor[start:end, end:]
    return packed_steps(steps.reshape(count, blocks, group), bits), scales


def _round_columns(
    left: Array,
    factor: Array,
    span: tuple[int, int],
    bits: int,
    group: int,
    steps: Array,
    scales: Array,
) -> Array:
    """Round the columns of a span one after the other; gives their errors, for later columns."""
    start, end = span
    errors = np.zeros((len(left), end - start))
    half = 2 ** (bits - 1)
    for k in range(start, end):
        if k % group == 0:
            parts = left[:, k : k + group].astype(np.float32)
            scales[:, k // group] = block_scales(parts[:, None], bits)[:, 0]
        scale = scales[:, k // group].astype(np.float64)
        steps[:, k] = np.clip(np.rint(left[:, k] / scale), -half, half - 1)
        errors[:, k - start] = (left[:, k] - steps[:, k] * scale) / factor[k, k]
        left[:, k + 1 : end] -= np.outer(errors[:, k - start], factor[k, k + 1 : end])
    return errors


def _factor(moments: Array, size: int) -> Array:
    """The upper Cholesky factor of the inverse of the moments, damped until it exists.

    Inputs that were never seen, and padding of the last block, are independent of all others.
    """
    full = np.eye(size)
    depth = len(moments)
    mean = float(np.diag(moments).mean()) if depth else 0.0
    scale = mean if np.isfinite(mean) and mean > 0 else 1.0
    full[:depth, :depth] = moments / scale
    silent = np.flatnonzero(np.diag(full) == 0)
    full[silent, silent] = 1.0
    damping = _DAMPING
    # NumPy's types of these are incomplete.
    linalg: Any = np.linalg
    while True:
        try:
            return linalg.cholesky(linalg.inv(full + damping * np.eye(size))).T
        except np.linalg.LinAlgError:
            damping *= 10
