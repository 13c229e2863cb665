"""Where a kernel can end so that it stores less."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.graph.ir import Binding, Call, Value


def widening_tail(value: Value, maps: Mapping[Value, Binding]) -> list[Binding]:
    """The maps from the narrowest of the values that lead to this one; none where nothing is
    narrower than the value. Each map has a single result."""
    passed: list[Binding] = []
    found: list[Binding] = []
    at, least = value, value.dtype.bits
    while (binding := maps.get(at)) is not None:
        whole = [a for a in binding.expr.args if a is not None and a.shape == value.shape]
        if len(whole) != 1:
            break
        passed.append(binding)
        (at,) = whole
        if at.dtype.bits < least:
            least, found = at.dtype.bits, [*passed]
    return found


def is_widening(binding: Binding) -> bool:
    """Whether it only widens its operand's type, or dequantizes it to a wider one."""
    call = binding.expr
    if not isinstance(call, Call) or call.op.name not in ("cast", "dequantize"):
        return False
    x = call.args[0]
    return x is not None and binding.outputs[0].dtype.bits > x.dtype.bits
