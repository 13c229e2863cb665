"""The graph IR: functions of bindings in A-normal form.

    Value                                   what a binding or a parameter defines; or a constant
    Binding(outputs, expr)                  outputs = expr
    Graph(params, body, results)            a block of bindings; captures outer values freely
    Function(name, params, body, results)   a graph that is called by name
    Module(functions, data_types)           `main` is where it starts

Expressions (`Node`)
    Call(op, args, attrs)                   an operator; an optional operand may be None
    Read(value, dims)                       binds fresh symbolic dimensions to the elements of an
                                            integer tensor; it has no outputs
    MakeTuple(items)   Project(value, index)
    If(condition, then, otherwise)          condition: bool[]; both graphs take no parameters
    Loop(trip_count, condition, initial, body)
                                            body: (iteration i64[], *carried) ->
                                                  (go on? bool[], *carried, *scanned)
                                            outputs: (*carried, *each scanned, stacked in front)
                                            stops at trip_count (None: never), or once told to
    Closure(graph)                          a function as a value
    CallFunction(callee, args)              callee: the name of a function of the module, or a value
    Construct(data_type, constructor, args)
    Match(value, arms)                      one graph per constructor, its fields are the parameters
    Fused(graph)                            calls that become one kernel; it has no parameters

Values are defined once, before they are used; they keep their identity and their names are hints.
Symbolic dimensions are `ir.Var`s: a parameter's or an output's type that shows one bare for the
first time defines it. Nothing has side effects but operators that say so (`OpDef.pure`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.graph.attributes import Array
from tilewright.graph.operators import Operators
from tilewright.graph.types import TensorType, Type
from tilewright.ir import DType, Expr, Var, const
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.graph.op import OpDef

#: Elements of tensors up to this many are followed through shape arithmetic.
KNOWN_LIMIT: Final = 1024


class Value(Operators):
    """What a binding defines. A constant is a value with an array, and needs no binding.

    `known` are the elements where they can be told at compile time: an array of expressions (over
    int64 for all integers), in which symbolic dimensions may occur.
    """

    __slots__ = ("_known", "builder", "constant", "name", "type")

    def __init__(self, name: str, type: Type, constant: Array | None = None) -> None:
        self.name, self.type, self.constant = name, type, constant
        self._known: Array | None = None
        #: Where operators on this value go, while the graph is being built.
        self.builder: Any = None

    @property
    def is_constant(self) -> bool:
        return self.constant is not None

    @property
    def tensor(self) -> TensorType:
        """The type, which must be a tensor's."""
        if isinstance(self.type, TensorType):
            return self.type
        raise UserError(f"{self.name} is no tensor", reason=f"it is {self.type}")

    @property
    def dtype(self) -> DType:
        return self.tensor.dtype

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.tensor.shape

    @property
    def ndim(self) -> int:
        return len(self.tensor.shape)

    @property
    def known(self) -> Array | None:
        if self._known is None and self.constant is not None:
            self._known = _elements(self.constant, self.tensor)
        return self._known

    @property
    def is_known(self) -> bool:
        """Whether `known` is more than None: quicker than to have all elements made for it."""
        array = self.constant
        return self._known is not None or (array is not None and _has_elements(array, self.tensor))

    @known.setter
    def known(self, elements: Array | None) -> None:
        self._known = elements

    def __repr__(self) -> str:
        return f"{self.name}: {self.type}"


def _has_elements(array: Array, type_: TensorType) -> bool:
    return array.size <= KNOWN_LIMIT and type_.dtype.kind in ("int", "uint", "bool", "float")


def _elements(array: Array, type_: TensorType) -> Array | None:
    if not _has_elements(array, type_):
        return None
    dtype = None if type_.dtype.is_integer or type_.dtype.is_bool else type_.dtype
    result = np.empty(array.shape, object)
    for index, element in np.ndenumerate(array):
        plain = element.item() if hasattr(element, "item") else element
        result[index] = const(int(plain) if type_.dtype.is_integer else plain, dtype)
    return result


# ---- expressions --------------------------------------------------------------------------------


class Node:
    """Base of what a binding can bind; `args` are the values it uses, `graphs` those inside it."""

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
    """Makes the elements of a small integer tensor symbolic dimensions of what follows."""

    __slots__ = ("dims", "value")

    def __init__(self, value: Value, dims: Iterable[Var]) -> None:
        self.value, self.dims = value, tuple(dims)

    @property
    def args(self) -> tuple[Value | None, ...]:
        return (self.value,)

    def with_args(self, args: Sequence[Value | None]) -> Node:
        return Read(_given(args[0]), self.dims)


class MakeTuple(Node):
    __slots__ = ("items",)

    def __init__(self, items: Iterable[Value]) -> None:
        self.items = tuple(items)

    @property
    def args(self) -> tuple[Value | None, ...]:
        return self.items

    def with_args(self, args: Sequence[Value | None]) -> Node:
        return MakeTuple(map(_given, args))


class Project(Node):
    __slots__ = ("index", "value")

    def __init__(self, value: Value, index: int) -> None:
        self.value, self.index = value, index

    @property
    def args(self) -> tuple[Value | None, ...]:
        return (self.value,)

    def with_args(self, args: Sequence[Value | None]) -> Node:
        return Project(_given(args[0]), self.index)


