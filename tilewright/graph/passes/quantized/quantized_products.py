"""Computes products of quantized tensors, which models write as products of floats, in bytes.

    y = conv(dequantize(x, s, z), dequantize(w, r), b)
    -->
    t = conv(x, w, dtype=int32, fill=z)                 exact sums
    y = add(mul(cast(sub(t, z * sums of w)), s * r), b)

Most tools write quantized models like that. Weights are constant bytes with a scale for each output
and no zero point, or one that they can absorb; images and rows have one scale. All else stays as it
is, and so do products on machines without instructions for bytes. Those that multiply pairs of 16
bits (AVX2) gain less: there, convolutions stay where Winograd's algorithm is faster.

Depthwise convolutions have no sum over channels for byte instructions to compute: their sums are in
float32, which holds them exactly, but images are read as bytes, on every machine. Machines without
a float unit sum in integers there, too.

    t = conv(x, float32 of w, groups=channels, dtype=float32, fill=z)

Products of two tensors that are both computed are those of attention (`of_two`).

A transposed convolution is computed as one convolution that gives all its phases
(`ops.forms.conv_phases`), which are interleaved as real numbers, or once they are bytes again.

    y = matmul(x, dequantize(w, scales of blocks))   -->   y = matmul_nbits(x, packed w, scales)

Where only weights are quantized, in blocks along the summed axis, they stay as small as they are on
all machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from math import prod
from typing import Final

import numpy as np

from tilewright.graph.ir import Call, Module, Value
from tilewright.graph.ir.types import known_dim
from tilewright.graph.ops.forms.conv_phases import Phases, phase_weights, phases_of
from tilewright.graph.passes.dead_code import dead_code
from tilewright.graph.passes.quantized.by_blocks import (
    BY_BLOCKS,
    dense_by_blocks,
    gemm_by_blocks,
    is_plain_gemm,
    matmul_by_blocks,
    with_bias,
)
from tilewright.graph.passes.quantized.coarse import coarser_functions
from tilewright.graph.passes.quantized.dequantized import (
    Bytes,
    Weights,
    bytes_of,
    scaled,
    weights_of,
)
from tilewright.graph.passes.quantized.integer_convs import INTEGER_CONVS
from tilewright.graph.passes.quantized.of_two import product_of_two
from tilewright.graph.passes.quantized.reciprocals import product_for_quotient
from tilewright.graph.rewriting.context import Pass, PassContext, Step
from tilewright.graph.rules import Rule, RuleRewriter, quantized
from tilewright.graph.rules.site import Site
from tilewright.graph.winograd.cost import least_share
from tilewright.ir import DType
from tilewright.target import Target

_FLOAT32, _INT32 = DType.of("float32"), DType.of("int32")
#: Fewer channels than this do not fill the instructions for bytes.
_FEW: Final = 8
#: Multiples of this many channels in a group are whole blocks.
_WHOLE: Final = 16
#: Scales below this have no reciprocal in float32.
_TINY: Final = 1e-37
#: Most operators between a product and what quantizes its result.
_BACK: Final = 8
#: Integers up to this are exact in float32.
_EXACT: Final = 2**24


def quantized_products(target: Target, winograd: Step | None = None) -> Pass:
    """The pass for a machine, where `winograd` is the pass that may rewrite convolutions later."""

    def quantized_products(module: Module) -> Module:
        """The module with products of bytes in place of products of their real values."""
        table = _rules_for(target, winograd)

        def rules(name: str) -> Iterable[Rule]:
            return table.get(name, ())

        changed = module.map(lambda f: RuleRewriter(f, rules).graph(f))
        # Unused bindings would keep their operands from being folded.
        return module if changed is module else dead_code(changed)

    return quantized_products


Filling = Callable[[Sequence[int], int], bool]


def fills_byte_products(weight: Sequence[int], groups: int) -> bool:
    """Whether a convolution by weights of this shape has enough channels in each group."""
    sides = weight[0] // groups, weight[1]
    return min(sides) >= _FEW if groups == 1 else all(n and n % _WHOLE == 0 for n in sides)


def _fills_tensor_products(weight: Sequence[int], groups: int) -> bool:
    """The same on GPUs, whose sums run over windows as well as over channels."""
    is_long = weight[0] >= _FEW and weight[1] > 1 and prod(weight[1:]) >= _WHOLE
    return is_long if groups == 1 else fills_byte_products(weight, groups)


def _conv(s: Site, fills: Filling = fills_byte_products) -> Value | None:
    """A convolution without groups, or in groups that fill the instructions for bytes."""
    if s.attr("dtype") is not None:
        return None
    x, w = bytes_of(s, s.x), weights_of(s, s.arg(1), 0)
    if x is None or w is None or not fills(w.array.shape, s.attr("groups")):
        return None
    return _convolved(s, x, w, _INT32)


def _transposed_conv(s: Site) -> Value | None:
    """A transposed convolution as one convolution whose outputs are its phases."""
    x, w = bytes_of(s, s.x), weights_of(s, s.arg(1), 1)
    bias = s.call.args[2]
    if x is None or w is None or min(w.array.shape[:2]) < _FEW:
        return None
    phases = phases_of(Call(s.call.op, [s.x, s.constant(w.array), None], s.call.attrs))
    if phases is None:
        return None
    factors = phase_weights(w.array, phases)
    total = s.emit(
        "conv", x.value, s.constant(factors), pads=phases.pads, dtype=_INT32, fill=x.zero
    )
    by_channel = (-1, *[1] * phases.rank)
    sums = factors.reshape(len(factors), -1).sum(axis=1, dtype=np.int64)
    scales = np.tile(w.scales, phases.number)
    real = scaled(s, total, x, sums.reshape(by_channel), scales.reshape(by_channel))
    if bias is not None:
        every = s.emit("concat", *[bias] * phases.number, axis=0)
        real = s.emit("add", real, s.emit("reshape", every, shape=by_channel))
    return _side_by_side(s, real, phases)


def _side_by_side(s: Site, x: Value, phases: Phases) -> Value:
    """N×(phases·O)×places as the image N×O×spatial, with its phases interleaved."""
    rank, places = phases.rank, x.shape[2:]
    outputs = s.result.shape[1]
    split = s.emit("reshape", x, shape=[x.shape[0], *phases.strides, outputs, *places])
    pairs = [(2 + rank + n, 1 + n) for n in range(rank)]
    axes = [0, 1 + rank, *chain.from_iterable(pairs)]
    extents = [q * step for q, step in zip(places, phases.strides, strict=True)]
    joined = s.emit("transpose", split, axes=axes)
    image = s.emit("reshape", joined, shape=[x.shape[0], outputs, *extents])
    if not any(phases.cut):
        return image
    before = phases.cut[:rank]
    ends = [n + size for n, size in zip(before, s.result.shape[2:], strict=True)]
    return s.emit("slice", image, starts=before, ends=ends, axes=list(range(2, 2 + rank)))


def _conv_where_it_pays(s: Site, target: Target, winograd: Step | None) -> Value | None:
    """`_conv` on machines that gain less by bytes than by Winograd's algorithm."""
    will_run = winograd is not None and PassContext.current().runs(winograd)
    is_slower = s.attr("groups") > 1 or (will_run and _winograd_is_faster(s, target))
    return None if is_slower else _conv(s)


