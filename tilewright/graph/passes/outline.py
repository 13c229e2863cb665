"""Moves the parts of a program that can be native into functions, if the whole cannot be native.

    a = conv2d(x, w)                         def native_0(x, w):
    b = relu(a)                                  a = conv2d(x, w)
    s = sequence(b, x)           -->             b = relu(a)
                                                 return b
                                             …
                                             b = call(native_0, x, w)
                                             s = sequence(b, x)

Consecutive bindings become one function. Symbolic dimensions that are not the size of a parameter
are passed as a tensor and read from it inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tilewright.graph.ir import (
    Binding,
    Call,
    CallFunction,
    Function,
    Fused,
    Graph,
    If,
    Loop,
    Module,
    Node,
    Read,
    Value,
    all_graphs,
)
from tilewright.graph.ir.op import find_op
from tilewright.graph.ir.types import (
    STRING,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    UnknownType,
    dims_of,
)
from tilewright.graph.rewriting.rewrite import attribute_dims, defined_dims
from tilewright.ir import Expr, Var

_NATIVE: Final = ("compute", "kernel", "structural")
NATIVE_PREFIX: Final = "native_"


def outline(module: Module) -> Module:
    """The module whose native parts are functions of their own, called `native_…`."""
    functions: list[Function] = []
    main = _outlined(module.main, functions)
    rest = [f for f in module.functions.values() if f.name != "main"]
    assert isinstance(main, Function)
    return Module([main, *rest, *functions], module.data_types.values())


# ---- what is native -----------------------------------------------------------------------------


def is_native(graph: Graph) -> bool:
    """Whether all of a graph can be compiled."""
    values = (*graph.params, *graph.results)
    return all(is_native_type(v.type) for v in values) and all(map(_is_native, graph.body))


def _is_native(binding: Binding) -> bool:
    expr = binding.expr
    values = (*binding.outputs, *(a for a in expr.args if a is not None))
    if not all(is_native_type(v.type) for v in values):
        return False
    if isinstance(expr, Call):
        return expr.op.how in _NATIVE
    return isinstance(expr, Read | Fused) or (
        isinstance(expr, If | Loop) and all(map(is_native, expr.graphs))
    )


def is_native_type(type_: Type) -> bool:
    """Whether compiled programs have such values: tensors of numbers, and lists of them."""
    if isinstance(type_, OptionalType) and isinstance(type_.element, SequenceType):
        type_ = type_.element
    if isinstance(type_, SequenceType | OptionalType):
        element = type_.element
        return isinstance(element, TensorType | UnknownType) and element.dtype is not STRING
    return isinstance(type_, TensorType) and type_.dtype is not STRING


def foreign_bindings(graph: Graph) -> list[Binding]:
    """The bindings that cannot be compiled, except branches and loops that only contain some."""
    return [
        b
        for g in all_graphs(graph)
        for b in g.body
        if not _is_native(b) and not isinstance(b.expr, If | Loop)
    ]


# ---- outlining ----------------------------------------------------------------------------------


def _outlined(graph: Graph, functions: list[Function]) -> Graph:
    body: list[Binding] = []
    run: list[Binding] = []
    needed = _needed_after(graph)
    for index, binding in enumerate(graph.body):
        # The host must know the dimensions that are read.
        if _is_native(binding) and not isinstance(binding.expr, Read):
            run.append(binding)
            continue
        body += _called(run, needed[index - 1] if index else set(), functions)
        body.append(_with_inner(binding, functions))
        run = []
    body += _called(run, set(graph.results), functions)
    return graph.with_(body)


def _with_inner(binding: Binding, functions: list[Function]) -> Binding:
    expr = binding.expr
    if not isinstance(expr, If | Loop):
        return binding
    graphs = [_outlined(g, functions) for g in expr.graphs]
    return Binding(binding.outputs, expr.with_graphs(graphs), binding.origin)


def _needed_after(graph: Graph) -> list[set[Value]]:
    """For each binding, the values that are used after it."""
    needed: list[set[Value]] = []
    current = set(graph.results)
    for binding in reversed(graph.body):
        needed.append(set(current))
        current.update(_used(binding))
    return needed[::-1]


def _called(run: Sequence[Binding], needed: set[Value], functions: list[Function]) -> list[Binding]:
    """A call of a new function made of these bindings, if there are any."""
    if not run:
        return []
    made = [v for b in run for v in b.outputs]
    own = set(made)
    params = list(dict.fromkeys(v for b in run for v in _used(b) if v not in own))
    params = [v for v in params if not v.is_constant and v not in _inner_values(run)]
    results = [v for v in made if v in needed]
    inner = {v: Value(v.name, v.type) for v in (*params, *results)}
    loose = _loose_dims(run, params)
    before, extra, reads = _passed(loose)
    body = [*reads, *(_renamed(b, inner) for b in run)]
    name = f"{NATIVE_PREFIX}{len(functions)}"
    given = [*(inner[v] for v in params), *extra]
    functions.append(Function(name, given, body, [inner[v] for v in results]))
    operands = [*params, *(v for b in before for v in b.outputs)]
    return [*before, Binding(results, CallFunction(name, operands))]


def _used(binding: Binding) -> Iterable[Value]:
    yield from (a for a in binding.expr.args if a is not None)
    for inner in binding.expr.graphs:
        for graph in all_graphs(inner):
            yield from graph.results
            for b in graph.body:
                yield from (a for a in b.expr.args if a is not None)


def _inner_values(run: Sequence[Binding]) -> set[Value]:
    """The values that graphs inside these bindings define."""
    found: set[Value] = set()
    for binding in run:
        for inner in binding.expr.graphs:
            for graph in all_graphs(inner):
                found.update(graph.params)
                found.update(v for b in graph.body for v in b.outputs)
    return found


def _loose_dims(run: Sequence[Binding], params: Sequence[Value]) -> list[Var]:
    """Dimensions that the bindings use but do not define, and that are no parameter's size."""
    shown: set[Expr] = {d for v in params if isinstance(v.type, TensorType) for d in v.shape}
    used: dict[Var, None] = {}
    for binding in run:
        graphs = [g for inner in binding.expr.graphs for g in all_graphs(inner)]
        every = [binding, *(b for g in graphs for b in g.body)]
        for b in every:
            used.update(dict.fromkeys(attribute_dims(b.expr)))
            used.update(dict.fromkeys(d for v in b.outputs for d in dims_of(v.type)))
            if isinstance(b.expr, Read | If | Loop) or _is_structural(b.expr):
                shown.update(defined_dims(b))
        tensors = [p for g in graphs for p in g.params if isinstance(p.type, TensorType)]
        shown.update(d for p in tensors for d in p.shape)
    used.update(dict.fromkeys(d for v in params for d in dims_of(v.type)))
    return [d for d in used if not any(d is s for s in shown)]


