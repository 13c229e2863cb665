"""Joins small products of one operand with several constant weights into one product.

    q = matmul(x, wq)                            j = matmul(x, [wq wk wv])
    k = matmul(x, wk)                    -->     q = slice(j, 0, 64)
    v = matmul(x, wv)                            k = slice(j, 64, 128)
                                                 v = slice(j, 128, 192)

Elementwise maps that follow all of them in the same way, such as the addition of a bias, are joined
too. Products that fill a kernel by themselves stay separate, as do those whose slices would have to
be copied: that costs more than sharing gains. What is small depends on the device; the option
`combine_limit` sets the limit, in multiplications.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.graph.building.builder import Builder
from tilewright.graph.fusion.definitions import FactTable, LoopKind, call_key
from tilewright.graph.ir import Array, Binding, Call, Graph, Module, Value, all_graphs
from tilewright.graph.ir.types import Dim, known_dim
from tilewright.graph.rewriting.context import PassContext
from tilewright.graph.rewriting.rewrite import Rewriter
from tilewright.graph.rules import speaks_of_places
from tilewright.target import Target

#: Most multiplications of a small product, by the kind of device: it takes more to fill a GPU.
_LIMITS: Final = {"cpu": 1 << 15, "gpu": 1 << 28}
#: Assumed value of a size that is known only at run time; None: such products are not small.
_UNKNOWN: Final = {"cpu": None, "gpu": 128}
#: Longest chain of views that is followed to find the readers of a value.
_VIEWS: Final = 3
#: Operators of (x, weight, bias).
_PRODUCTS: Final = ("matmul", "gemm", "dense")


def combine_parallel(target: Target) -> Callable[[Module], Module]:
    """The pass that joins what is small on a target."""
    device = target.kind.device

    def combine_parallel(module: Module) -> Module:
        limit = int(PassContext.current().option("combine_limit", _LIMITS[device]))
        small = _Small(limit, _UNKNOWN[device])
        return module.map(lambda f: _Combiner(small).graph(f))

    return combine_parallel


class _Small(NamedTuple):
    """The most multiplications of a small product, and the assumed value of an unknown size."""

    limit: int
    unknown: int | None

    def holds(self, shape: Iterable[Dim]) -> bool:
        known = [known_dim(d) for d in shape]
        sizes = [self.unknown if size is None else size for size in known]
        return None not in sizes and prod(size or 0 for size in sizes) <= self.limit


class _Combiner(Rewriter):
    def __init__(self, small: _Small) -> None:
        super().__init__()
        self._small = small
        self._facts = FactTable()
        #: The products that are joined with each, by the first one's result.
        self._groups: dict[Value, list[Binding]] = {}
        self._users: list[dict[Value, list[Binding | None]]] = []
        self._gone: set[Value] = set()

    def enter(self, graph: Graph) -> None:
        self._users.append(_users(graph))
        found: dict[Hashable, list[Binding]] = {}
        for binding in graph.body:
            key = _key(binding, self._small)
            if key is not None:
                found.setdefault(key, []).append(binding)
        groups = (g for g in found.values() if len(g) > 1)
        self._groups.update({g[0].outputs[0]: g for g in groups})

    def leave(self, graph: Graph) -> None:
        del graph
        self._users.pop()

    def visit(self, binding: Binding) -> Sequence[Binding]:
        if self._gone.intersection(binding.outputs):
            return ()
        group = self._groups.get(binding.outputs[0]) if binding.outputs else None
        if group is None:
            return (binding,)
        stages = self._stages([m.outputs[0] for m in group])
        last = [m.outputs[0] for m in group] if not stages else [r.outputs[0] for r in stages[-1]]
        if not all(map(self._is_read_in_place, last)):
            return (binding,)
        return self._joined(binding, group, stages)

    def _joined(
        self, first: Binding, group: Sequence[Binding], stages: Sequence[Sequence[Binding]]
    ) -> Sequence[Binding]:
        b = Builder()
        b.origin = ", ".join(dict.fromkeys(m.origin for m in group if m.origin))
        heads = [m.outputs[0] for m in group]
        sizes = [known_dim(h.shape[-1]) or 0 for h in heads]
        joined = _product(b, first, group)
        for rows in stages:
            self._gone.update(heads)
            joined = _mapped(b, joined, rows, heads, sizes)
            heads = [r.outputs[0] for r in rows]
        self._gone.update(heads)
        self._hand_out(b, joined, heads, sizes)
        return b.function().body

    def _hand_out(
        self, b: Builder, joined: Value, heads: Sequence[Value], sizes: Sequence[int]
    ) -> None:
        start = 0
        for head, size in zip(heads, sizes, strict=True):
            part = b.slice(joined, starts=[start], ends=[start + size], axes=[-1], name=head.name)
            self.replace(head, part)
            start += size

    # ---- maps that follow all products ----------------------------------------------------------

    def _stages(self, heads: Sequence[Value]) -> list[list[Binding]]:
        """The maps that follow all values in the same way, one row after the other."""
        stages: list[list[Binding]] = []
        rows = self._followers(heads)
        while rows is not None:
            stages.append(rows)
            rows = self._followers([r.outputs[0] for r in rows])
        return stages

    def _is_read_in_place(self, value: Value, depth: int = 0) -> bool:
        """Whether all readers of a slice can read it in place, from the joined result."""
        return all(self._reads_in_place(u, depth) for u in self._users[-1].get(value, ()))

    def _reads_in_place(self, user: Binding | None, depth: int) -> bool:
        call = None if user is None else user.expr
        if user is None or not isinstance(call, Call) or call.op.name == "concat":
            return False
        if user.is_view:
            return depth < _VIEWS and self._is_read_in_place(user.outputs[0], depth + 1)
        return self._facts(call, [v.type for v in user.outputs]).kind <= LoopKind.INJECTIVE

    def _followers(self, heads: Sequence[Value]) -> list[Binding] | None:
        """The maps that each read one of the values, if they differ only in constants."""
        users = [self._users[-1].get(h, []) for h in heads]
        if any(len(u) != 1 or u[0] is None for u in users):
            return None
        rows = [b for u in users for b in u if b is not None]
        if len(set(map(id, rows))) != len(rows) or not self._are_alike(rows, heads):
            return None
        return rows

    def _are_alike(self, rows: Sequence[Binding], heads: Sequence[Value]) -> bool:
        calls = [r.expr for r in rows if isinstance(r.expr, Call) and len(r.outputs) == 1]
        if len(calls) != len(rows) or len({call_key(c) for c in calls}) > 1:
            return False
        facts = self._facts(calls[0], [rows[0].outputs[0].type])
        pairs = zip(rows, calls, heads, strict=True)
        return facts.aligned and all(_is_along_channels(r, c, h) for r, c, h in pairs)


def _is_along_channels(row: Binding, call: Call, head: Value) -> bool:
    """Whether a map reads only `head` and constants along its last axis, and keeps its shape."""
    if row.outputs[0].shape != head.shape or speaks_of_places(call):
        return False
    channels = known_dim(head.shape[-1])
    return all(_is_vector(a, channels) for a in call.args if a is not head)


def _is_vector(value: Value | None, channels: int | None) -> bool:
    array = None if value is None else value.constant
    return (
        array is not None
        and array.size in (1, channels)
        and (*array.shape, 1)[max(array.ndim - 1, 0)] == array.size
    )


# ---- joining ------------------------------------------------------------------------------------


class _Weights(NamedTuple):
    """The constants of a product: weights with one column per output, and the bias."""

    columns: Array
    bias: Array | None


def _weights(call: Call) -> _Weights:
    w = call.args[1]
    bias = call.args[2] if len(call.args) > 2 else None
    assert w is not None and w.constant is not None
    columns = w.constant.T if _has_rows(call) else w.constant
    return _Weights(columns, None if bias is None else bias.constant)


def _has_rows(call: Call) -> bool:
    return call.op.name == "dense" or bool(call.attrs.get("transpose_b"))


def _product(b: Builder, first: Binding, group: Sequence[Binding]) -> Value:
    call = first.expr
    assert isinstance(call, Call)
    made = [_weights(m.expr) for m in group if isinstance(m.expr, Call)]
    columns = np.concatenate([w.columns for w in made], axis=1)
    weight = np.ascontiguousarray(columns.T if _has_rows(call) else columns)
    args: list[Any] = [call.args[0], weight]
    if len(call.args) > 2 and any(w.bias is not None for w in made):
        args.append(np.concatenate([_full(w.bias, w.columns) for w in made]))
    return b.emit(call.op, *args, **call.attrs)


def _full(bias: Array | None, columns: Array) -> Array:
    size = columns.shape[1]
    if bias is None:
        return np.zeros(size, columns.dtype)
    return np.broadcast_to(bias.reshape(-1), (size,))


def _mapped(
    b: Builder,
    joined: Value,
    rows: Sequence[Binding],
    heads: Sequence[Value],
    sizes: Sequence[int],
) -> Value:
    calls = [r.expr for r in rows if isinstance(r.expr, Call)]
    args: list[Any] = []
    for n, arg in enumerate(calls[0].args):
        if arg is heads[0]:
            args.append(joined)
            continue
        values = [c.args[n] for c in calls]
        arrays = [v.constant for v in values if v is not None and v.constant is not None]
        parts = [np.broadcast_to(a.reshape(-1), (s,)) for a, s in zip(arrays, sizes, strict=True)]
        args.append(np.concatenate(parts))
    return b.emit(calls[0].op, *args, **calls[0].attrs)


# ---- what can be joined -------------------------------------------------------------------------


def _key(binding: Binding, small: _Small) -> Hashable | None:
    """Equal for products that can be joined; None for those that are not worth it."""
    call = binding.expr
    if not isinstance(call, Call) or call.op.name not in _PRODUCTS:
        return None
    x, w, *bias = call.args
    if x is None or w is None or x.is_constant or w.constant is None or w.ndim != 2 or x.ndim < 2:
        return None
    if any(c is not None and (c.constant is None or c.ndim != 1) for c in bias):
        return None
    if not small.holds([*binding.outputs[0].shape, w.shape[-1 if _has_rows(call) else 0]]):
        return None
    return (call_key(call), id(x), w.dtype)


def _users(graph: Graph) -> dict[Value, list[Binding | None]]:
    """The bindings of a graph that read each value; None: a result or a graph inside reads it."""
    users: dict[Value, list[Binding | None]] = {}
    for value in graph.results:
        users.setdefault(value, []).append(None)
    for binding in graph.body:
        for value in dict.fromkeys(a for a in binding.expr.args if a is not None):
            users.setdefault(value, []).append(binding)
        for value in _inner_uses(binding):
            users.setdefault(value, []).append(None)
    return users


def _inner_uses(binding: Binding) -> Iterable[Value]:
    for inner in binding.expr.graphs:
        for graph in all_graphs(inner):
            yield from graph.results
            for b in graph.body:
                yield from (a for a in b.expr.args if a is not None)
