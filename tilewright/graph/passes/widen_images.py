"""Computes convolutions of float16, and what follows them, in float32.

    a = conv(x, w)         float16         u = conv(cast(x), float32 of w)
    y = relu(a)                     -->    v = relu(u)
                                           y = cast(v)

Sums are in float32 anyway; rounding after each operator only costs time, as machines have no
convolutions of float16. Results are rounded where something else reads them: an operator of other
types, a product (whose weights are read from memory in half the time), an output.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.graph.building.builder import Builder
from tilewright.graph.ir import Binding, Call, Graph, Module, Value
from tilewright.graph.ir.types import TensorType
from tilewright.graph.precision.products import PRODUCTS
from tilewright.graph.rewriting.rewrite import Rewriter
from tilewright.ir import DType
from tilewright.support.errors import UserError

_FLOAT16, _FLOAT32 = DType.of("float16"), DType.of("float32")
_CONVOLUTIONS: Final = frozenset(["conv", "conv_transpose"])


def widen_images(module: Module) -> Module:
    """The module with convolutions of float16 in float32."""
    return module.map(lambda f: _Widener().graph(f))


class _Widener(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        #: Values of float16 that exist in float32 too, by open graph.
        self._wide: list[dict[Value, Value]] = []

    def enter(self, graph: Graph) -> None:
        self._wide.append({})

    def leave(self, graph: Graph) -> None:
        self._wide.pop()

    def visit(self, binding: Binding) -> Sequence[Binding]:
        call = binding.expr
        if not isinstance(call, Call) or len(binding.outputs) != 1:
            return (binding,)
        if call.op.name == "cast" and call.attrs["dtype"] is _FLOAT32:
            return self._cast(binding, call)
        return self._widened(binding, call) if self._may_be_wide(binding, call) else (binding,)

    def _cast(self, binding: Binding, call: Call) -> Sequence[Binding]:
        wide = None if call.args[0] is None else self._found(call.args[0])
        if wide is None:
            return (binding,)
        self.replace(binding.outputs[0], wide)
        return ()

    def _may_be_wide(self, binding: Binding, call: Call) -> bool:
        if not _is_half(binding.outputs[0]) or not call.op.pure or call.op.name == "cast":
            return False
        if call.op.name in _CONVOLUTIONS:
            return True
        follows = any(a is not None and self._found(a) is not None for a in call.args)
        return follows and call.op.name not in PRODUCTS and call.op.how == "compute"

    def _widened(self, binding: Binding, call: Call) -> Sequence[Binding]:
        builder = Builder()
        builder.origin = binding.origin
        try:
            args = [
                a if a is None or not _is_half(a) else self._read(a, builder) for a in call.args
            ]
            wide = builder.emit(call.op, *args, **call.attrs)
        except UserError:
            return (binding,)
        (old,) = binding.outputs
        if wide.type != old.tensor.with_dtype(_FLOAT32):
            return (binding,)
        narrow = builder.emit("cast", wide, dtype=_FLOAT16)
        builder.output(wide, narrow)
        *rest, last = builder.function().body
        self._wide[-1][old] = wide
        return [*rest, Binding((old,), last.expr, last.origin)]

    def _read(self, value: Value, builder: Builder) -> Value:
        """The value in float32."""
        found = self._found(value)
        if found is not None:
            builder.own(found)
            return found
        if value.constant is not None:
            return builder.constant(value.constant.astype(_FLOAT32.numpy), name=value.name)
        builder.own(value)
        return builder.emit("cast", value, dtype=_FLOAT32)

    def _found(self, value: Value) -> Value | None:
        return next((known[value] for known in self._wide if value in known), None)


def _is_half(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype is _FLOAT16
