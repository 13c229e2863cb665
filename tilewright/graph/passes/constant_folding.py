"""Computes what is known at compile time: calls on constants, shape arithmetic, decided branches.

    a = add(i64([1]), i64([2]))              y = reshape(x, shape=[3])
    y = reshape(x, shape=[3])        -->     …
    z = branch(bool(True), then, …)          (the bindings of `then`)

Bounded in memory: results much larger than their operands stay calls, except for weights, which
would otherwise be computed in every run and could not be packed.
Bounded in time: long sums are computed by native code where `folding_by` supplies it, and once a
pass has taken too long, only small results are folded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.graph.fusion.definitions import work_of
from tilewright.graph.ir import (
    KNOWN_LIMIT,
    Array,
    Binding,
    Call,
    Function,
    Graph,
    If,
    Module,
    Read,
    Value,
    all_graphs,
)
from tilewright.graph.ir.attributes import attribute_parts
from tilewright.graph.ir.types import STRING, TensorType
from tilewright.graph.rewriting.context import Pass, PassContext
from tilewright.graph.rewriting.rewrite import Rewriter
from tilewright.graph.rules.weights import WEIGHTED
from tilewright.graph.sizes.conditions import open_conditions
from tilewright.ir import Const, Expr, const
from tilewright.support.errors import UserError

#: Bytes by which one folded result may exceed its operands, and all folded results together; the
#: options `fold_limit` and `fold_total` set others.
FOLD_LIMIT: Final = 16 << 20
FOLD_TOTAL: Final = 128 << 20
#: Seconds after which a pass folds only small results; the option `fold_seconds`.
FOLD_SECONDS: Final = 20.0
#: Additions in a call's sums from which on it is compiled in order to fold it.
_LONG: Final = 1 << 27

#: How NumPy refuses bad elements: an index out of range, a string that is not a number, a negative
#: size. Any other exception of a reference is our own bug, and is not hidden.
_REFUSALS: Final = (ValueError, IndexError, ArithmeticError, MemoryError)

#: Computes a call on its constants.
Apply = Callable[[Call, Sequence[Value]], Sequence[Array]]


def by_reference(call: Call, outputs: Sequence[Value]) -> Sequence[Any]:
    """The results of a call on constants by its NumPy reference."""
    del outputs
    arrays = [None if a is None else a.constant for a in call.args]
    try:
        return call.op.evaluate(arrays, call.attrs)
    except _REFUSALS as error:
        raise UserError(f"cannot compute {call.op.name}", reason=str(error)) from error


def constant_folding(module: Module) -> Module:
    """The module with everything that is known at compile time computed."""
    return _folded(module, by_reference)


def folding_by(native: Apply) -> Pass:
    """The pass, with `native` for calls that take long."""

    def constant_folding(module: Module) -> Module:
        return _folded(module, native)

    return constant_folding


def _folded(module: Module, native: Apply) -> Module:
    context = PassContext.current()
    limits = _Limits(
        int(context.option("fold_limit", FOLD_LIMIT)),
        int(context.option("fold_total", FOLD_TOTAL)),
        float(context.option("fold_seconds", FOLD_SECONDS)),
    )
    return module.map(lambda f: _Folder(limits, native, _weights(f)).graph(f))


def _weights(function: Function) -> set[Value]:
    """The values that are computed from constants alone and become weights of products, directly or
    through other such values."""
    found = set[Value]()
    for graph in all_graphs(function):
        calls = [(b.outputs, b.expr) for b in graph.body if isinstance(b.expr, Call)]
        known = set[Value]()
        for outputs, call in calls:
            if all(a is None or a.is_constant or a in known for a in call.args):
                known.update(outputs)
        for outputs, call in reversed(calls):
            if call.op.name in WEIGHTED:
                found.update(a for a in call.args[1:2] if a in known)
            elif found.intersection(outputs):
                found.update(a for a in call.args if a in known)
    return found


class _Limits:
    """The memory and time that are left for folding."""

    def __init__(self, each: int, total: int, seconds: float) -> None:
        self._each, self._left = each, total
        self._end = time.monotonic() + seconds

    def allow(self, call: Call, outputs: Sequence[Value], *, are_weights: bool) -> bool:
        """Whether there is memory and time for a call on constants."""
        sizes = [_bytes(v) for v in outputs]
        if any(s is None for s in sizes):
            return False
        made = sum(s for s in sizes if s is not None)
        held = sum(a.constant.nbytes for a in call.args if a is not None and a.constant is not None)
        if made <= KNOWN_LIMIT:
            return True
        fits = are_weights or made - held <= min(self._each, self._left)
        return fits and time.monotonic() < self._end

    def take(self, call: Call, arrays: Sequence[Array]) -> None:
        held = sum(a.constant.nbytes for a in call.args if a is not None and a.constant is not None)
        self._left -= max(0, sum(a.nbytes for a in arrays) - held)


class _Folder(Rewriter):
    def __init__(self, limits: _Limits, native: Apply, weights: set[Value]) -> None:
        super().__init__()
        self._limits, self._native, self._weights = limits, native, weights

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
            # Calls with open conditions on dimensions stay: nothing else checks these.
            return None if open_conditions(call) else found
        args = [a for a in call.args if a is not None]
        if any(a.constant is None for a in args):
            return None
        are_weights = not self._weights.isdisjoint(binding.outputs)
        if not self._limits.allow(call, binding.outputs, are_weights=are_weights):
            return None
        arrays = self._evaluated(call, binding.outputs)
        if arrays is not None and not are_weights:
            self._limits.take(call, arrays)
        return arrays

    def _evaluated(self, call: Call, outputs: Sequence[Value]) -> Sequence[Array] | None:
        if any(_is_symbolic(v) for v in call.attrs.values()):
            return None
        is_long = work_of(call, [v.type for v in outputs]) >= _LONG
        try:
            results = (self._native if is_long else by_reference)(call, outputs)
        except UserError:
            # Bad data is an error only if the call is reached: it is reported at run time.
            return None
        return [np.asarray(r) for r in results] if all(map(_is_array, results)) else None


def _bytes(value: Value) -> int | None:
    if not isinstance(value.type, TensorType):
        return None
    # A size that depends on the data counts as 0: such results hardly exceed their operands.
    return (value.type.size or 0) * value.type.dtype.itemsize


def _known_array(value: Value) -> Array | None:
    """The elements, if all of them are known numbers."""
    known = value.known
    if known is None or not all(isinstance(e, Const) for e in known.ravel()):
        return None
    return np.array([e.value for e in known.ravel()], value.dtype.numpy).reshape(known.shape)


def _is_array(result: Any) -> bool:
    return isinstance(result, np.ndarray | np.generic)


def _is_symbolic(value: Any) -> bool:
    return any(isinstance(p, Expr) for p in attribute_parts(value))


def _constant(value: Value, array: Array) -> Value:
    dtype = value.dtype
    held = array if dtype is STRING else array.astype(dtype.numpy, copy=False)
    return Value(value.name, TensorType(dtype, array.shape), held)
