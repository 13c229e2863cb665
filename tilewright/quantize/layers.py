"""The layers of a graph that can be quantized: products with constant weights."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tilewright.graph import (
    Array,
    Binding,
    Call,
    Module,
    Node,
    Value,
    Weighted,
    passes,
    weighted,
)
from tilewright.ir import DType
from tilewright.support.errors import UserError, nearest

_FLOAT32: Final = DType.of("float32")
#: Operators that reduce images.
_SUMS: Final = frozenset(["global_avg_pool", "mean", "avg_pool"])
#: Most operators between a layer and an image.
_BACK: Final = 6
#: With fewer channels, int8 gains nothing.
_FEW: Final = 8


@dataclass(frozen=True, eq=False)
class Layer:
    """A product of a computed value with constant weights."""

    #: A unique name from its output, and the node of the model that it comes from.
    name: str
    origin: str
    call: Call
    output: Value
    row: Weighted
    #: The output axis of the weights.
    axis: int

    @property
    def x(self) -> Value:
        value = self.call.args[0]
        assert value is not None
        return value

    @property
    def weight(self) -> Value:
        value = self.call.args[1]
        assert value is not None
        return value

    @property
    def array(self) -> Array:
        array = self.weight.constant
        assert array is not None
        return array

    @property
    def is_of_images(self) -> bool:
        """Whether it is a convolution."""
        return is_convolution(self.call)

    @property
    def rows(self) -> Array:
        """The weights of a matrix product, one row per output."""
        return self.array if self.axis == 0 else self.array.T

    @property
    def bias(self) -> Array | None:
        value = None if self.row.bias is None else self.call.args[self.row.bias]
        return None if value is None else value.constant

    def by_output(self, numbers: Array) -> Array:
        """One number per output, in a shape that broadcasts against the weights."""
        return numbers.reshape([-1 if k == self.axis else 1 for k in range(self.array.ndim)])

    def by_input(self, numbers: Array) -> Array:
        """One number per channel of x, in a shape that broadcasts against the weights."""
        return self.row.by_input(self.call, self.array, numbers)

    def work(self, x: Sequence[int]) -> int:
        """The number of multiplications for an x of this shape."""
        per_place = self.array.size
        if not self.is_of_images:
            return per_place * int(np.prod(x[:-1]))
        if self.call.op.name == "conv_transpose":
            return per_place * int(np.prod(x[2:])) * x[0]
        strides = self.call.attrs["strides"] or (1,)
        return per_place * int(np.prod(x[2:])) * x[0] // int(np.prod(strides))


def is_convolution(call: Call) -> bool:
    """Whether a call convolves images, whose channel axis is the second."""
    return call.op.name in ("conv", "conv_transpose")


def prepared(module: Module) -> Module:
    """The module for calibration: functions inlined, constants folded, and batch normalisation
    folded into weights."""
    for run in (
        passes.inline_functions,
        passes.simplify_inference,
        passes.constant_folding,
        passes.fold_scale,
        passes.constant_folding,
        passes.dead_code,
    ):
        module = run(module)
    _require_real(module)
    return module


def _require_real(module: Module) -> None:
    for binding in module.main.body:
        call = binding.expr
        if isinstance(call, Call) and call.op.name in _QUANTIZED:
            raise UserError(
                "the model is quantized already",
                reason=f"it has {call.op.name} ({binding.label})",
                remedy="quantize the model that it was made of",
            )


_QUANTIZED: Final = frozenset(
    ["quantize", "dynamic_quantize", "matmul_integer", "conv_integer", "matmul_nbits", "requantize"]
)


def layers_of(module: Module) -> list[Layer]:
    """The layers of `main` that can be quantized, in order, each with a unique name."""
    taken: set[str] = set()
    found = (_layer(b, taken) for b in module.main.body)
    return [layer for layer in found if layer is not None]


def stored_images(module: Module, layers: Sequence[Layer]) -> dict[Value, Layer]:
    """Images stored between layers, besides the inputs of layers, each with the layer it is
    computed from: those that are reduced and read a second time, as in squeeze-and-excite
    blocks."""
    made = {b.outputs[0]: b.expr for b in module.main.body if len(b.outputs) == 1}
    outputs = {layer.output: layer for layer in layers if layer.is_of_images}
    known = {*(layer.x for layer in layers), *module.main.results}
    found: dict[Value, Layer] = {}
    for value in _summed_and_read_again(module):
        source = _source(value, made, outputs)
        if source is not None and value not in known and value.dtype is _FLOAT32:
            found[value] = source
    return found


def _summed_and_read_again(module: Module) -> Iterator[Value]:
    readers: dict[Value, list[Node]] = {}
    for binding in module.main.body:
        for value in dict.fromkeys(a for a in binding.expr.args if a is not None):
            readers.setdefault(value, []).append(binding.expr)
    for value, calls in readers.items():
        names = [c.op.name if isinstance(c, Call) else "" for c in calls]
        if len(names) > 1 and "" not in names and _SUMS.intersection(names):
            yield value


def _source(
    value: Value, made: Mapping[Value, Node], outputs: Mapping[Value, Layer]
) -> Layer | None:
    """The layer that a value is computed from by elementwise operators."""
    for _ in range(_BACK):
        if value in outputs:
            return outputs[value]
        call = made.get(value)
        before = call.args[0] if isinstance(call, Call) and call.args else None
        if before is None or before.type != value.type:
            return None
        value = before
    return None


def parted(layers: Sequence[Layer], keep: Collection[str]) -> tuple[list[Layer], list[Layer]]:
    """The layers that may be quantized, and those to be kept in float."""
    names = {layer.name for layer in layers}
    for name in keep:
        if name not in names:
            raise UserError(f"there is no layer {name} to keep", remedy=nearest(name, names))
    kept = [layer for layer in layers if layer.name in keep]
    return [layer for layer in layers if layer.name not in keep], kept


def _layer(binding: Binding, taken: set[str]) -> Layer | None:
    call = binding.expr
    row = weighted(call) if isinstance(call, Call) else None
    if row is None or not isinstance(call, Call) or call.op.name not in _AXES:
        return None
    x, weight = call.args[:2]
    assert x is not None and weight is not None and weight.constant is not None
    if x.dtype is not _FLOAT32 or not np.isfinite(weight.constant).all():
        return None
    axis = _AXES[call.op.name](call)
    is_plain = axis is not None and _is_plain(call, weight.constant)
    if axis is None or not is_plain or x.ndim < 2 or call.attrs.get("dtype") is not None:
        return None
    output = binding.outputs[0]
    return Layer(_own_name(output.name, taken), binding.origin, call, output, row, axis)


def _own_name(hint: str, taken: set[str]) -> str:
    """A name that no other layer has; values may have equal names."""
    name, count = hint, 1
    while name in taken:
        name, count = f"{hint}_{count}", count + 1
    taken.add(name)
    return name


def _is_plain(call: Call, weight: Array) -> bool:
    """Whether int8 gains: many channels in dense products, which machines multiply in groups; or
    depthwise convolutions, which read bytes faster than floats."""
    if not is_convolution(call):
        return weight.ndim == 2 and min(weight.shape) >= _FEW
    groups = call.attrs["groups"]
    if call.op.name == "conv_transpose":
        is_dense = groups == 1 and all(d == 1 for d in call.attrs["dilations"])
        return is_dense and min(weight.shape[:2]) >= _FEW
    is_depthwise = weight.shape[1] == 1 and weight.shape[0] == groups >= _FEW
    return is_depthwise or passes.fills_byte_products(weight.shape, groups)


def _of_product(call: Call) -> int | None:
    attrs = call.attrs
    is_scaled = attrs.get("alpha", 1) != 1 or attrs.get("beta", 1) != 1
    if attrs["transpose_a"] or is_scaled:
        return None
    return 0 if attrs["transpose_b"] else 1


def _first(_call: Call) -> int:
    return 0


def _second(_call: Call) -> int:
    return 1


#: The output axis of the weights, by operator; None where it cannot be quantized.
_AXES: Final[dict[str, Any]] = {
    "conv": _first,
    "conv_transpose": _second,
    "dense": _first,
    "matmul": _of_product,
    "gemm": _of_product,
}
