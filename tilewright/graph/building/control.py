"""Control flow in the builder: branches, loops, functions, tuples and data types.

    y = b.branch(c, lambda: b.relu(x), lambda: x)
    total, squares = b.loop(10, [zero], lambda i, s: ([s + x], [x * x]))
    double = b.closure([x.type], lambda v: v + v)
    z = b.call(double, x)

Bodies are Python functions that build with the same builder; they may use all values around them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from tilewright.graph.ir import (
    CallFunction,
    Closure,
    Construct,
    DataDef,
    Function,
    Graph,
    If,
    Loop,
    MakeTuple,
    Match,
    Node,
    Project,
    Value,
)
from tilewright.graph.ir.types import (
    DataType,
    FunctionType,
    TensorType,
    TupleType,
    Type,
    dims_of,
    fresh_dim,
)
from tilewright.graph.ir.unify import instantiate, join, leaving, leaving_tensor, widened
from tilewright.ir import Expr, Var
from tilewright.support.errors import UserError, nearest

Body = Callable[..., Any]
#: Types of a loop's state settle quickly: every round makes some dimension fresh for good.
_ROUNDS = 8


class ControlFlow:
    """Mixed into `Builder`, which has the blocks."""

    # Provided by `Builder`.
    bind: Callable[[Node, Sequence[Type], Sequence[str]], tuple[Value, ...]]
    input: Callable[..., Value]
    output: Callable[..., None]
    as_value: Callable[[Any], Value]
    constant: Callable[..., Value]
    open_block: Callable[[], None]
    close_block: Callable[[], Graph]
    visible_dims: Callable[[], set[Var]]

    # ---- branches -------------------------------------------------------------------------------

    def branch(self, condition: Value, then: Body, otherwise: Body) -> Any:
        """The results of one of two functions without parameters."""
        _require_scalar("branch", "condition", condition, "bool")
        graphs = [self.graph([], body) for body in (then, otherwise)]
        return self.bind_branch(condition, *graphs)

    def bind_branch(self, condition: Value, then: Graph, otherwise: Graph) -> Any:
        """A branch of graphs that exist already."""
        if len(then.results) != len(otherwise.results):
            raise UserError(
                f"one side of the branch has {len(then.results)} results, the other "
                f"{len(otherwise.results)}"
            )
        types = self._joined([then, otherwise])
        return _one_or_all(self.bind(If(condition, then, otherwise), types, ["branch"]))

    def _joined(self, graphs: Sequence[Graph]) -> list[Type]:
        visible = self.visible_dims()
        types: list[Type] = []
        for results in zip(*(g.results for g in graphs), strict=True):
            joined = results[0].type
            for other in results[1:]:
                joined = join(joined, other.type)
            types.append(leaving(joined, visible))
        return types

    def graph(self, params: Sequence[Type], body: Body, names: Sequence[str] = ()) -> Graph:
        """A graph inside the current one, built by calling `body` on its parameters."""
        self.open_block()
        hints = [*names, *(f"p{k}" for k in range(len(names), len(params)))]
        values = [self.input(n, t) for n, t in zip(hints, params, strict=True)]
        try:
            self.output(*_several(body(*values)))
        except BaseException:
            self.close_block()
            raise
        return self.close_block()

    # ---- loops ----------------------------------------------------------------------------------

    def loop(
        self,
        trip_count: Any,
        initial: Sequence[Any],
        body: Body,
        *,
        condition: Any = None,
    ) -> Any:
        """The last state of `body(i, *state)` in a loop, then each iteration's outputs, stacked.

        It returns the next state; or (state, outputs); or (go on?, state, outputs).
        A state whose shape changes from iteration to iteration gets symbolic dimensions: then
        `body` is called again.
        """
        count = None if trip_count is None else self._scalar(trip_count, "int64")
        going = None if condition is None else self._scalar(condition, "bool")
        state = [self.as_value(v) for v in initial]
        types = [v.type for v in state]
        for _ in range(_ROUNDS):
            graph = self._body(types, body)
            settled = self._widened(graph, types)
            if settled == types:
                return self.bind_loop(count, going, state, graph)
            types = settled
        raise UserError("the types of a loop's state do not settle", reason=f"they were {types}")

    def bind_loop(
        self, count: Value | None, going: Value | None, state: Sequence[Value], body: Graph
    ) -> Any:
        """A loop around a body that exists already."""
        visible = self.visible_dims()
        carried = [leaving(p.type, visible) for p in body.params[1:]]
        trips = self._trips(count, going, body)
        scanned = [
            TensorType(v.dtype, [trips, *leaving_tensor(v.tensor, visible).shape])
            for v in body.results[1 + len(state) :]
        ]
        node = Loop(count, going, state, body)
        return _one_or_all(self.bind(node, [*carried, *scanned], ["loop"]))

    def _body(self, types: Sequence[Type], body: Body) -> Graph:
        def run(i: Value, *state: Value) -> list[Any]:
            going, carried, scanned = _parts(body(i, *state), len(types))
            going = self.constant(True, "bool") if going is None else going
            return [going, *carried, *scanned]

        names = ["i", *(f"s{k}" for k in range(len(types)))]
        return self.graph([TensorType("int64"), *types], run, names)

    def _widened(self, body: Graph, types: Sequence[Type]) -> list[Type]:
        if len(body.results) < 1 + len(types):
            raise UserError(
                f"a loop carries {len(types)} values, but its body gives {len(body.results) - 1}"
            )
        visible = self.visible_dims()
        own = {d for p in body.params for d in dims_of(p.type)} - visible
        results = body.results[1 : 1 + len(types)]
        return [widened(t, r.type, own) for t, r in zip(types, results, strict=True)]

    def _trips(self, count: Value | None, going: Value | None, body: Graph) -> Expr:
        """The number of iterations: the trip count, if nothing else can end the loop."""
        always = body.results[0].constant is not None and bool(body.results[0].constant)
        starts = going is None or (going.constant is not None and bool(going.constant))
        if count is None or count.known is None or not always or not starts:
            return fresh_dim("trips")
        known = count.known.ravel()[0]
        return known if known in self.visible_dims() or not isinstance(known, Var) else fresh_dim()

    def _scalar(self, value: Any, dtype: str) -> Value:
        made = value if isinstance(value, Value) else self.constant(np.asarray(value), dtype)
        _require_scalar("loop", "bound", made, dtype)
        return made

    # ---- functions ------------------------------------------------------------------------------

    def closure(self, params: Sequence[Type], body: Body) -> Value:
        """A function as a value; it may use the values around it."""
        return self.bind_closure(self.graph(params, body))

    def bind_closure(self, graph: Graph) -> Value:
        type_ = FunctionType([p.type for p in graph.params], [r.type for r in graph.results])
        return self.bind(Closure(graph), [type_], ["closure"])[0]

    def call(
        self, callee: Function | Value | str, *args: Any, types: Sequence[Type] | None = None
    ) -> Any:
        """Call a closure or a function; one that is not built yet by its name and result types."""
        operands = [self.as_value(a) for a in args]
        given = [a.type for a in operands]
        name = callee.name if isinstance(callee, Function) else callee
        results = types if types is not None else self._result_types(callee, given)
        return _one_or_all(self.bind(CallFunction(name, operands), results, ["call"]))

    def _result_types(self, callee: Function | Value | str, args: list[Type]) -> Sequence[Type]:
        if isinstance(callee, Function):
            params = [p.type for p in callee.params]
            results = [r.type for r in callee.results]
            return instantiate(params, results, args, ())
        type_ = callee.type if isinstance(callee, Value) else None
        if not isinstance(type_, FunctionType):
            raise UserError(
                f"cannot call {callee}",
                reason=f"it is {type_}" if type_ else "its result types are not known",
                remedy="pass types=[…] for a function that is not built yet",
            )
        return instantiate(type_.params, type_.results, args, self.visible_dims())

    # ---- tuples and data types ------------------------------------------------------------------

    def make_tuple(self, *items: Any) -> Value:
        values = [self.as_value(v) for v in items]
        type_ = TupleType(v.type for v in values)
        return self.bind(MakeTuple(values), [type_], ["tuple"])[0]

    def project(self, value: Value, index: int) -> Value:
        """One item of a tuple."""
        if not isinstance(value.type, TupleType) or not 0 <= index < len(value.type.items):
            raise UserError(f"{value} has no item {index}")
        return self.bind(Project(value, index), [value.type.items[index]], ["item"])[0]

    def construct(self, data: DataDef, constructor: str, *args: Any) -> Value:
        """A value of a data type."""
        fields = fields_of(data, constructor)
        values = [self.as_value(a) for a in args]
        instantiate(fields, [], [v.type for v in values], ())
        node = Construct(data.name, constructor, values)
        return self.bind(node, [DataType(data.name)], [constructor.lower()])[0]

    def match(self, value: Value, data: DataDef, arms: Mapping[str, Body]) -> Any:
        """The results of the arm for the constructor that made `value`, called on its fields."""
        if value.type != DataType(data.name):
            raise UserError(f"cannot match {value} against {data.name}")
        missing = [c for c in data.constructors if c not in arms]
        if missing:
            raise UserError(f"a match on {data.name} has no arm for {', '.join(missing)}")
        graphs = {c: self.graph(fields_of(data, c), arms[c]) for c in arms}
        return self.bind_match(Match(value, graphs))

    def bind_match(self, node: Match) -> Any:
        """A match whose arms exist already."""
        types = self._joined(node.graphs)
        return _one_or_all(self.bind(node, types, ["match"]))


def fields_of(data: DataDef, constructor: str) -> tuple[Type, ...]:
    """The types of the fields of a constructor."""
    if constructor not in data.constructors:
        raise UserError(
            f"{data.name} has no constructor {constructor}",
            remedy=nearest(constructor, data.constructors),
        )
    return data.constructors[constructor]


def _parts(result: Any, count: int) -> tuple[Any, Sequence[Any], Sequence[Any]]:
    """What a loop body returned as (go on?, state, outputs)."""
    if not isinstance(result, tuple):
        return None, _several(result), ()
    parts = cast("tuple[Any, ...]", result)
    if len(parts) == 3 and isinstance(parts[1], list | tuple):
        return parts[0], _several(parts[1]), _several(parts[2])
    if len(parts) == 2 and isinstance(parts[0], list | tuple):
        return None, _several(parts[0]), _several(parts[1])
    if len(parts) != count:
        raise UserError(f"a loop body returned {len(parts)} values for {count} carried ones")
    return None, parts, ()


def _several(result: Any) -> Sequence[Any]:
    if result is None:
        return ()
    return tuple(cast("Sequence[Any]", result)) if isinstance(result, list | tuple) else (result,)


def _one_or_all(values: tuple[Value, ...]) -> Any:
    return values[0] if len(values) == 1 else values


def _require_scalar(what: str, role: str, value: Value, dtype: str) -> None:
    type_ = value.type
    if isinstance(type_, TensorType) and type_.dtype.name == dtype and type_.size == 1:
        return
    raise UserError(f"the {role} of a {what} is {value}", reason=f"it must be {dtype}[()]")
