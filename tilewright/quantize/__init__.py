"""Quantization to int8 or fewer bits, with a measured error.

run.py          `quantize`: all steps in order
data.py         samples from any source; samples.py: those for calibration, and those held out
layers.py       the layers that can be quantized
observe.py      statistics of the inputs of layers; histogram.py: histograms with growing range
ranges.py       from histograms to scales
equalize.py     moves outliers into weights
plan.py         scales and int8 weights of each layer; corrections of biases
insert.py       a graph with quantize and dequantize; simulate.py: the same with switches
mixed.py        selects layers to keep in float32, for an error budget; measure.py: the error
weights.py      weights only: blocks.py packs them; second_order.py rounds them by data (GPTQ),
                activation_scales.py scales them by data first (AWQ)
report.py       what was done; page.py: the report as HTML
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from tilewright.quantize.report import LayerReport, Report
from tilewright.quantize.result import QuantizedModule
from tilewright.quantize.run import quantize

__all__ = ["LayerReport", "QuantizedModule", "Report", "quantize"]


class _CallableModule(ModuleType):
    """`tilewright.quantize` is this package and, to users, the function `quantize`."""

    def __call__(self, *args: Any, **options: Any) -> QuantizedModule:
        return quantize(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
