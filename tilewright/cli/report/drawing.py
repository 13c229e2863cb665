"""A graph as the page draws it: nodes with labels and places, edges, the kernel of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.cli.report.layout import layout
from tilewright.graph import Binding, Call, Function, Fused, Graph, If, Loop, Value

#: Widths of a letter of the label, of one of the type below it, and of what surrounds them.
_LETTER, _SMALL, _AROUND = 7.4, 6.4, 24.0
_LONGEST = 34


@dataclass(frozen=True)
class DrawnNode:
    """What the page knows about a node."""

    label: str
    #: The operator by which it is coloured.
    kind: str
    #: The type of its first output.
    type: str
    text: str
    origin: str = ""
    kernel: str = ""


def drawn(main: Function, kernels: Mapping[Binding, str], *, fused: bool) -> dict[str, Any]:
    """The graph with its groups as nodes (`fused`), or with the operators inside them."""
    nodes = [DrawnNode(p.name, "input", str(p.type), str(p)) for p in main.params]
    made: dict[Value, int] = {p: k for k, p in enumerate(main.params)}
    edges: dict[tuple[int, int], str] = {}
    for outer in main.body:
        kernel = kernels.get(outer, "")
        for binding in [outer] if fused else _opened(outer):
            for value in _used(binding):
                if value in made:
                    edges.setdefault((made[value], len(nodes)), str(value.type))
            made.update(dict.fromkeys(binding.outputs, len(nodes)))
            nodes.append(_node(binding, kernel))
        if isinstance(outer.expr, Fused) and not fused:
            inner = [made[r] for r in outer.expr.graph.results]
            made.update(zip(outer.outputs, inner, strict=True))
    for result, name in zip(main.results, main.outputs, strict=True):
        if result in made:
            edges.setdefault((made[result], len(nodes)), str(result.type))
        nodes.append(DrawnNode(name, "output", str(result.type), f"{name}: {result.type}"))
    return _placed(nodes, edges)


def _placed(nodes: Sequence[DrawnNode], edges: Mapping[tuple[int, int], str]) -> dict[str, Any]:
    widths = [_AROUND + max(_LETTER * len(n.label), _SMALL * min(len(n.type), 40)) for n in nodes]
    place = layout(widths, list(edges))
    boxes = zip(nodes, widths, place.x, place.y, strict=True)
    lines = zip(edges.items(), place.edges, strict=True)
    return {
        "width": place.width,
        "height": place.height,
        "nodes": [{**asdict(n), "w": w, "x": x, "y": y} for n, w, x, y in boxes],
        "edges": [
            {"from": a, "to": b, "type": type_, "points": [c for point in points for c in point]}
            for ((a, b), type_), points in lines
        ],
    }


def _opened(binding: Binding) -> Sequence[Binding]:
    return binding.expr.graph.body if isinstance(binding.expr, Fused) else [binding]


def _used(binding: Binding) -> list[Value]:
    """All values that a binding reads, in graphs inside it too."""
    found = [a for a in binding.expr.args if a is not None]
    for graph in binding.expr.graphs:
        found.extend(graph.results)
        for inner in graph.body:
            found.extend(_used(inner))
    return found


# ---- one node -----------------------------------------------------------------------------------


def _node(binding: Binding, kernel: str) -> DrawnNode:
    label, kind = _LABELS.get(type(binding.expr), _control_node)(binding.expr)
    type_ = str(binding.outputs[0].type) if binding.outputs else ""
    return DrawnNode(_short(label), kind, type_, _text(binding), binding.origin, kernel)


def kind_of(binding: Binding) -> str:
    """The operator that stands for a binding."""
    return _LABELS.get(type(binding.expr), _control_node)(binding.expr)[1]


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST else label[: _LONGEST - 1] + "…"


def _text(binding: Binding) -> str:
    inner = [b for g in binding.expr.graphs for b in g.body]
    lines = [str(binding)] if not inner else [*(f"{b}" for b in inner[:40])]
    return "\n".join(lines) + ("\n…" if len(inner) > 40 else "")


def _call(expr: Any) -> tuple[str, str]:
    return expr.op.name, expr.op.name


def _fused(expr: Any) -> tuple[str, str]:
    graph: Graph = expr.graph
    names = [b.expr.op.name for b in graph.body if isinstance(b.expr, Call)]
    return " + ".join(_runs(names)), _heaviest(names)


def _runs(names: Sequence[str]) -> list[str]:
    """Names in order, with those that repeat counted: add, mul, mul → add, mul ×2."""
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    return [n if c == 1 else f"{n} ×{c}" for n, c in counts.items()]


def _heaviest(names: Sequence[str]) -> str:
    """The operator that gives a group its colour: a product, if there is one."""
    products = [n for n in names if n.startswith(("conv", "matmul", "dense", "gemm", "qlinear"))]
    return (products or list(names) or ["fused"])[0]


def _control_node(expr: Any) -> tuple[str, str]:
    name = type(expr).__name__.lower()
    return name, name


_LABELS: dict[type, Callable[[Any], tuple[str, str]]] = {
    Call: _call,
    Fused: _fused,
    If: lambda _: ("if", "control"),
    Loop: lambda _: ("loop", "control"),
}
