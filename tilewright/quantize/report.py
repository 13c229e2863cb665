"""A report of quantization: the error, and the state and noise of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from tilewright.graph import Call, Module, weighted
from tilewright.quantize.layers import Layer
from tilewright.quantize.measure import Error
from tilewright.quantize.mixed import Point


class LayerReport(NamedTuple):
    """One layer: its precision, and how much noise it adds by itself."""

    name: str
    origin: str
    operator: str
    precision: str
    reason: str = ""
    #: Decibels at the outputs with only this layer quantized.
    sqnr: float | None = None
    #: Its share of the multiplications (or weights, if only these are quantized) of all layers that
    #: can be quantized.
    share: float = 0.0


@dataclass
class Report:
    """The outcome of `tw.quantize`."""

    layers: list[LayerReport]
    #: None if nothing was measured, as for weights without data.
    error: Error | None = None
    budget: float | None = None
    method: str = ""
    equalized: bool = False
    #: Whether the error was measured on data not used for calibration.
    held_out: bool = True
    curve: list[Point] = field(default_factory=list[Point])

    @property
    def share(self) -> float:
        """The quantized share of what can be quantized."""
        return sum(row.share for row in self.layers if row.precision != "float32")

    def data(self) -> dict[str, Any]:
        """The report as plain data."""
        rows = [row._asdict() for row in self.layers]
        curve = [
            {"in_float": p.in_float, "share": p.share, **p.error._asdict()} for p in self.curve
        ]
        plain = asdict(self) | {"layers": rows, "curve": curve, "share": self.share}
        return plain | {"error": None if self.error is None else self.error._asdict()}

    def __str__(self) -> str:
        return "\n".join([self.summary, *map(_line, self.layers)])

    @property
    def summary(self) -> str:
        """One line: how much is quantized, and the error."""
        narrow = [row for row in self.layers if row.precision != "float32"]
        text = f"{len(narrow)} of {len(self.layers)} layers quantized"
        text += f", {self.share:.0%} of the work that can be"
        if self.error is None:
            return text
        where = "held-out data" if self.held_out else "the data that was calibrated with"
        text += f"; relative error {self.error.relative:.2e}, {self.error.sqnr:.1f} dB on {where}"
        return text if self.budget is None else f"{text} (budget {self.budget:g})"


def _line(row: LayerReport) -> str:
    noise = "" if row.sqnr is None else f"{row.sqnr:.1f} dB"
    why = f"  ({row.reason})" if row.reason else ""
    return f"{row.precision:8} {row.share:6.1%} {noise:>9}  {row.operator:8} {row.name}{why}"


def left_out(
    module: Module, layers: Sequence[Layer], kept: Sequence[Layer] = ()
) -> list[LayerReport]:
    """Products that cannot be quantized, and why."""
    known = {layer.output for layer in (*layers, *kept)}
    rows: list[LayerReport] = []
    for binding in module.main.body:
        call = binding.expr
        if isinstance(call, Call) and call.op.name in _PRODUCTS and binding.outputs[0] not in known:
            name = binding.outputs[0].name
            rows.append(LayerReport(name, binding.origin, call.op.name, "float32", _why(call)))
    return [
        *(LayerReport(k.name, k.origin, k.call.op.name, "float32", "kept as asked") for k in kept),
        *rows,
    ]


_PRODUCTS = frozenset(["conv", "conv_transpose", "gemm", "dense", "matmul", "lstm", "gru", "rnn"])


def _why(call: Call) -> str:
    if call.op.name not in ("conv", "conv_transpose", "gemm", "dense", "matmul"):
        return f"{call.op.name} is not quantized"
    if weighted(call) is None:
        return "its weights are not constant"
    if call.attrs.get("groups", 1) != 1:
        return "groups of channels that are no multiple of 16 are not faster in bytes"
    if any(d != 1 for d in call.attrs.get("dilations", ())) and call.op.name == "conv_transpose":
        return "transposed convolutions with dilations are not quantized"
    return "too few channels"
