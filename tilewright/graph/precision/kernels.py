"""Kernels that read and write narrower floats, and compute in float32.

    y = relu(conv(x, w, b))
    -->
    def group():
        c = conv(x, float16 of w, b, dtype=float32)      x: float16
        return narrowed(relu(c))
    y = fused(group)                                     y: float16

Operands are widened where they are read, and only results of the kernel are rounded. Products take
narrow factors and are summed in float32; copies move narrow elements unchanged. Weights are
constants of the narrower type; where that would lose too much, they are scaled by a power of two,
by which the sums are divided. Large tables are narrow as well, where they lose little; other
constants stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.graph.building.builder import Builder
from tilewright.graph.fusion.definitions import Facts, FactTable
from tilewright.graph.fusion.sharing import Joins
from tilewright.graph.ir import Array, Binding, Call, Fused, Graph, Value
from tilewright.graph.ir.types import TensorType
from tilewright.graph.ops.forms.narrowed import narrowed_reference
from tilewright.graph.ops.recurrent.recurrent import SCANS
from tilewright.graph.precision.products import as_product, written
from tilewright.graph.precision.stored import (
    FLOAT32,
    KernelCalls,
    carries,
    is_product,
    kernel_of,
    narrow_values,
)
from tilewright.graph.rewriting.rewrite import grouped
from tilewright.ir import DType

#: Constants of at least this many elements are narrow for all readers.
_LARGE: Final = 1 << 16
#: Largest loss of a narrow constant, relative to its norm: more than rounding loses where the
#: numbers are in the type's range, and less than is lost of numbers that are too small or large.
_LOST: Final = 1 / 64


def with_narrow_values(graph: Graph, dtype: DType, facts: FactTable) -> list[Binding]:
    """The bindings of a graph, with values between its kernels in `dtype`."""
    return _Writer(graph, dtype, facts).body()


class _Writer:
    def __init__(self, graph: Graph, dtype: DType, facts: FactTable) -> None:
        self._graph, self._dtype, self._facts = graph, dtype, facts
        self._joins = Joins(graph)
        #: The narrow value for each value that is stored narrow only.
        self._narrow = {v: _narrow_like(v, dtype) for v in narrow_values(graph, facts)}
        #: Narrow copies of other values; None for constants that must not have one.
        self._copies: dict[Value, _Factor | None] = {}
        self._made: list[Binding] = []

    def body(self) -> list[Binding]:
        for binding in self._graph.body:
            if carries(binding, self._joins):
                self._made.append(self._carried(binding))
                continue
            kernel = kernel_of(binding, self._facts)
            made = self._other(binding) if kernel is None else self._kernel(binding, kernel)
            self._made.append(made)
        return self._made

    # ---- bindings other than kernels ------------------------------------------------------------

    def _carried(self, binding: Binding) -> Binding:
        args = [None if a is None else self._narrow.get(a, a) for a in binding.expr.args]
        return Binding(self._outputs(binding), binding.expr.with_args(args), binding.origin)

    def _other(self, binding: Binding) -> Binding:
        expr = binding.expr
        if isinstance(expr, Call) and expr.op.name in SCANS:
            # Weights for states are read again at every step.
            products, weight, *others = expr.args
            stored = None if weight is None else self._unscaled(weight)
            args = [products, weight if stored is None else stored, *others]
            return Binding(binding.outputs, expr.with_args(args), binding.origin)
        if isinstance(expr, Fused) or not expr.graphs:
            return binding
        inner = [g.with_(with_narrow_values(g, self._dtype, self._facts)) for g in expr.graphs]
        return Binding(binding.outputs, expr.with_graphs(inner), binding.origin)

    # ---- kernels --------------------------------------------------------------------------------

    def _kernel(self, binding: Binding, kernel: KernelCalls) -> Binding:
        if not isinstance(binding.expr, Fused):
            group = grouped([binding], binding.outputs)
            kernel = KernelCalls(group.expr.graphs[0].body, kernel.facts)
        else:
            group = binding
        graph = group.expr.graphs[0]
        is_narrow = [v in self._narrow for v in binding.outputs]
        loops = _Loops(self, binding.origin)
        if kernel.moves and all(is_narrow):
            for inner in graph.body:
                loops.move(inner)
            results = [loops.current(v) for v in graph.results]
        else:
            for inner, facts in zip(graph.body, kernel.facts, strict=True):
                loops.compute(inner, facts)
            results = [
                loops.rounded(loops.current(v)) if narrow else loops.wide(v)
                for v, narrow in zip(graph.results, is_narrow, strict=True)
            ]
        return _binding(self._outputs(binding), loops, results, binding.origin)

    def _outputs(self, binding: Binding) -> list[Value]:
        return [self._narrow.get(v, v) for v in binding.outputs]

    # ---- operands of kernels --------------------------------------------------------------------

    @property
    def dtype(self) -> DType:
        return self._dtype

    def stored(self, value: Value) -> Value:
        """The value as kernels other than products read it."""
        array = value.constant
        if array is not None:
            return (self._unscaled(value) if array.size >= _LARGE else None) or value
        return self._narrow.get(value, value)

    def factor(self, value: Value) -> _Factor | None:
        """The narrow form of a value, made by a copy if it is stored in float32."""
        if value in self._narrow:
            return _Factor(self._narrow[value])
        if value not in self._copies:
            self._copies[value] = self._copy(value)
        return self._copies[value]

    def _unscaled(self, value: Value) -> Value | None:
        """The narrow form of a value, if that is a constant that needs no scale."""
        found = self.factor(value) if value.is_constant else None
        return None if found is None or found.scale != 1 else found.value

    def _copy(self, value: Value) -> _Factor | None:
        if value.dtype is not FLOAT32:
            return None
        if value.constant is not None:
            return _constant(value, value.constant, self._dtype)
        builder = Builder()
        copy = builder.emit("narrowed", value, dtype=self._dtype, name=value.name)
        builder.output(copy)
        self._made += builder.function().body
        return _Factor(copy)


class _Factor(NamedTuple):
    """A narrow value, and the power of two that it was multiplied by."""

    value: Value
    scale: float = 1.0


def _constant(value: Value, array: Array, dtype: DType) -> _Factor | None:
    """A constant in a narrower type, if it loses little there."""
    greatest = float(np.abs(array).max(initial=0))
    if not np.isfinite(greatest):
        return None
    for scale in (1.0, 2.0 ** -np.frexp(greatest)[1]):
        scaled = array * np.float32(scale)
        made = narrowed_reference(scaled, dtype=dtype)
        if _norm(scaled - made.astype(np.float32)) <= _LOST * _norm(scaled):
            return _Factor(Value(value.name, TensorType(dtype, value.shape), made), scale)
    return None


def _norm(array: Array) -> float:
    return float(np.linalg.norm(array.ravel().astype(np.float64)))


class _Loops(Builder):
    """The calls of one kernel, rewritten."""

    def __init__(self, values: _Writer, origin: str) -> None:
        super().__init__()
        self._outside, self.origin = values, origin
        #: The values that replace rewritten values and operands.
        self._new: dict[Value, Value] = {}
        #: The values this kernel has made so far, and their rounded and widened forms.
        self._own: set[Value] = set()
        self._rounded: dict[Value, Value] = {}
        self._full: dict[Value, Value] = {}

    @property
    def body(self) -> list[Binding]:
        return self.function().body

    def current(self, value: Value) -> Value:
        return self._new.get(value, value)

    def rounded(self, value: Value) -> Value:
        if value.dtype is not FLOAT32:
            return value
        return self.emit("narrowed", value, dtype=self._outside.dtype)

    # ---- copies ---------------------------------------------------------------------------------

    def move(self, binding: Binding) -> None:
        """Rewrite a call that only moves elements, for narrow ones."""
        args = [None if a is None else self._moved(a) for a in binding.expr.args]
        outputs = [_narrow_like(v, self._outside.dtype) for v in binding.outputs]
        self._new.update(zip(binding.outputs, outputs, strict=True))
        self.bind_made(Binding(outputs, binding.expr.with_args(args), binding.origin))

    def _moved(self, value: Value) -> Value:
        if value in self._new or value.dtype is not FLOAT32:
            return self.current(value)
        if value.constant is not None:
            array = narrowed_reference(value.constant, dtype=self._outside.dtype)
            made = Value(value.name, _narrow_type(value, self._outside.dtype), array)
        else:
            made = self.rounded(self._outside.stored(value))
        self._new[value] = made
        return made

    # ---- other calls ----------------------------------------------------------------------------

    def compute(self, binding: Binding, facts: Facts) -> None:
        """Rewrite a call on float32, or a product of narrow factors."""
        call = binding.expr
        assert isinstance(call, Call)
        self._own.update(binding.outputs)
        if facts.moves and all(a is None or self._is_narrow(a) for a in call.args):
            return self.move(binding)
        product = self._product(call) if is_product(call, facts) else None
        if product is not None:
            self._new[binding.outputs[0]] = product
            return None
        args = [None if a is None else self.wide(a) for a in call.args]
        attrs = {**call.attrs, "coarse": True} if "coarse" in call.op.attributes else call.attrs
        return self.bind_made(Binding(binding.outputs, Call(call.op, args, attrs), binding.origin))

    def _is_narrow(self, value: Value) -> bool:
        """Whether a value exists in the narrower type."""
        held = self.current(value) if value in self._own else self._outside.stored(value)
        return held.dtype is self._outside.dtype

    def _product(self, call: Call) -> Value | None:
        """The product of narrow factors; None where it has no such form."""
        if call.op.name == "attention":
            return self._attention(call)
        x, weight = (self._factor(a) for a in call.args[:2])
        if x is None or weight is None:
            return None
        scale = x.scale * weight.scale
        product = as_product(call) if call.op.name in ("dense", "gemm") else None
        if product is not None:
            addend = None if product.addend is None else self.wide(product.addend)
            made = product._replace(x=x.value, weight=weight.value, addend=addend)
            return written(made._replace(factor=product.factor / scale), self)
        if "dtype" not in call.op.attributes or call.attrs["dtype"] is not None:
            return None
        others = [self._scaled(a, scale) for a in call.args[2:]]
        attrs: dict[str, Any] = {**call.attrs, "dtype": FLOAT32}
        (total,) = self.emit_all(call.op, [x.value, weight.value, *others], attrs)
        return total if scale == 1 else self.emit("mul", total, np.float32(1 / scale))

    def _attention(self, call: Call) -> Value | None:
        """Attention with all three operands narrow: its results are averages of narrow values."""
        factors = [self._narrow_operand(a) for a in call.args[:3]]
        found = [f.value for f in factors if f is not None and f.scale == 1]
        if len(found) < 3 or call.attrs["scores"] != "none":
            return None
        others = [None if a is None else self.wide(a) for a in call.args[3:]]
        attrs = {**call.attrs, "narrow_shares": True}
        return self.emit_all(call.op, [*found, *others], attrs)[0]

    def _narrow_operand(self, value: Value | None) -> _Factor | None:
        """The narrow form of an operand, which may have been narrow from the start."""
        is_narrow = value is not None and value.dtype is self._outside.dtype
        return _Factor(self.current(value)) if value and is_narrow else self._factor(value)

    def _scaled(self, addend: Value | None, scale: float) -> Value | None:
        if addend is None or scale == 1:
            return addend if addend is None else self.wide(addend)
        return self.emit("mul", self.wide(addend), np.float32(scale))

    def _factor(self, value: Value | None) -> _Factor | None:
        if value is None:
            return None
        return self._rounded_factor(value) if value in self._own else self._outside.factor(value)

    def _rounded_factor(self, value: Value) -> _Factor | None:
        """The narrow form of a value of this kernel, such as the shares of attention."""
        current = self.current(value)
        if current.dtype is not FLOAT32:
            return _Factor(current) if current.dtype is self._outside.dtype else None
        if value not in self._rounded:
            self._rounded[value] = self.rounded(current)
        return _Factor(self._rounded[value])

    def wide(self, value: Value) -> Value:
        """A value in its original type."""
        if value not in self._full:
            held = self.current(value) if value in self._own else self._outside.stored(value)
            is_less = held.dtype is not value.dtype
            self._full[value] = self.emit("cast", held, dtype=value.dtype) if is_less else held
        return self._full[value]


def _binding(
    outputs: Sequence[Value], loops: _Loops, results: Sequence[Value], origin: str
) -> Binding:
    body = loops.body
    if len(body) == 1 and list(body[0].outputs) == list(results):
        return Binding(outputs, body[0].expr, origin)
    return Binding(outputs, Fused(Graph((), body, results)), origin)


def _narrow_type(value: Value, dtype: DType) -> TensorType:
    return TensorType(dtype, value.shape)


def _narrow_like(value: Value, dtype: DType) -> Value:
    """A value in a narrower type in place of another; types other than float32 stay."""
    if value.dtype is not FLOAT32:
        return Value(value.name, value.type)
    return Value(value.name, _narrow_type(value, dtype))
