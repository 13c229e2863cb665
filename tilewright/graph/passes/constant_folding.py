"""Computes what is known at compile time: calls on constants, shape arithmetic, decided branches.

    a = add(i64([1]), i64([2]))              y = reshape(x, shape=[3])
    y = reshape(x, shape=[3])        -->     …
    z = branch(bool(True), then, …)          (the bindings of `then`)

Results that would take much more memory than their operands stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.graph.attributes import attribute_parts
from tilewright.graph.context import PassContext
from tilewright.graph.ir import Array, Binding, Call, Graph, If, Module, Read, Value
from tilewright.graph.rewrite import Rewriter
from tilewright.graph.types import STRING, TensorType
from tilewright.ir import Const, Expr, const

#: Bytes that a folded result may take beyond its operands; the option `fold_limit` sets another.
FOLD_LIMIT: Final = 16 << 20


def constant_folding(module: Module) -> Module:
    """The module with what is known computed."""
    limit = int(PassContext.current().option("fold_limit", FOLD_LIMIT))
    return module.map(lambda f: _Folder(limit).graph(f))


class _Folder(Rewriter):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def visit(self, binding: Binding) -> Sequence[Binding]:
        expr = binding.expr
        if isinstance(expr, If) and expr.condition.constant is not None:
            chosen = expr.then if bool(expr.condition.constant) else expr.otherwise
            return self._inlined(binding, chosen)
        if isinstance(expr, Read) and expr.value.constant is not None:
            return self._read(expr, expr.value.constant)
        arrays = self._results(binding, expr) if isinstance(expr, Call) else None
        if arrays is None:
            return (binding,)
        for value, array in zip(binding.outputs, arrays, strict=True):
            self.replace(value, _constant(value, array))
        return ()

    def _inlined(self, binding: Binding, graph: Graph) -> Sequence[Binding]:
        # Its bindings were visited as part of the branch, and are defined nowhere else.
        for value, result in zip(binding.outputs, graph.results, strict=True):
            self.replace(value, result)
        return graph.body

    def _read(self, read: Read, numbers: Array) -> Sequence[Binding]:
        for dim, number in zip(read.dims, numbers.ravel(), strict=True):
            self.replace_dim(dim, const(int(number)))
        return ()

    def _results(self, binding: Binding, call: Call) -> Sequence[Array] | None:
        if not call.op.pure:
            return None
        known = [_known_array(v) for v in binding.outputs]
        found = [a for a in known if a is not None]
        if found and len(found) == len(known):
            return found
        args = [a for a in call.args if a is not None]
        if any(a.constant is None for a in args) or not self._is_small(binding, args):
            return None
        return _evaluated(call)

    def _is_small(self, binding: Binding, args: Sequence[Value]) -> bool:
        sizes = [_bytes(v) for v in binding.outputs]
        given = sum(a.constant.nbytes for a in args if a.constant is not None)
        return all(s is not None for s in sizes) and sum(filter(None, sizes)) <= given + self._limit


def _bytes(value: Value) -> int | None:
    if not isinstance(value.type, TensorType):
        return None
    # A result whose size depends on the data is no larger than its operands, near enough.
    return (value.type.size or 0) * value.type.dtype.itemsize


def _known_array(value: Value) -> Array | None:
    """The elements, if all of them are numbers."""
    known = value.known
    if known is None or not all(isinstance(e, Const) for e in known.ravel()):
        return None
    return np.array([e.value for e in known.ravel()], value.dtype.numpy).reshape(known.shape)


def _evaluated(call: Call) -> Sequence[Array] | None:
    if any(_is_symbolic(v) for v in call.attrs.values()):
        return None
    args: list[Any] = [None if a is None else a.constant for a in call.args]
    try:
        results = call.op.evaluate(args, call.attrs)
    except Exception:
        # Whatever is wrong is so only if the call is reached, and is told then.
        return None
    return [np.asarray(r) for r in results] if all(map(_is_array, results)) else None


def _is_array(result: Any) -> bool:
    return isinstance(result, np.ndarray | np.generic)


def _is_symbolic(value: Any) -> bool:
    return any(isinstance(p, Expr) for p in attribute_parts(value))


def _constant(value: Value, array: Array) -> Value:
    dtype = value.dtype
    held = array if dtype is STRING else array.astype(dtype.numpy, copy=False)
    return Value(value.name, TensorType(dtype, array.shape), held)