def _winograd_is_faster(s: Site, target: Target) -> bool:
    call = s.made_by(s.arg(1), "dequantize")
    if call is None or call.args[0] is None:
        return False
    by_floats = Call(s.call.op, [s.x, call.args[0], s.call.args[2]], s.call.attrs)
    share = least_share(by_floats, s.result.tensor, target)
    return share <= target.timing.conv.pairs_share


def _depthwise(s: Site, dtype: DType = _FLOAT32) -> Value | None:
    """A depthwise convolution, with images in bytes and sums of type `dtype`."""
    if s.attr("groups") == 1 or known_dim(s.arg(1).shape[1]) != 1 or s.attr("dtype") is not None:
        return None
    x, w = bytes_of(s, s.x), weights_of(s, s.arg(1), 0)
    if x is None or w is None or len(w.array) != s.attr("groups"):
        return None
    greatest = np.abs(w.array.astype(np.int64)).reshape(len(w.array), -1).sum(axis=1)
    is_exact = dtype is _INT32 or greatest.max(initial=0) * 256 <= _EXACT
    return _convolved(s, x, w, dtype) if is_exact else None


def _convolved(s: Site, x: Bytes, w: Weights, dtype: DType) -> Value:
    """The real result of a convolution of bytes, with sums of type `dtype`."""
    factors = w.array if dtype is _INT32 else w.array.astype(dtype.numpy)
    total = s.again(s.call, [x.value, s.constant(factors)], dtype=dtype, fill=x.zero)
    by_channel = (-1, *[1] * (s.x.ndim - 2))
    sums = w.array.reshape(len(w.array), -1).sum(axis=1, dtype=np.int64)
    real = scaled(s, total, x, sums.reshape(by_channel), w.scales.reshape(by_channel))
    bias = s.call.args[2]
    if bias is None:
        return real
    return s.emit("add", real, s.emit("reshape", bias, shape=by_channel))


def _matmul(s: Site) -> Value | None:
    if s.attr("transpose_a") or s.attr("dtype") is not None:
        return None
    return _product(s, _columns(s, s.attr("transpose_b")))


def _gemm(s: Site) -> Value | None:
    if not is_plain_gemm(s):
        return None
    return with_bias(s, _product(s, _columns(s, s.attr("transpose_b"))))


def _dense(s: Site) -> Value | None:
    return with_bias(s, _product(s, _columns(s, is_transposed=True)))


def _columns(s: Site, is_transposed: bool) -> Weights | None:
    """Weights with a column for each output."""
    found = weights_of(s, s.arg(1), 0 if is_transposed else 1)
    if found is None or not is_transposed or found.array.ndim != 2:
        return found
    return Weights(np.ascontiguousarray(found.array.T), found.scales)