class If(Node):
    __slots__ = ("condition", "otherwise", "then")

    def __init__(self, condition: Value, then: Graph, otherwise: Graph) -> None:
        self.condition, self.then, self.otherwise = condition, then, otherwise

    @property
    def args(self) -> tuple[Value | None, ...]:
        return (self.condition,)

    def with_args(self, args: Sequence[Value | None]) -> Node:
        return If(_given(args[0]), self.then, self.otherwise)

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
        return Loop(args[0], args[1], map(_given, args[2:]), self.body)

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
        """What the function is called on."""
        return self._args

    @property
    def args(self) -> tuple[Value | None, ...]:
        return self._args if isinstance(self.callee, str) else (self.callee, *self._args)

    def with_args(self, args: Sequence[Value | None]) -> Node:
        values = [_given(a) for a in args]
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
        return Construct(self.data_type, self.constructor, map(_given, args))


class Match(Node):
    __slots__ = ("arms", "value")

    def __init__(self, value: Value, arms: Mapping[str, Graph]) -> None:
        self.value, self.arms = value, dict(arms)

    @property
    def args(self) -> tuple[Value | None, ...]:
        return (self.value,)

    def with_args(self, args: Sequence[Value | None]) -> Node:
        return Match(_given(args[0]), self.arms)

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


def _given(value: Value | None) -> Value:
    assert value is not None
    return value


# ---- blocks -------------------------------------------------------------------------------------


class Binding:
    """`outputs = expr`; `origin` says where it comes from, such as a node of a model file."""

    __slots__ = ("expr", "origin", "outputs")

    def __init__(self, outputs: Iterable[Value], expr: Node, origin: str = "") -> None:
        self.outputs, self.expr, self.origin = tuple(outputs), expr, origin

    @property
    def label(self) -> str:
        """What messages call it: where it comes from, else what it defines."""
        return self.origin or ", ".join(v.name for v in self.outputs)

    @property
    def is_view(self) -> bool:
        """Whether the result is the operand's memory."""
        return isinstance(self.expr, Call) and self.expr.op.view

    def __repr__(self) -> str:
        from tilewright.graph.printer import binding_text

        return binding_text(self)


class Graph:
    """A block of bindings with parameters and results."""

    __slots__ = ("body", "params", "results")

    def __init__(
        self, params: Iterable[Value], body: Iterable[Binding], results: Iterable[Value]
    ) -> None:
        self.params, self.results = tuple(params), tuple(results)
        self.body = list(body)

    def with_(self, body: Iterable[Binding], results: Iterable[Value] | None = None) -> Graph:
        """The same graph around another body."""
        return Graph(self.params, body, self.results if results is None else results)


class Function(Graph):
    """A graph that is called by name; its inputs are known by the names of the parameters.

    `outputs` are the names that callers know the results by.
    """

    __slots__ = ("_outputs", "name")

    def __init__(
        self,
        name: str,
        params: Iterable[Value],
        body: Iterable[Binding],
        results: Iterable[Value],
        outputs: Sequence[str] = (),
    ) -> None:
        super().__init__(params, body, results)
        self.name = name
        self._outputs = tuple(outputs)

    @property
    def outputs(self) -> tuple[str, ...]:
        return self._outputs or tuple(r.name for r in self.results)

    def with_(self, body: Iterable[Binding], results: Iterable[Value] | None = None) -> Function:
        results = self.results if results is None else tuple(results)
        return Function(self.name, self.params, body, results, self._outputs)

    def named(self, outputs: Sequence[str]) -> Function:
        """The same function with other names for its results."""
        return Function(self.name, self.params, self.body, self.results, outputs)

    def __repr__(self) -> str:
        from tilewright.graph.printer import function_text

        return function_text(self)


class DataDef:
    """An algebraic data type: the types of the fields of each constructor."""

    __slots__ = ("constructors", "name")

    def __init__(self, name: str, constructors: Mapping[str, Sequence[Type]]) -> None:
        self.name = name
        self.constructors = {c: tuple(fields) for c, fields in constructors.items()}


class Module:
    """Functions by name, and the data types they use; it starts with `main`."""

    __slots__ = ("data_types", "functions")

    def __init__(self, functions: Iterable[Function], data_types: Iterable[DataDef] = ()) -> None:
        self.functions = {f.name: f for f in functions}
        self.data_types = {d.name: d for d in data_types}

    @property
    def main(self) -> Function:
        if "main" not in self.functions:
            raise UserError("the module has no function main")
        return self.functions["main"]

    def __getitem__(self, name: str) -> Function:
        from tilewright.support.errors import nearest

        if name not in self.functions:
            raise UserError(f"no function {name}", remedy=nearest(name, self.functions))
        return self.functions[name]

    def map(self, change: Callable[[Function], Function]) -> Module:
        """The module with `change` applied to every function; itself if nothing changed."""
        functions = [change(f) for f in self.functions.values()]
        if all(a is b for a, b in zip(functions, self.functions.values(), strict=True)):
            return self
        return Module(functions, self.data_types.values())

    def __repr__(self) -> str:
        from tilewright.graph.printer import module_text

        return module_text(self)


def all_graphs(graph: Graph) -> Iterator[Graph]:
    """A graph and all graphs inside it, outer ones first."""
    pending = [graph]
    while pending:
        current = pending.pop()
        yield current
        inner = [g for b in current.body for g in b.expr.graphs]
        pending.extend(reversed(inner))
