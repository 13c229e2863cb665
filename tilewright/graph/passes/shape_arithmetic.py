"""Takes shape arithmetic out of the data path: what follows from dimensions is computed from them.

    s = shape_of(x)
    t = gather(s, i64(0))        -->     u = dims(elements=[2 * n], shape=[], dtype=i64)
    u = mul(t, i64(2))

Bindings that nothing else needs are dead code then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.graph.ir import Binding, Call, Graph, Module, Value
from tilewright.graph.ir.op import find_op
from tilewright.graph.ir.types import TensorType, dims_of
from tilewright.graph.rewriting.rewrite import Rewriter, defined_dims
from tilewright.ir import Var, free_vars

#: Tensors with more elements than this are left to a kernel.
_LIMIT: Final = 64


def shape_arithmetic(module: Module) -> Module:
    """The module in which tensors with known elements are made by `dims`."""
    return module.map(lambda f: _ShapeArithmetic().graph(f))


class _ShapeArithmetic(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        #: Dimensions that are defined before the current binding; later ones may be read from it.
        self._dims: set[Var] = set()

    def enter(self, graph: Graph) -> None:
        self._dims.update(d for p in graph.params for d in dims_of(p.type))

    def visit(self, binding: Binding) -> Sequence[Binding]:
        result = self._renewed(binding)
        self._dims.update(defined_dims(binding))
        return result

    def _renewed(self, binding: Binding) -> Sequence[Binding]:
        call = binding.expr
        if not isinstance(call, Call) or len(binding.outputs) != 1 or call.op.scalar:
            return (binding,)
        value = binding.outputs[0]
        if not call.op.pure or not self._is_known(value):
            return (binding,)
        assert value.known is not None
        attrs = {
            "elements": list(value.known.ravel()),
            "shape": value.known.shape,
            "dtype": value.dtype,
        }
        made = find_op("dims")
        return (Binding(binding.outputs, Call(made, (), made.bind((), attrs)[1]), binding.origin),)

    def _is_known(self, value: Value) -> bool:
        if not isinstance(value.type, TensorType) or not value.dtype.is_integer:
            return False
        known = value.known
        if known is None or known.size > _LIMIT or not value.type.is_static:
            return False
        return all(self._dims.issuperset(free_vars(e)) for e in known.ravel())
