"""Quantization of weights only: the layers, the method of rounding, and the error."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from tilewright.graph import Array, Module
from tilewright.quantize.activation_scales import scaled_by_activations
from tilewright.quantize.blocks import (
    Packer,
    block_layers,
    require_blocks,
    to_nearest,
    with_blocks,
)
from tilewright.quantize.data import Data
from tilewright.quantize.layers import Layer, parted, prepared
from tilewright.quantize.measure import Error, error_of
from tilewright.quantize.observe import Progress
from tilewright.quantize.report import LayerReport, Report, left_out
from tilewright.quantize.result import QuantizedModule
from tilewright.quantize.samples import Samples
from tilewright.quantize.second_order import Key, key_of, rounded_by_moments, second_moments
from tilewright.support.errors import UserError

#: The methods of rounding, by their names in the report.
_METHODS: Final = {
    "mse": "blocks of {}",
    "gptq": "gptq, blocks of {}",
    "awq": "awq, blocks of {}",
}


class Blocks(NamedTuple):
    """How weights are stored and rounded."""

    weights: str
    group: int
    method: str


def with_weights_alone(
    original: Module,
    blocks: Blocks,
    keep: Collection[str],
    data: Any,
    validation: Any,
    tell: Progress,
) -> QuantizedModule:
    """The model with weights of matrix products in few bits; with the error if there is data."""
    _require(blocks, data)
    module = prepared(original)
    layers, kept = parted(block_layers(module), keep)
    samples = _samples(original, blocks, data, validation)
    pack = to_nearest
    if samples is not None and blocks.method != "mse":
        moments = second_moments(module, layers, samples.calibration, lambda: tell("calibration"))
        if blocks.method == "gptq":
            pack = _by_moments(moments, tell)
        else:
            tell("scaling")
            module = scaled_by_activations(module, layers, moments, blocks.weights, blocks.group)
            layers, kept = parted(block_layers(module), keep)
    tell("weights")
    made = with_blocks(module, layers, blocks.weights, blocks.group, pack)
    rows = [*_rows(layers, blocks.weights), *left_out(module, layers, kept)]
    report = Report(rows, method=_METHODS[blocks.method].format(blocks.group))
    if samples is not None:
        report.held_out = samples.is_apart
        report.error = _error_on(made, original, samples)
    return QuantizedModule(made, report)


def _require(blocks: Blocks, data: Any) -> None:
    require_blocks(blocks.weights, blocks.group)
    if blocks.method not in _METHODS:
        raise UserError(
            f"weights cannot be rounded by {blocks.method}",
            reason="it finds ranges of activations, which stay as they are",
            remedy='use "mse", or "gptq" or "awq" with data',
        )
    if blocks.method != "mse" and data is None:
        raise UserError(
            f"cannot round weights by {blocks.method} without calibration data",
            reason="it needs to know what they are multiplied by",
            remedy="pass data= (batches by input name, an .npz file, a folder)",
        )


def _samples(original: Module, blocks: Blocks, data: Any, validation: Any) -> Samples | None:
    """The samples; without calibration, the error is measured on all of them."""
    if data is None and validation is None:
        return None
    measured = Data(data if validation is None else validation, original)
    if blocks.method == "mse":
        return Samples(measured.all, partial(measured.all, 1), True)
    return Samples.of(measured if validation is None else Data(data, original), measured)


def _by_moments(moments: Mapping[Key, Array], tell: Progress) -> Packer:
    """Rounds by the second moments of each layer's inputs."""

    def pack(layer: Layer, rows: Array, bits: int, group: int) -> tuple[Array, Array]:
        tell("rounding")
        return rounded_by_moments(rows, moments[key_of(layer)], bits, group)

    return pack


def _rows(layers: Sequence[Layer], precision: str) -> list[LayerReport]:
    total = max(sum(layer.array.size for layer in layers), 1)
    return [
        LayerReport(k.name, k.origin, k.call.op.name, precision, share=k.array.size / total)
        for k in layers
    ]


def _error_on(made: Module, original: Module, samples: Samples) -> Error:
    from tilewright.compile import compile

    ours, theirs = compile(made), compile(original)
    return error_of(ours.run, theirs.run, samples.held_out())
