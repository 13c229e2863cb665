"""Quantization: models in bytes, with the error known.

run.py          `quantize`: all steps in order
data.py         samples from anywhere; samples.py: those to calibrate with, and those held out
layers.py       what can be quantized
observe.py      statistics of what goes into layers; histogram.py: counts that grow
ranges.py       from counts to scales
equalize.py     outliers moved into weights
plan.py         scales and bytes of each layer; corrections of biases
insert.py       a graph with quantize and dequantize; simulate.py: the same with switches
mixed.py        which layers stay in float32, for a budget; measure.py: the error
weights.py      weights alone: blocks.py packs them; second_order.py rounds them by data (GPTQ),
                activation_scales.py scales them by data first (AWQ)
report.py       what was done; page.py: the same for browsers
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
    """`tilewright.quantize` is this package and, to users, the function in it."""

    def __call__(self, *args: Any, **options: Any) -> QuantizedModule:
        return quantize(*args, **options)


sys.modules[__name__].__class__ = _CallableModule
