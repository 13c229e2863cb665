"""Models without their weights: small enough to travel, and filled again by numbers drawn anew.

What is drawn has the mean, the spread and the sign of what was there, so that answers stay in the
range that they had; both sides of a comparison draw the same numbers. Filters that a norm was
folded into have its factors, which do not fit images that other filters make: what is drawn for
them is no larger than what keeps the spread of images through a rectifier, or answers of deep
networks overflow half precision.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

#: Smaller tensors stay: shapes, scales, axes.
_LEAST = 1024
_PREFIX = "drawn:"


def strip(source: Path, to: Path) -> None:
    """Write a model without its large floating-point tensors."""
    model = onnx.load(str(source))
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype != np.float32 or array.size < _LEAST:
            continue
        figures = array.mean(), array.std(), float(array.min() >= 0)
        tensor.doc_string = _PREFIX + ",".join(f"{float(v):.8g}" for v in figures)
        tensor.ClearField("raw_data")
        tensor.ClearField("float_data")
    onnx.save(model, str(to))


def filled(source: Path) -> Any:
    """The model with weights drawn anew."""
    model = onnx.load(str(source))
    for tensor in model.graph.initializer:
        if tensor.doc_string.startswith(_PREFIX):
            mean, std, positive = map(float, tensor.doc_string.removeprefix(_PREFIX).split(","))
            smaller = _fitting(tuple(tensor.dims), math.hypot(mean, std))
            random = np.random.default_rng(zlib.crc32(tensor.name.encode()))
            drawn = random.normal(mean, std, tuple(tensor.dims)) * smaller
            tensor.raw_data = (np.abs(drawn) if positive else drawn).astype(np.float32).tobytes()
    return model


def _fitting(shape: Sequence[int], size: float) -> float:
    """What to multiply numbers of this size by, where they are the filters of a convolution: sums
    over a window are then no larger than what made the rectified image."""
    most = math.sqrt(2 / math.prod(shape[1:])) if len(shape) == 4 else math.inf
    return most / size if size > most else 1.0
