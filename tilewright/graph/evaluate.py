"""The value of a graph by the NumPy references of its operators: the oracle of all tests."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.graph.ir import (
    Array,
    Binding,
    Call,
    CallFunction,
    Closure,
    Construct,
    Function,
    Fused,
    Graph,
    If,
    Loop,
    MakeTuple,
    Match,
    Module,
    Node,
    Project,
    Read,
    Value,
)
from tilewright.graph.ir.attributes import attribute_parts
from tilewright.graph.ir.op import OpDef
from tilewright.graph.ir.types import ANY, STRING, TensorType, dims_of
from tilewright.ir import Expr, Var
from tilewright.ir import evaluate as evaluate_expr
from tilewright.support.errors import UserError

#: How an operator is applied to arrays and plain attributes.
Apply = Callable[[OpDef, Sequence[Any], dict[str, Any]], Sequence[Any]]
#: Most graphs that may run inside each other.
MAX_DEPTH = 100_000


def by_reference(op: OpDef, args: Sequence[Any], attrs: dict[str, Any]) -> Sequence[Any]:
    """The result of an operator by its NumPy reference."""
    return op.evaluate(args, attrs)


def evaluate(
    program: Module | Function,
    inputs: Mapping[str, Any] | Sequence[Any],
    *,
    apply: Apply = by_reference,
) -> list[Any]:
    """The results of `main`, or of a function, on inputs by name or in order."""
    module = Module([program]) if isinstance(program, Function) else program
    function = program if isinstance(program, Function) else module.main
    return _Evaluator(module, apply).run(function, _ordered(function, inputs))


@dataclass(slots=True, eq=False)
class Constructed:
    """A value of a data type."""

    constructor: str
    fields: tuple[Any, ...]


class _Frame:
    """The values and dimensions of one run of a graph; others are in outer frames."""

    __slots__ = ("dims", "outer", "values")

    def __init__(self, outer: _Frame | None = None) -> None:
        self.outer = outer
        self.values: dict[Value, Any] = {}
        self.dims: dict[Var, int] = dict(outer.dims) if outer else {}

    def __getitem__(self, value: Value) -> Any:
        if value.constant is not None:
            return value.constant
        frame: _Frame | None = self
        while frame is not None:
            if value in frame.values:
                return frame.values[value]
            frame = frame.outer
        raise UserError(f"{value} is used before it has a value", remedy="verify the module")


@dataclass(slots=True, eq=False)
class _FunctionValue:
    graph: Graph
    frame: _Frame


#: A graph to run, its arguments, and the frame around it.
_Request = tuple[Graph, Sequence[Any], _Frame | None]
_Run = Generator[_Request, list[Any], Sequence[Any]]


class _Evaluator:
    """Runs graphs on an explicit stack: a run is a generator that yields the runs inside it."""

    def __init__(self, module: Module, apply: Apply) -> None:
        self._module, self._apply = module, apply

    def run(self, graph: Graph, args: Sequence[Any]) -> list[Any]:
        stack: list[_Run] = [self._graph(graph, args, None)]
        answer: Any = None
        while stack:
            if len(stack) > MAX_DEPTH:
                raise UserError(f"calls are nested more than {MAX_DEPTH} deep")
            try:
                request = stack[-1].send(answer)
            except StopIteration as done:
                stack.pop()
                answer = done.value
                continue
            stack.append(self._graph(*request))
            answer = None
        return list(answer)

    def _graph(self, graph: Graph, args: Sequence[Any], outer: _Frame | None) -> _Run:
        frame = _Frame(outer)
        if len(args) != len(graph.params):
            raise UserError(f"a function takes {len(graph.params)} arguments, not {len(args)}")
        # Dimensions of parameters belong to this run, not to an outer one of a recursion.
        for dim in (d for p in graph.params for d in dims_of(p.type)):
            frame.dims.pop(dim, None)
        for param, arg in zip(graph.params, args, strict=True):
            frame.values[param] = _checked(param, arg, frame)
        for binding in graph.body:
            yield from self._bind(binding, frame)
        return [frame[r] for r in graph.results]

    def _bind(self, binding: Binding, frame: _Frame) -> Generator[_Request, list[Any], None]:
        expr = binding.expr
        rule = _CONTROL.get(type(expr))
        results = (
            _RULES[type(expr)](self, expr, frame)
            if rule is None
            else (yield from rule(self, expr, frame))
        )
        if len(results) != len(binding.outputs):
            raise UserError(f"`{binding}` gave {len(results)} results")
        for value, result in zip(binding.outputs, results, strict=True):
            # A dimension that a binding defines may have had another size an iteration before.
            frame.values[value] = _checked(value, result, frame)

    # ---- one rule per node ----------------------------------------------------------------------

    def operator(self, node: Call, frame: _Frame) -> Sequence[Any]:
        args = [None if a is None else frame[a] for a in node.args]
        attrs = {k: plain_attribute(v, frame.dims) for k, v in node.attrs.items()}
        try:
            return self._apply(node.op, args, attrs)
        except (ValueError, IndexError) as error:
            shapes = ", ".join(str(getattr(a, "shape", "–")) for a in args)
            raise UserError(f"{node.op.name} on {shapes} failed", reason=str(error)) from error

    def read(self, node: Read, frame: _Frame) -> Sequence[Any]:
        numbers = np.asarray(frame[node.value]).ravel()
        frame.dims.update({d: int(v) for d, v in zip(node.dims, numbers, strict=True)})
        return ()

    def branch(self, node: If, frame: _Frame) -> _Run:
        chosen = node.then if bool(frame[node.condition]) else node.otherwise
        return (yield chosen, (), frame)

    def loop(self, node: Loop, frame: _Frame) -> _Run:
        limit = None if node.trip_count is None else int(frame[node.trip_count])
        going = node.condition is None or bool(frame[node.condition])
        carried = [frame[v] for v in node.initial]
        count, rows, trip = len(carried), list[list[Any]](), 0
        while going and (limit is None or trip < limit):
            results = yield node.body, [np.asarray(trip, np.int64), *carried], frame
            going, carried, trip = bool(results[0]), results[1 : 1 + count], trip + 1
            rows.append(results[1 + count :])
        return [*carried, *_stacked(node, rows, frame)]

    def call_function(self, node: CallFunction, frame: _Frame) -> _Run:
        args = [frame[a] for a in node.operands]
        if isinstance(node.callee, str):
            return (yield self._module[node.callee], args, None)
        closure: _FunctionValue = frame[node.callee]
        return (yield closure.graph, args, closure.frame)

    def fused(self, node: Fused, frame: _Frame) -> _Run:
        return (yield node.graph, (), frame)

    def match(self, node: Match, frame: _Frame) -> _Run:
        value: Constructed = frame[node.value]
        return (yield node.arms[value.constructor], value.fields, frame)


_RULES: dict[type[Node], Callable[[_Evaluator, Any, _Frame], Sequence[Any]]] = {
    Call: _Evaluator.operator,
    Read: _Evaluator.read,
    MakeTuple: lambda _, n, f: [tuple(f[v] for v in n.items)],
    Project: lambda _, n, f: [f[n.value][n.index]],
    Closure: lambda _, n, f: [_FunctionValue(n.graph, f)],
    Construct: lambda _, n, f: [Constructed(n.constructor, tuple(f[a] for a in n.args))],
}
#: The nodes that run graphs.
_CONTROL: dict[type[Node], Callable[[_Evaluator, Any, _Frame], _Run]] = {
    If: _Evaluator.branch,
    Loop: _Evaluator.loop,
    CallFunction: _Evaluator.call_function,
    Match: _Evaluator.match,
    Fused: _Evaluator.fused,
}


def _stacked(node: Loop, rows: list[list[Any]], frame: _Frame) -> list[Any]:
    if rows:
        return [np.stack(column) for column in zip(*rows, strict=True)]
    return [_empty(v.tensor, frame) for v in node.body.results[1 + len(node.initial) :]]


def plain_attribute(value: Any, dims: Mapping[Var, int]) -> Any:
    """An attribute with numbers in place of expressions."""
    if isinstance(value, Expr):
        return int(evaluate_expr(value, dims))
    if isinstance(value, tuple):
        return tuple(plain_attribute(v, dims) for v in attribute_parts(value))
    return value


def _ordered(function: Function, inputs: Mapping[str, Any] | Sequence[Any]) -> list[Any]:
    if not isinstance(inputs, Mapping):
        return list(inputs)
    names = [p.name for p in function.params]
    missing, extra = set(names) - set(inputs), set(inputs) - set(names)
    if missing or extra:
        raise UserError(
            f"{function.name} takes the inputs {', '.join(names)}",
            reason=f"missing: {sorted(missing)}, not known: {sorted(extra)}",
        )
    return [inputs[n] for n in names]


# ---- shapes -------------------------------------------------------------------------------------


def _checked(value: Value, result: Any, frame: _Frame) -> Any:
    """The result, after a check against the value's type, which gives new dimensions their size."""
    type_ = value.type
    if not isinstance(type_, TensorType):
        return result
    array = np.asarray(result)
    if array.dtype != type_.dtype.numpy and not (
        array.dtype.kind in "OU" and type_.dtype is STRING
    ):
        raise UserError(f"{value} is {array.dtype} when it is evaluated")
    if array.ndim != type_.ndim:
        raise UserError(f"{value} has the shape {list(array.shape)} when it is evaluated")
    for dim, extent in zip(type_.shape, array.shape, strict=True):
        _match(value, dim, extent, array, frame)
    return array


def _match(value: Value, dim: Expr, extent: int, array: Array, frame: _Frame) -> None:
    if dim is ANY:
        return
    if isinstance(dim, Var) and dim not in frame.dims:
        frame.dims[dim] = extent
        return
    try:
        expected = int(evaluate_expr(dim, frame.dims))
    except UserError:
        return
    if expected != extent:
        raise UserError(
            f"{value} has the shape {list(array.shape)} when it is evaluated",
            reason=f"{dim} is {expected}, not {extent}",
        )


def _empty(type_: TensorType, frame: _Frame) -> Array:
    shape = [
        frame.dims.get(d, 0) if isinstance(d, Var) else plain_attribute(d, frame.dims)
        for d in type_.shape
    ]
    return np.empty((0, *shape), type_.dtype.numpy)
