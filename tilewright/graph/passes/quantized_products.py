"""Products of quantized tensors that a model writes as products of floats, in bytes.

    y = conv(dequantize(x, s, z), dequantize(w, r), b)
    -->
    t = conv(pad(x, z), w, dtype=int32)                 exact sums
    y = add(mul(cast(sub(t, z * sums of w)), s * r), b)

That is how most tools write quantized models down. Weights are constant bytes with a scale for
each output and no zero point, or one that they can take in; images and rows have one scale. All
else stays as it is: so does everything on machines that have no instructions for bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.graph.ir import Array, Call, Module, Value
from tilewright.graph.ir.types import known_dim
from tilewright.graph.rewriting.context import Pass
from tilewright.graph.rules import Rule, RuleRewriter
from tilewright.graph.rules.site import Site
from tilewright.graph.sizes.axes import axis_of
from tilewright.ir import DType
from tilewright.target import Target

_FLOAT32, _INT32 = DType.of("float32"), DType.of("int32")
#: Channels below which bytes do not fill the instructions for them.
_FEW: Final = 8


def quantized_products(target: Target) -> Pass:
    """The pass for a machine."""

    def quantized_products(module: Module) -> Module:
        """The module with products of bytes in place of those of what they stand for."""
        if not target.has_byte_products:
            return module
        return module.map(lambda f: RuleRewriter(f, _rules).graph(f))

    return quantized_products


class _Bytes(NamedTuple):
    """A tensor of bytes with the one scale and zero point that make it real numbers."""

    value: Value
    scale: Array
    zero: int


class _Weights(NamedTuple):
    """Signed bytes without a zero point, and a scale for each output."""

    array: Array
    scales: Array


def _conv(s: Site) -> Value | None:
    weight = s.arg(1)
    if s.attr("groups") != 1 or s.attr("dtype") is not None:
        return None
    x, w = _bytes(s, s.x), _weights(s, weight, 0)
    if x is None or w is None or min(w.array.shape[:2]) < _FEW:
        return None
    image, attrs = _padded(s, x)
    total = s.again(s.call, [image, s.constant(w.array)], **attrs, dtype=_INT32)
    by_channel = (-1, *[1] * (s.x.ndim - 2))
    sums = w.array.reshape(len(w.array), -1).sum(axis=1, dtype=np.int64)
    real = _scaled(s, total, x, sums.reshape(by_channel), w.scales.reshape(by_channel))
    bias = s.call.args[2]
    if bias is None:
        return real
    return s.emit("add", real, s.emit("reshape", bias, shape=by_channel))


def _padded(s: Site, x: _Bytes) -> tuple[Value, dict[str, Any]]:
    """The image with its zero point around it, where that is another number than 0."""
    pads = s.attr("pads")
    if not x.zero or all(known_dim(p) == 0 for p in pads):
        return x.value, {}
    rank = s.x.ndim - 2
    around = {"before": (0, 0, *pads[:rank]), "after": (0, 0, *pads[rank:])}
    zero = s.constant(np.array(x.zero, x.value.dtype.numpy))
    return s.emit("pad", x.value, zero, **around), {"pads": (0,) * (2 * rank)}


def _matmul(s: Site) -> Value | None:
    if s.attr("transpose_a") or s.attr("transpose_b"):
        return None
    return _product(s, _weights(s, s.arg(1), 1))


def _gemm(s: Site) -> Value | None:
    if s.attr("transpose_a") or s.attr("alpha") != 1 or s.attr("beta") != 1:
        return None
    is_turned = s.attr("transpose_b")
    found = _weights(s, s.arg(1), 0 if is_turned else 1)
    if found is not None and is_turned:
        found = _Weights(np.ascontiguousarray(found.array.T), found.scales)
    real = _product(s, found)
    bias = s.call.args[2]
    return real if real is None or bias is None else s.emit("add", real, bias)


def _product(s: Site, w: _Weights | None) -> Value | None:
    x = None if w is None else _bytes(s, s.x)
    if x is None or w is None or w.array.ndim != 2 or min(w.array.shape) < _FEW or s.x.ndim < 2:
        return None
    total = s.emit("matmul_integer", x.value, s.constant(w.array))
    return _scaled(s, total, x, w.array.sum(axis=0, dtype=np.int64), w.scales)


def _scaled(s: Site, total: Value, x: _Bytes, sums: Array, scales: Array) -> Value:
    """The real numbers that sums of bytes stand for."""
    if x.zero:
        total = s.emit("sub", total, s.constant((x.zero * sums).astype(np.int32)))
    factors = (x.scale.astype(np.float32) * scales).astype(np.float32)
    return s.emit("mul", s.emit("cast", total, dtype=_FLOAT32), s.constant(factors))


# ---- what is dequantized ------------------------------------------------------------------------


def _dequantized(s: Site, value: Value) -> Call | None:
    call = s.made_by(value, "dequantize")
    if call is None or value.dtype is not _FLOAT32 or call.attrs["block"]:
        return None
    x, scale, zero = call.args
    assert x is not None and scale is not None
    known = scale.constant is not None and (zero is None or zero.constant is not None)
    return call if known and x.dtype.is_integer and x.dtype.bits == 8 else None


def _bytes(s: Site, value: Value) -> _Bytes | None:
    call = _dequantized(s, value)
    if call is None:
        return None
    x, scale, zero = call.args
    assert x is not None and scale is not None and scale.constant is not None
    zeros = np.zeros((), np.int8) if zero is None else zero.constant
    assert zeros is not None
    if x.is_constant or scale.constant.size != 1 or zeros.size != 1:
        return None
    return _Bytes(x, scale.constant.reshape(()), int(zeros.reshape(())))


def _weights(s: Site, value: Value, outputs: int) -> _Weights | None:
    """Constant weights with scales along the axis of outputs."""
    call = _dequantized(s, value)
    stored = None if call is None or call.args[0] is None else call.args[0].constant
    if call is None or stored is None:
        return None
    scale, zero = call.args[1:]
    assert scale is not None and scale.constant is not None
    scales = scale.constant.astype(np.float32)
    if scales.size > 1 and axis_of(call.attrs["axis"], stored.ndim) != outputs:
        return None
    centred = stored.astype(np.int16)
    if zero is not None and zero.constant is not None:
        zeros = zero.constant.astype(np.int16).reshape(-1)
        centred = centred - zeros.reshape([-1 if n == outputs else 1 for n in range(stored.ndim)])
    if centred.size and not -128 <= centred.min() <= centred.max() <= 127:
        return None
    # Floats would not wrap around: sums of bytes must not either, whatever they are multiplied by.
    others = tuple(n for n in range(stored.ndim) if n != outputs)
    if np.abs(centred).sum(axis=others, dtype=np.int64).max(initial=0) * 256 > _INT32.max_value:
        return None
    full = np.broadcast_to(scales.reshape(-1), (stored.shape[outputs],))
    return _Weights(centred.astype(np.int8), full)


_RULES: Final[dict[str, Callable[[Site], Value | None]]] = {
    "conv": _conv,
    "matmul": _matmul,
    "gemm": _gemm,
}


def _rules(name: str) -> Iterable[Rule]:
    rule = _RULES.get(name)
    return () if rule is None else (rule,)
