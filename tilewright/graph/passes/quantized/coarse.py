"""Replaces functions whose results become bytes by coarser ones, which take fewer operations.

    quantize(x * sigmoid(x), c)   -->   quantize(x * coarse_sigmoid(x), c)

A byte has 256 values. A relative error of 2**-12 is at most a sixteenth of the step between them,
as long as results are only multiplied before they are rounded.
"""

from __future__ import annotations

from typing import Final

from tilewright.graph.ir import Value
from tilewright.graph.rules.site import Site
from tilewright.ir import DType

_FLOAT32: Final = DType.of("float32")
_COARSER: Final = {"sigmoid": "coarse_sigmoid"}
#: Most multiplications between the function and `quantize`.
_BACK: Final = 3


def coarser_functions(s: Site) -> Value | None:
    """The rule for `quantize`."""
    dtype = s.result.dtype
    if not dtype.is_integer or dtype.bits > 8 or s.x.dtype is not _FLOAT32:
        return None
    found = _coarser(s, s.x, _BACK)
    return None if found is None else s.again(s.call, [found, *s.call.args[1:]])


def _coarser(s: Site, value: Value | None, depth: int) -> Value | None:
    call = s.private(value)
    if call is None:
        return None
    if call.op.name in _COARSER:
        return s.emit(_COARSER[call.op.name], call.args[0])
    if call.op.name != "mul" or not depth:
        return None
    found = [_coarser(s, a, depth - 1) for a in call.args]
    if not any(found):
        return None
    return s.again(call, [a if b is None else b for a, b in zip(call.args, found, strict=True)])