def _is_structural(expr: Node) -> bool:
    return isinstance(expr, Call) and expr.op.how == "structural"


def _passed(dims: Sequence[Var]) -> tuple[list[Binding], list[Value], list[Binding]]:
    """Dimensions passed to a function: the tensor made outside, the parameter, and its `Read`."""
    if not dims:
        return [], [], []
    op = find_op("dims")
    attrs = {"elements": list(dims), "shape": [len(dims)], "dtype": "int64"}
    type_ = TensorType("int64", [len(dims)])
    outside, inside = Value("sizes", type_), Value("sizes", type_)
    made = Binding([outside], Call(op, (), op.bind((), attrs)[1]))
    return [made], [inside], [Binding((), Read(inside, dims))]


def _renamed(binding: Binding, inner: dict[Value, Value]) -> Binding:
    """The binding with the function's own values, in inner graphs too."""
    expr = binding.expr
    args = [None if a is None else inner.get(a, a) for a in expr.args]
    if expr.graphs:
        expr = expr.with_graphs([_renamed_graph(g, inner) for g in expr.graphs])
    outputs = [inner.get(v, v) for v in binding.outputs]
    return Binding(outputs, expr.with_args(args), binding.origin)


def _renamed_graph(graph: Graph, inner: dict[Value, Value]) -> Graph:
    body = [_renamed(b, inner) for b in graph.body]
    return Graph(graph.params, body, [inner.get(r, r) for r in graph.results])
