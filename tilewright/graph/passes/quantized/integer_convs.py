"""Convolutions of bytes as models write them, for machines that convolve bytes in place.

    y = conv_integer(x, w, z)
    -->
    y = sub(conv(x, w, dtype=int32, fill=z), z * sums of w)

Other machines gather windows first (`graph.rules.integers`). Weights are constant, and have no zero
point, or one that they can absorb.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.graph.ir import Value
from tilewright.graph.rules import Rule, integers
from tilewright.graph.rules.centred import centred_bytes
from tilewright.graph.rules.site import Site
from tilewright.ir import DType

_INT32: Final = DType.of("int32")


def _in_place(s: Site) -> Value | None:
    x, (x_zero, weight_zero) = s.x, s.call.args[2:4]
    weight = centred_bytes(s.arg(1), weight_zero, axis=0)
    zero = np.zeros((), np.int32) if x_zero is None else x_zero.constant
    is_byte = x.dtype.is_integer and x.dtype.bits == 8
    if weight is None or zero is None or zero.size != 1 or not is_byte:
        return None
    fill = int(zero.reshape(()))
    total = s.emit("conv", x, s.constant(weight), dtype=_INT32, fill=fill, **s.attrs)
    if not fill:
        return total
    sums = weight.reshape(len(weight), -1).sum(axis=1, dtype=np.int32) * np.int32(fill)
    return s.emit("sub", total, s.constant(sums.reshape(-1, *[1] * (x.ndim - 2))))


INTEGER_CONVS: Final[dict[str, tuple[Rule, ...]]] = {
    "conv_integer": (_in_place,),
    "qlinear_conv": integers.RULES["qlinear_conv"],
}
