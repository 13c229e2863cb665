"""Darknet's files of weights: a header, then the numbers of all layers without separators."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.graph import Array
from tilewright.support.errors import UserError

_NUMBER = np.dtype("<f4")


class Weights:
    """The numbers, given out in the order of the file."""

    def __init__(self, content: np.ndarray[Any, Any]) -> None:
        if content.size < 16:
            raise UserError(
                f"the weights have {content.size} bytes", reason="that is less than their header"
            )
        major, minor, _ = (int(v) for v in np.frombuffer(content[:12], "<i4"))
        # From version 0.2 on, the number of images seen in training takes eight bytes.
        is_wide = major * 10 + minor >= 2 and major < 1000 and minor < 1000
        #: Whether the weights of dense layers have inputs as rows.
        self.is_transposed = major > 1000 or minor > 1000
        self._content, self._at = content, 20 if is_wide else 16

    def take(self, *shape: int) -> Array:
        """The next numbers, in this shape."""
        end = self._at + math.prod(shape) * _NUMBER.itemsize
        if any(n < 0 for n in shape) or end > self._content.size:
            raise UserError(
                f"the layer has weights of shape {list(shape)}",
                reason=f"{max(self._content.size - self._at, 0) // 4} numbers are left in the file",
                remedy="check that cfg and weights belong together and are complete",
            )
        data = np.frombuffer(self._content[self._at : end], _NUMBER)
        self._at = end
        return data.astype(np.float32, copy=False).reshape(shape)

    def require_end(self) -> None:
        """Raise an error if numbers are left: then the cfg is that of another network."""
        left = self._content.size - self._at
        if left >= _NUMBER.itemsize:
            raise UserError(
                f"{left // 4} numbers are left in the file of weights",
                reason="the layers of the cfg file do not take them",
                remedy="check that cfg and weights belong together",
            )
