"""The expressions of bindings: calls of operators, control flow, tuples, data types, closures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.graph.ir.values import Value
from tilewright.ir import Var

if TYPE_CHECKING:
    from tilewright.graph.ir.blocks import Graph
    from tilewright.graph.ir.op import OpDef


class Node:
    """Base class of the expressions; `args` are the values it uses, `graphs` those inside it."""

    __slots__ = ()

    @property
    def args(self) -> tuple[Value | None, ...]:
        return ()

    def with_args(self, args: Sequence[Value | None]) -> Node:
        """The same node on other values."""
        del args
        return self

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return ()

    def with_graphs(self, graphs: Sequence[Graph]) -> Node:
        del graphs
        return self


class Call(Node):
    __slots__ = ("_args", "attrs", "op")

    def __init__(self, op: OpDef, args: Iterable[Value | None], attrs: Mapping[str, Any]) -> None:
        self.op, self._args, self.attrs = op, tuple(args), dict(attrs)

    @property
    def args(self) -> tuple[Value | None, ...]:
        return self._args

    def with_args(self, args: Sequence[Value | None]) -> Node:
        return Call(self.op, args, self.attrs)


class Read(Node):
    """Turns the elements of a small integer tensor into symbolic dimensions."""

    __slots__ = ("dims", "value")

    def __init__(self, value: Value, dims: Iterable[Var]) -> None:
        self.value, self.dims = value, tuple(dims)

    @property
    def args(self) -> tuple[Value | None, ...]:
        return (self.value,)

    def with_args(self, args: Sequence[Value | None]) -> Node:
        return Read(_required(args[0]), self.dims)


class MakeTuple(Node):
    __slots__ = ("items",)

    def __init__(self, items: Iterable[Value]) -> None:
        self.items = tuple(items)

    @property
    def args(self) -> tuple[Value | None, ...]:
        return self.items

    def with_args(self, args: Sequence[Value | None]) -> Node:
        return MakeTuple(map(_required, args))


class Project(Node):
    __slots__ = ("index", "value")

    def __init__(self, value: Value, index: int) -> None:
        self.value, self.index = value, index

    @property
    def args(self) -> tuple[Value | None, ...]:
        return (self.value,)

    def with_args(self, args: Sequence[Value | None]) -> Node:
        return Project(_required(args[0]), self.index)


class If(Node):
    __slots__ = ("condition", "otherwise", "then")

    def __init__(self, condition: Value, then: Graph, otherwise: Graph) -> None:
        self.condition, self.then, self.otherwise = condition, then, otherwise

    @property
    def args(self) -> tuple[Value | None, ...]:
        return (self.condition,)

    def with_args(self, args: Sequence[Value | None]) -> Node:
        return If(_required(args[0]), self.then, self.otherwise)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return (self.then, self.otherwise)

    def with_graphs(self, graphs: Sequence[Graph]) -> Node:
        return If(self.condition, *graphs)


class Loop(Node):
    __slots__ = ("body", "condition", "initial", "trip_count")

    def __init__(
        self,
        trip_count: Value | None,
        condition: Value | None,
        initial: Iterable[Value],
        body: Graph,
    ) -> None:
        self.trip_count, self.condition = trip_count, condition
        self.initial, self.body = tuple(initial), body

    @property
    def args(self) -> tuple[Value | None, ...]:
        return (self.trip_count, self.condition, *self.initial)

    def with_args(self, args: Sequence[Value | None]) -> Node:
        return Loop(args[0], args[1], map(_required, args[2:]), self.body)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return (self.body,)

    def with_graphs(self, graphs: Sequence[Graph]) -> Node:
        return Loop(self.trip_count, self.condition, self.initial, *graphs)


class Closure(Node):
    __slots__ = ("graph",)

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return (self.graph,)

    def with_graphs(self, graphs: Sequence[Graph]) -> Node:
        return Closure(*graphs)


class CallFunction(Node):
    __slots__ = ("_args", "callee")

    def __init__(self, callee: str | Value, args: Iterable[Value]) -> None:
        self.callee, self._args = callee, tuple(args)

    @property
    def operands(self) -> tuple[Value, ...]:
        """The arguments of the function."""
        return self._args

    @property
    def args(self) -> tuple[Value | None, ...]:
        return self._args if isinstance(self.callee, str) else (self.callee, *self._args)

    def with_args(self, args: Sequence[Value | None]) -> Node:
        values = [_required(a) for a in args]
        if isinstance(self.callee, str):
            return CallFunction(self.callee, values)
        return CallFunction(values[0], values[1:])


class Construct(Node):
    __slots__ = ("_args", "constructor", "data_type")

    def __init__(self, data_type: str, constructor: str, args: Iterable[Value]) -> None:
        self.data_type, self.constructor, self._args = data_type, constructor, tuple(args)

    @property
    def args(self) -> tuple[Value | None, ...]:
        return self._args

    def with_args(self, args: Sequence[Value | None]) -> Node:
        return Construct(self.data_type, self.constructor, map(_required, args))


class Match(Node):
    __slots__ = ("arms", "value")

    def __init__(self, value: Value, arms: Mapping[str, Graph]) -> None:
        self.value, self.arms = value, dict(arms)

    @property
    def args(self) -> tuple[Value | None, ...]:
        return (self.value,)

    def with_args(self, args: Sequence[Value | None]) -> Node:
        return Match(_required(args[0]), self.arms)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return tuple(self.arms.values())

    def with_graphs(self, graphs: Sequence[Graph]) -> Node:
        return Match(self.value, dict(zip(self.arms, graphs, strict=True)))


class Fused(Node):
    __slots__ = ("graph",)

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @property
    def graphs(self) -> tuple[Graph, ...]:
        return (self.graph,)

    def with_graphs(self, graphs: Sequence[Graph]) -> Node:
        return Fused(*graphs)


def _required(value: Value | None) -> Value:
    assert value is not None
    return value
