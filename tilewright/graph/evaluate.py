"""The value of a graph by the NumPy references of its operators: the oracle of all tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from tilewright.graph.op import OpDef
from tilewright.graph.types import ANY, TensorType, Type
from tilewright.ir import Expr, Var
from tilewright.ir import evaluate as evaluate_expr
from tilewright.support.errors import UserError

#: How an operator is applied to arrays and plain attributes.
Apply = Callable[[OpDef, Sequence[Any], dict[str, Any]], Sequence[Any]]
#: Calls of functions nest at most this deep: each takes some of Python's stack.
MAX_DEPTH = 150


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
    return _Evaluator(module, apply).call(function, _ordered(function, inputs))


@dataclass(slots=True, eq=False)
class Constructed:
    """A value of a data type."""

    constructor: str
    fields: tuple[Any, ...]


class _Frame:
    """The values and dimensions in scope."""

    __slots__ = ("dims", "values")

    def __init__(self, outer: _Frame | None = None) -> None:
        self.values: dict[Value, Any] = dict(outer.values) if outer else {}
        self.dims: dict[Var, int] = dict(outer.dims) if outer else {}


@dataclass(slots=True, eq=False)
class _FunctionValue:
    graph: Graph
    frame: _Frame


class _Evaluator:
    def __init__(self, module: Module, apply: Apply) -> None:
        self._module, self._apply = module, apply
        self._depth = 0

    def call(self, graph: Graph, args: Sequence[Any], outer: _Frame | None = None) -> list[Any]:
        """Run a graph on these arguments."""
        frame = _Frame(outer)
        if len(args) != len(graph.params):
            raise UserError(f"a function takes {len(graph.params)} arguments, not {len(args)}")
        # Dimensions of parameters belong to this call, whatever an outer one of a recursion had.
        for param, arg in zip(graph.params, args, strict=True):
            _forget(param.type, frame)
        for param, arg in zip(graph.params, args, strict=True):
            frame.values[param] = _checked(param, arg, frame)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise UserError(f"calls are nested more than {MAX_DEPTH} deep")
        for binding in graph.body:
            self._bind(binding, frame)
        self._depth -= 1
        return [_value(r, frame) for r in graph.results]

    def _bind(self, binding: Binding, frame: _Frame) -> None:
        results = _RULES[type(binding.expr)](self, binding.expr, frame)
        if len(results) != len(binding.outputs):
            raise UserError(f"`{binding}` gave {len(results)} results")
        for value, result in zip(binding.outputs, results, strict=True):
            frame.values[value] = _checked(value, result, frame)

    # ---- one rule per node ----------------------------------------------------------------------

    def operator(self, node: Call, frame: _Frame) -> Sequence[Any]:
        args = [None if a is None else _value(a, frame) for a in node.args]
        attrs = {k: plain_attribute(v, frame.dims) for k, v in node.attrs.items()}
        return self._apply(node.op, args, attrs)

    def read(self, node: Read, frame: _Frame) -> Sequence[Any]:
        numbers = np.asarray(_value(node.value, frame)).ravel()
        frame.dims.update({d: int(v) for d, v in zip(node.dims, numbers, strict=True)})
        return ()

    def branch(self, node: If, frame: _Frame) -> Sequence[Any]:
        chosen = node.then if bool(_value(node.condition, frame)) else node.otherwise
        return self.call(chosen, (), frame)

    def loop(self, node: Loop, frame: _Frame) -> Sequence[Any]:
        limit = None if node.trip_count is None else int(_value(node.trip_count, frame))
        going = node.condition is None or bool(_value(node.condition, frame))
        carried = [_value(v, frame) for v in node.initial]
        count, rows, trip = len(carried), list[list[Any]](), 0
        while going and (limit is None or trip < limit):
            results = self.call(node.body, [np.asarray(trip, np.int64), *carried], frame)
            going, carried, trip = bool(results[0]), results[1 : 1 + count], trip + 1
            rows.append(results[1 + count :])
        return [*carried, *self._stacked(node, rows, frame)]

    def _stacked(self, node: Loop, rows: list[list[Any]], frame: _Frame) -> list[Any]:
        scanned = node.body.results[1 + len(node.initial) :]
        if rows:
            return [np.stack(column) for column in zip(*rows, strict=True)]
        return [_empty(v.tensor, frame) for v in scanned]

    def call_function(self, node: CallFunction, frame: _Frame) -> Sequence[Any]:
        args = [_value(a, frame) for a in node.operands]
        if isinstance(node.callee, str):
            return self.call(self._module[node.callee], args)
        closure: _FunctionValue = _value(node.callee, frame)
        return self.call(closure.graph, args, closure.frame)

    def match(self, node: Match, frame: _Frame) -> Sequence[Any]:
        value: Constructed = _value(node.value, frame)
        return self.call(node.arms[value.constructor], value.fields, frame)


_RULES: dict[type[Node], Callable[[_Evaluator, Any, _Frame], Sequence[Any]]] = {
    Call: _Evaluator.operator,
    Read: _Evaluator.read,
    MakeTuple: lambda _, n, f: [tuple(_value(v, f) for v in n.items)],
    Project: lambda _, n, f: [_value(n.value, f)[n.index]],
    If: _Evaluator.branch,
    Loop: _Evaluator.loop,
    Closure: lambda _, n, f: [_FunctionValue(n.graph, f)],
    CallFunction: _Evaluator.call_function,
    Construct: lambda _, n, f: [Constructed(n.constructor, tuple(_value(a, f) for a in n.args))],
    Match: _Evaluator.match,
}


def plain_attribute(value: Any, dims: Mapping[Var, int]) -> Any:
    """An attribute with numbers in place of expressions."""
    if isinstance(value, Expr):
        return int(evaluate_expr(value, dims))
    if isinstance(value, tuple):
        items: tuple[Any, ...] = value
        return tuple(plain_attribute(v, dims) for v in items)
    return value


def _value(value: Value, frame: _Frame) -> Any:
    return frame.values[value] if value.constant is None else value.constant


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


def _forget(type_: Type, frame: _Frame) -> None:
    from tilewright.graph.types import dims_of

    for dim in dims_of(type_):
        frame.dims.pop(dim, None)


def _checked(value: Value, result: Any, frame: _Frame) -> Any:
    """The result, once it fits the type of the value; new symbolic dimensions learn their size."""
    type_ = value.type
    if not isinstance(type_, TensorType):
        return result
    array = np.asarray(result)
    if array.dtype != type_.dtype.numpy and not (
        array.dtype.kind in "OU" and type_.dtype.short == "str"
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