def _product(s: Site, w: Weights | None) -> Value | None:
    x = None if w is None else bytes_of(s, s.x)
    if x is None or w is None or w.array.ndim != 2 or min(w.array.shape) < _FEW or s.x.ndim < 2:
        return None
    total = s.emit("matmul_integer", x.value, s.constant(w.array))
    return scaled(s, total, x, w.array.sum(axis=0, dtype=np.int64), w.scales)


# ---- results that are quantized again -----------------------------------------------------------


def _quantize(s: Site) -> Value | None:
    """quantize(x, c) = quantize(x * (1 / c), 1), for x computed from sums of products

    Such x are rounded one way or the other anyway, and a division takes longer than all else
    that is done with a sum.
    """
    scale, is_plain = s.arg(1).constant, s.attr("precision") is None
    if scale is None or scale.size != 1 or not is_plain or s.x.dtype is not _FLOAT32:
        return None
    factor = float(scale.reshape(()))
    if factor == 1 or not np.isfinite(np.float32(1 / factor) if factor > _TINY else np.inf):
        return None
    if not s.result.dtype.is_integer or not _comes_from_sums(s, s.x):
        return None
    one = s.constant(np.ones_like(scale), s.arg(1))
    real = s.emit("mul", s.x, s.constant(np.float32(1 / factor)))
    zero = s.call.args[2]
    if zero is None or zero.constant is None or zero.constant.any():
        return s.again(s.call, [real, one, zero])
    return s.again(s.call, [real, one, None], dtype=s.result.dtype)


def _unclipped(s: Site) -> Value | None:
    """quantize(clip(x, a, b), c) = quantize(x, c), where bytes saturate before a and b"""
    inner = s.private(s.x, "clip", "relu")
    scale, zero = s.arg(1).constant, s.call.args[2]
    if inner is None or scale is None or scale.size != 1 or not s.result.dtype.is_integer:
        return None
    zeros = np.zeros(()) if zero is None else zero.constant
    factor = float(scale.reshape(()))
    if zeros is None or zeros.size != 1 or not factor > 0 or not s.attr("saturate"):
        return None
    low, high = _bounds(inner)
    least, most = (
        np.rint(np.float32(b) / np.float32(factor)) + float(zeros.reshape(())) for b in (low, high)
    )
    dtype = s.result.dtype
    if not (least <= dtype.min_value and most >= dtype.max_value):
        return None
    return s.again(s.call, [inner.args[0], *s.call.args[1:]])


def _bounds(call: Call) -> tuple[float, float]:
    """The bounds that a value is clipped to; NaN where one is not known."""
    if call.op.name == "relu":
        return 0.0, np.inf
    found = [-np.inf, np.inf]
    for k, bound in enumerate(call.args[1:]):
        if bound is not None:
            found[k] = np.nan if bound.constant is None else float(bound.constant.reshape(()))
    return found[0], found[1]


def _comes_from_sums(s: Site, value: Value, depth: int = _BACK) -> bool:
    """Whether a value is computed from sums of products by maps alone."""
    call = s.made_by(value)
    if call is None or not depth:
        return False
    if call.op.name in ("conv", "matmul_integer"):
        return True
    operands = [a for a in call.args if a is not None]
    return s.is_map(call, value) and any(_comes_from_sums(s, a, depth - 1) for a in operands)


_TO_BYTES: Final = (product_for_quotient, coarser_functions)
_RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "conv": (_conv, _depthwise),
    "conv_transpose": (_transposed_conv,),
    "quantize": (*quantized.RULES["quantize"], _unclipped, _quantize, *_TO_BYTES),
    "where": quantized.RULES["where"],
    "matmul": (_matmul, matmul_by_blocks),
    "gemm": (_gemm, gemm_by_blocks),
    "dense": (_dense, dense_by_blocks),
}


def _rules_for(target: Target, winograd: Step | None) -> dict[str, tuple[Rule, ...]]:
    """The rules that make programs faster on a machine."""
    if not target.has_float_unit:
        return _RULES | {"conv": (_conv, partial(_depthwise, dtype=_INT32))}
    if target.gpu is not None and target.has_byte_products:
        of_images = {"conv": (partial(_conv, fills=_fills_tensor_products), _depthwise)}
        return _RULES | INTEGER_CONVS | of_images
    if target.has_byte_products:
        return _RULES | {"matmul": (_matmul, product_of_two, matmul_by_blocks)}
    if target.has_pair_products:
        pays = partial(_conv_where_it_pays, target=target, winograd=winograd)
        return _RULES | {"conv": (pays, _depthwise)}
    reads_bytes = target.kind.device == "cpu"
    quicker = {"conv": (_depthwise,), "quantize": (_unclipped, _quantize, *_TO_BYTES)}
    return BY_BLOCKS | quicker if reads_bytes else BY_BLOCKS
