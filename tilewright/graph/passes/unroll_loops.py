"""Unrolls loops with a known, small number of iterations and small bodies.

    def body(i, s):                              a = mul(x, f32(2.0))
        t = mul(s, f32(2.0))             -->     y = mul(a, f32(2.0))
        return True, t
    y = loop(i64(2), None, x, body)

The iteration number becomes a constant, and so does what is computed from it. The option
`unroll_limit` sets the most bindings that a loop may become.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.graph.building.builder import Builder
from tilewright.graph.ir import Binding, Graph, Loop, Module, Value, all_graphs
from tilewright.graph.ir.types import TensorType, dims_of
from tilewright.graph.rewriting.context import PassContext
from tilewright.graph.rewriting.copies import GraphCopy
from tilewright.graph.rewriting.rewrite import Rewriter, defined_dims
from tilewright.ir import Var

#: Most bindings that a loop may become.
UNROLL_LIMIT: Final = 64


def unroll_loops(module: Module) -> Module:
    """The module with short loops unrolled."""
    limit = int(PassContext.current().option("unroll_limit", UNROLL_LIMIT))
    return module.map(lambda f: _Unroller(limit).graph(f))


class _Unroller(Rewriter):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        #: The dimensions visible in each open graph: copies of a body share these.
        self._visible: list[set[Var]] = [set()]

    def enter(self, graph: Graph) -> None:
        own = {d for p in graph.params for d in dims_of(p.type)}
        self._visible.append(self._visible[-1] | own)

    def leave(self, graph: Graph) -> None:
        del graph
        self._visible.pop()

    def visit(self, binding: Binding) -> Sequence[Binding]:
        done = self._unrolled(binding)
        self._visible[-1].update(d for b in done for d in defined_dims(b))
        return done

    def _unrolled(self, binding: Binding) -> Sequence[Binding]:
        loop = binding.expr
        trips = _trips(loop) if isinstance(loop, Loop) else None
        if trips is None or not isinstance(loop, Loop) or trips * _size(loop.body) > self._limit:
            return (binding,)
        if not trips and not _empties(binding, loop):
            return (binding,)
        body: list[Binding] = []
        state, rows = list(loop.initial), list[Sequence[Value]]()
        for trip in range(trips):
            number = Value("i", TensorType("int64"), np.asarray(trip, np.int64))
            args = dict(zip(loop.body.params, [number, *state], strict=True))
            made, results = GraphCopy(args, self._visible[-1]).graph(loop.body)
            body += made
            state = results[1 : 1 + len(state)]
            rows.append(results[1 + len(state) :])
        scanned = _stacked(binding, rows, body) if trips else _empties(binding, loop)
        for old, new in zip(binding.outputs, [*state, *(scanned or ())], strict=True):
            self.replace(old, new)
        return body


def _trips(loop: Loop) -> int | None:
    """How often the body runs, if that is known."""
    starts = loop.condition is None or loop.condition.constant is not None
    if not starts or loop.trip_count is None or loop.trip_count.constant is None:
        return None
    if loop.condition is not None and not bool(loop.condition.constant):
        return 0
    count = max(0, int(loop.trip_count.constant.reshape(())))
    goes_on = loop.body.results[0].constant
    return count if count <= 1 or (goes_on is not None and bool(goes_on)) else None


def _size(body: Graph) -> int:
    return max(1, sum(len(g.body) for g in all_graphs(body)))


def _stacked(binding: Binding, rows: Sequence[Sequence[Value]], body: list[Binding]) -> list[Value]:
    """The scanned outputs of all iterations, stacked along a new first axis."""
    b = Builder()
    b.origin = binding.origin
    made: list[Value] = []
    for column in zip(*rows, strict=True):
        lines = [b.reshape(v, shape=[1, *v.shape]) for v in column]
        made.append(b.concat(*lines, axis=0))
    body += b.function().body
    return made


def _empties(binding: Binding, loop: Loop) -> list[Value] | None:
    """The scanned outputs of a loop that never runs; None where their shape is not known."""
    made: list[Value] = []
    for value in binding.outputs[len(loop.initial) :]:
        if not isinstance(value.type, TensorType):
            return None
        rest = TensorType(value.dtype, value.shape[1:])
        if not rest.is_static:
            return None
        empty = np.empty((0, *rest.static_shape), value.dtype.numpy)
        made.append(Value(value.name, TensorType(value.dtype, empty.shape), empty))
    return made
