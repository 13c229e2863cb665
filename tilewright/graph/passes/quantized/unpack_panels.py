"""Unpacks weights of few bits once for products of many rows, not again for every few rows.

    y = matmul_panels(x, w, scales)     -->     y = matmul(x, unpack_panels(w, scales))

Where the number of rows is known only at run time, the program decides then.
Runs after the last folding of constants: unpacked weights exist only while they are used.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.graph.building.builder import Builder
from tilewright.graph.ir import Binding, Call, Module, Value
from tilewright.graph.ir.types import known_dim, product
from tilewright.graph.rewriting.context import Pass
from tilewright.graph.rewriting.rewrite import Rewriter
from tilewright.ir import Expr
from tilewright.target import Target


def unpack_panels(target: Target) -> Pass:
    """The pass for a machine."""
    rows = target.timing.unpack_rows

    def unpack_panels(module: Module) -> Module:
        """The module with weights unpacked where many rows are multiplied by them."""
        return module.map(lambda f: _Unpacking(rows).graph(f))

    return unpack_panels


class _Unpacking(Rewriter):
    def __init__(self, least_rows: int) -> None:
        super().__init__()
        self._least_rows = least_rows

    def visit(self, binding: Binding) -> Sequence[Binding]:
        call = binding.expr
        if not isinstance(call, Call) or call.op.name != "matmul_panels":
            return (binding,)
        x = call.args[0]
        assert x is not None
        rows = product(x.shape[:-1])
        count = known_dim(rows)
        if count is not None and count < self._least_rows:
            return (binding,)
        b = Builder()
        b.origin = binding.origin
        shape = binding.outputs[0].shape
        if count is not None:
            b.output(_by_unpacked(b, call, shape))
        else:
            number = b.emit("dims", elements=[rows], shape=[], dtype="int64")
            b.output(
                b.branch(
                    b.emit("greater_equal", number, np.int64(self._least_rows)),
                    lambda: _by_unpacked(b, call, shape),
                    lambda: b.emit(call.op, *call.args, **call.attrs),
                )
            )
        *rest, last = b.function().body
        return [*rest, Binding(binding.outputs, last.expr, last.origin)]


def _by_unpacked(b: Builder, call: Call, shape: Sequence[Expr]) -> Value:
    """The product by weights that are unpacked first."""
    x, *packed = call.args
    assert x is not None
    weights = b.emit("unpack_panels", *packed, **call.attrs)
    rows = b.emit("reshape", x, shape=[product(x.shape[:-1]), x.shape[-1]])
    return b.emit("reshape", b.emit("matmul", rows, weights), shape=shape)
