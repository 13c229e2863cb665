"""Constant factors and addends, folded into existing constants.

A factor moves backwards through sums, views and transposes until it reaches weights or another
constant; or forwards, into the weights of the next product.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.ir.types import known_dim
from tilewright.graph.rules.grouping import pieces_of
from tilewright.graph.rules.site import Site
from tilewright.graph.rules.transposes import order_of
from tilewright.graph.rules.weights import (
    per_channel,
    weighted,
    with_inputs_scaled,
    with_outputs_scaled,
    with_outputs_shifted,
)

#: Most calls that a factor is followed through.
_DEEP: Final = 8


def _is_real(value: Value) -> bool:
    return value.dtype.is_float and value.dtype.bits >= 32


def _is_factor(value: Value) -> bool:
    array = value.constant
    return array is not None and bool(np.isfinite(array).all())


def _split(s: Site, *, ordered: bool = False) -> tuple[Value, Value] | None:
    """A call as (computed operand, constant); `ordered`: the constant must come second."""
    a, b = s.args
    if not _is_real(a):
        return None
    if _is_factor(b) and not a.is_constant:
        return a, b
    return (b, a) if not ordered and _is_factor(a) and not b.is_constant else None


# ---- backwards ----------------------------------------------------------------------------------


def _mul(s: Site) -> Value | None:
    """conv(x, w) * c = conv(x, w * c); (x + a) * c = x * c + a * c, where both cost nothing"""
    found = _split(s)
    if found is None or found[0].shape != s.result.shape:
        return None
    return _scaled(s, *found)


def _div(s: Site) -> Value | None:
    """conv(x, w) / c = conv(x, w / c)"""
    found = _split(s, ordered=True)
    if found is None or found[0].shape != s.result.shape:
        return None
    value, by = found
    array = by.constant
    if array is None or not array.all():
        return None
    return _scaled(s, value, s.constant((1 / array.astype(np.float64)).astype(array.dtype), by))


def _scaled(s: Site, value: Value, factor: Value, depth: int = 0) -> Value | None:
    """`value * factor` without an additional multiplication."""
    if value.is_constant:
        return _product_of_constants(s, value, factor)
    call = s.makers.call_of(value)
    if call is None or depth > _DEEP or not s.makers.is_private(value):
        return None
    row = weighted(call)
    if row is not None:
        v = per_channel(factor, value.ndim, row.outputs, value.shape[row.outputs])
        return None if v is None else with_outputs_scaled(s, call, row, v)
    rule = _SCALED.get(call.op.name)
    return None if rule is None else rule(s, call, value, factor, depth + 1)


def _product_of_constants(s: Site, a: Value, b: Value) -> Value | None:
    assert a.constant is not None and b.constant is not None
    made = a.constant.astype(np.float64) * b.constant
    if made.size > max(a.constant.size, b.constant.size):
        return None
    return s.constant(made.astype(a.dtype.numpy), a)


def _scaled_sum(s: Site, call: Call, value: Value, factor: Value, depth: int) -> Value | None:
    a, b = (_scaled_operand(s, v, value, factor, depth) for v in call.args)
    return None if a is None or b is None else s.again(call, [a, b])


def _scaled_operand(
    s: Site, operand: Value | None, value: Value, factor: Value, depth: int
) -> Value | None:
    assert operand is not None
    if operand.is_constant or operand.shape == value.shape:
        return _scaled(s, operand, factor, depth)
    return None


def _scaled_product(s: Site, call: Call, value: Value, factor: Value, depth: int) -> Value | None:
    """(x * a) * c = x * (a * c)"""
    del value, depth
    a, b = call.args
    assert a is not None and b is not None
    constant, other = (a, b) if a.is_constant else (b, a)
    if not constant.is_constant or not _is_factor(constant):
        return None
    both = _product_of_constants(s, constant, factor)
    return None if both is None else s.again(call, [other, both])


def _scaled_transpose(s: Site, call: Call, value: Value, factor: Value, depth: int) -> Value | None:
    source, order = call.args[0], order_of(call)
    assert source is not None
    full = _full(factor, value.ndim)
    if full is None:
        return None
    back = [order.index(k) for k in range(len(order))]
    inner = _scaled(s, source, s.constant(full.transpose(back), factor), depth)
    return None if inner is None else s.again(call, [inner])


def _scaled_view(s: Site, call: Call, value: Value, factor: Value, depth: int) -> Value | None:
    source = call.args[0]
    assert source is not None
    full = _full(factor, value.ndim)
    before = None if full is None else _reshaped(full, value, source)
    if before is None:
        return None
    inner = _scaled(s, source, s.constant(before, factor), depth)
    return None if inner is None else s.again(call, [inner])


def _full(factor: Value, rank: int) -> Array | None:
    array = factor.constant
    if array is None or array.ndim > rank:
        return None
    return array.reshape([1] * (rank - array.ndim) + list(array.shape))


def _reshaped(full: Array, value: Value, source: Value) -> Array | None:
    """Factors for the result of a reshape as factors for its operand."""
    if full.size == 1:
        return full.reshape([1] * source.ndim)
    axes = [k for k, n in enumerate(full.shape) if n > 1]
    pieces = pieces_of(source.shape, value.shape) or []
    own = [p for p in pieces if len(axes) == 1 and p.after == (axes[0],) and len(p.before) == 1]
    if len(own) != 1 or full.shape[axes[0]] != known_dim(value.shape[axes[0]]):
        return None
    shape = [full.size if k == own[0].before[0] else 1 for k in range(source.ndim)]
    return full.reshape(shape)


_SCALED = {
    "add": _scaled_sum,
    "sub": _scaled_sum,
    "mul": _scaled_product,
    "transpose": _scaled_transpose,
    "reshape": _scaled_view,
}


def _add(s: Site) -> Value | None:
    """conv(x, w, b) + c = conv(x, w, b + c); (x + a) + c = x + (a + c)"""
    found = _split(s)
    return None if found is None else _shifted(s, *found)


def _sub(s: Site) -> Value | None:
    """conv(x, w, b) - c = conv(x, w, b - c)"""
    found = _split(s, ordered=True)
    if found is None or found[1].constant is None:
        return None
    return _shifted(s, found[0], s.constant(-found[1].constant, found[1]))


def _shifted(s: Site, value: Value, addend: Value) -> Value | None:
    call = s.makers.call_of(value)
    if call is None or not s.makers.is_private(value) or value.shape != s.result.shape:
        return None
    row = weighted(call)
    if row is not None:
        v = per_channel(addend, value.ndim, row.outputs, value.shape[row.outputs])
        return None if v is None else with_outputs_shifted(s, call, row, v)
    return _sum_of_constants(s, call, addend) if call.op.name == "add" else None


def _sum_of_constants(s: Site, call: Call, addend: Value) -> Value | None:
    a, b = call.args
    assert a is not None and b is not None
    constant, other = (a, b) if a.is_constant else (b, a)
    if constant.constant is None or addend.constant is None or not _is_factor(constant):
        return None
    total = constant.constant.astype(np.float64) + addend.constant
    if total.size > max(constant.constant.size, addend.constant.size):
        return None
    return s.again(call, [other, s.constant(total.astype(other.dtype.numpy), constant)])


def _batch_norm(s: Site) -> Value | None:
    """(x - mean) / sqrt(var + e) * scale + bias = x * a + b"""
    x, *moments = s.args
    arrays = [v.constant for v in moments]
    if any(a is None for a in arrays) or not _is_real(x):
        return None
    scale, bias, mean, var = (a.astype(np.float64) for a in arrays if a is not None)
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(var + s.attr("epsilon"))
        addend = bias - mean * factor
    if not np.isfinite([factor, addend]).all():
        return None
    shape = (-1, *[1] * (x.ndim - 2))
    a, b = (v.reshape(shape).astype(x.dtype.numpy) for v in (factor, addend))
    return s.emit("add", s.emit("mul", x, s.constant(a, x)), s.constant(b, x))


# ---- forwards -----------------------------------------------------------------------------------


def _into_weights(s: Site) -> Value | None:
    """conv(x * c, w) = conv(x, w * c); matmul(x * c, w) likewise"""
    row, inner = weighted(s.call), s.private(s.x, "mul")
    if row is None or inner is None or s.attrs.get("transpose_a") or not _is_real(s.x):
        return None
    a, b = inner.args
    assert a is not None and b is not None
    constant, source = (a, b) if a.is_constant else (b, a)
    if not constant.is_constant or source.shape != s.x.shape:
        return None
    v = per_channel(constant, s.x.ndim, row.inputs, s.x.shape[row.inputs])
    return None if v is None else with_inputs_scaled(s, s.call, row, source, v)


def _past_product(s: Site) -> Value | None:
    """matmul(x * c, y) = matmul(x, y) * c for a number c, by which the kernel multiplies"""
    if not _is_real(s.x) or any(a.is_constant for a in s.args):
        return None
    args, factor = list(s.args), 1.0
    for k, value in enumerate(args):
        found = _without_number(s, value)
        if found is not None:
            args[k], factor = found[0], factor * found[1]
    if all(a is b for a, b in zip(args, s.args, strict=True)) or not np.isfinite(factor):
        return None
    return s.emit("mul", s.again(s.call, args), s.constant(np.asarray(factor), s.x))


def _without_number(s: Site, value: Value, depth: int = 0) -> tuple[Value, float] | None:
    """The value that is multiplied by a number to give `value`, and the number."""
    call = s.private(value, "mul", "div", "transpose", "reshape")
    if call is None or depth > _DEEP:
        return None
    first = call.args[0]
    assert first is not None
    if call.op.name in ("transpose", "reshape"):
        found = _without_number(s, first, depth + 1)
        return None if found is None else (s.again(call, [found[0]]), found[1])
    second = call.args[1]
    assert second is not None
    swapped = first.is_constant and call.op.name == "mul"
    source, number = (second, first) if swapped else (first, second)
    array = number.constant
    if array is None or array.size != 1 or not array.all() or source.shape != value.shape:
        return None
    by = float(array.reshape(()))
    return (source, by if call.op.name == "mul" else 1 / by) if np.isfinite(by) else None


RULES = {
    "batch_norm": (_batch_norm,),
    "mul": (_mul,),
    "div": (_div,),
    "add": (_add,),
    "sub": (_sub,),
    "conv": (_into_weights,),
    "conv_transpose": (_into_weights,),
    "gemm": (_into_weights,),
    "dense": (_into_weights,),
    "matmul": (_into_weights, _past_product),
    "einsum": (_past_product,),
}
