"""Which values of a graph share memory, and when each is used for the last time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tilewright.graph.fusion.sharing import is_shared, whole_views, writes
from tilewright.graph.ir import Binding, Graph, Loop, Value, all_graphs


def views_of(graph: Graph) -> dict[Value, Value]:
    """The value whose memory each view of this graph refers to."""
    roots: dict[Value, Value] = {}
    for binding in graph.body:
        for view, source in _shared(binding):
            roots[view] = roots.get(source, source)
    return roots


def _shared(binding: Binding) -> Iterator[tuple[Value, Value]]:
    """Results that share the memory of other values, with these."""
    if is_shared(binding):
        source = binding.expr.args[0]
        assert source is not None
        yield binding.outputs[0], source
    if isinstance(binding.expr, Loop):
        yield from ((binding.outputs[k], v) for k, v in unchanged_state(binding.expr).items())


def unchanged_state(loop: Loop) -> dict[int, Value]:
    """The carried values, by number, that every iteration passes on unchanged."""
    results = loop.body.results[1:]
    pairs = zip(loop.body.params[1:], results[: len(loop.initial)], loop.initial, strict=True)
    return {k: first for k, (p, result, first) in enumerate(pairs) if p is result}


def last_uses(graph: Graph, roots: Mapping[Value, Value]) -> dict[int, list[Value]]:
    """The values whose last use is each binding, by its number; results of the graph have none."""
    last: dict[Value, int] = {}
    for index, binding in enumerate(graph.body):
        for value in (*binding.outputs, *values_used(binding)):
            last[roots.get(value, value)] = index
    for value in graph.results:
        last.pop(roots.get(value, value), None)
    ended: dict[int, list[Value]] = {}
    for value, index in last.items():
        ended.setdefault(index, []).append(value)
    return ended


def values_used(binding: Binding) -> Iterator[Value]:
    """Operands, and values that inner graphs use."""
    yield from (a for a in binding.expr.args if a is not None)
    for inner in binding.expr.graphs:
        for graph in all_graphs(inner):
            yield from graph.results
            for b in graph.body:
                yield from (a for a in b.expr.args if a is not None)


def computed_here(graph: Graph) -> dict[Value, Value]:
    """For each result that is (a view of) a value this graph writes to fresh memory, that value."""
    made = {v for b in graph.body if writes(b) for v in b.outputs}
    roots = whole_views(graph)
    found = ((v, roots.get(v, v)) for v in graph.results)
    return {v: root for v, root in found if root in made}
