"""Takes shape arithmetic out of the data path: what follows from dimensions is computed from them.

    s = shape_of(x)
    t = gather(s, i64(0))        -->     u = dims(elements=[2 * n], shape=[], dtype=i64)
    u = mul(t, i64(2))

What nothing else needs then is dead code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.graph.ir import Binding, Call, Module, Value
from tilewright.graph.op import find_op
from tilewright.graph.rewrite import Rewriter
from tilewright.graph.types import TensorType

#: More elements than this are left to a kernel.
_LIMIT: Final = 64


def shape_arithmetic(module: Module) -> Module:
    """The module in which tensors with known elements are made from these."""
    return module.map(lambda f: _ShapeArithmetic().graph(f))


class _ShapeArithmetic(Rewriter):
    def visit(self, binding: Binding) -> Sequence[Binding]:
        call = binding.expr
        if not isinstance(call, Call) or len(binding.outputs) != 1 or call.op.name == "dims":
            return (binding,)
        value = binding.outputs[0]
        if not call.op.pure or not _is_known(value):
            return (binding,)
        assert value.known is not None
        attrs = {
            "elements": list(value.known.ravel()),
            "shape": value.known.shape,
            "dtype": value.dtype,
        }
        made = find_op("dims")
        return (Binding(binding.outputs, Call(made, (), made.bind((), attrs)[1]), binding.origin),)


def _is_known(value: Value) -> bool:
    if not isinstance(value.type, TensorType) or not value.dtype.is_integer:
        return False
    known = value.known
    return known is not None and known.size <= _LIMIT and value.type.is_static
