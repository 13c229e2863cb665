"""Checks that a module is well formed. Run between all passes in tests.

Values are defined once and before they are used; so are symbolic dimensions; constants have the
types they claim; operators accept their operands, and outputs have the types these give; graphs
inside expressions have the parameters and results they must have; functions and data types exist.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Final

from tilewright.graph.ir import (
    Binding,
    Call,
    CallFunction,
    Closure,
    Construct,
    DataDef,
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
from tilewright.graph.ir.types import (
    ANY,
    DataType,
    FunctionType,
    TensorType,
    TupleType,
    Type,
    dims_of,
)
from tilewright.graph.ir.unify import instantiate, may_be
from tilewright.graph.text.printer import binding_text
from tilewright.ir import Expr, Var, free_vars
from tilewright.support.errors import TilewrightError, UserError

#: Most levels of graphs inside graphs: readers may recurse.
MAX_NESTING: Final = 64
_SHOWN: Final = 6


def verify(module: Module) -> None:
    """Raise a `UserError` that lists what is wrong, or return."""
    verifier = _Verifier(module)
    for function in module.functions.values():
        verifier.function(function)
    if not verifier.faults:
        return
    more = len(verifier.faults) - 1
    name, text, _ = verifier.faults[0]
    lines = [f"    {binding_text(b)}\n    ^ {t}" for _, t, b in verifier.faults[:_SHOWN] if b]
    raise UserError(
        f"function {name} is not well formed",
        reason=text + (f" (and {more} more)" if more else ""),
        listing="\n".join(lines),
    )


class _Verifier:
    """Walks functions with the values and dimensions in scope."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.faults: list[tuple[str, str, Binding | None]] = []
        self._defined: set[Value] = set()
        self._bound_dims: set[Var] = set()
        self._values: set[Value] = set()
        self._dims: set[Var] = set()
        self._name = ""
        self._binding: Binding | None = None
        self._depth = 0

    def fault(self, text: str) -> None:
        self.faults.append((self._name, text, self._binding))

    def require(self, holds: bool, text: str) -> None:
        if not holds:
            self.fault(text)

    # ---- graphs ---------------------------------------------------------------------------------

    def function(self, function: Function) -> None:
        self._name, self._binding = function.name, None
        self._values, self._dims = set(), set()
        names = [p.name for p in function.params]
        self.require(len(set(names)) == len(names), "two parameters have one name")
        outputs = function.outputs
        self.require(len(outputs) == len(function.results), "results and their names differ")
        self.graph(function)

    def graph(self, graph: Graph) -> None:
        for param in graph.params:
            self.require(not param.is_constant, f"the parameter {param.name} is a constant")
        # Dimensions that are a size of any parameter are known to all parameters.
        self._dims.update(d for p in graph.params for d in _bare(p.type))
        for param in graph.params:
            self.define(param)
        for binding in graph.body:
            self._binding = binding
            self.binding(binding)
        self._binding = None
        for result in graph.results:
            self.use(result)

    @contextmanager
    def inside(self) -> Generator[None]:
        values, dims, binding = self._values, self._dims, self._binding
        self._values, self._dims = set(values), set(dims)
        self._depth += 1
        yield
        self._depth -= 1
        self._values, self._dims, self._binding = values, dims, binding

    def binding(self, binding: Binding) -> None:
        for arg in binding.expr.args:
            if arg is not None:
                self.use(arg)
        if self._depth > MAX_NESTING:
            self.fault(f"graphs are nested more than {MAX_NESTING} deep")
            return
        for graph in binding.expr.graphs:
            with self.inside():
                self.graph(graph)
        try:
            _RULES[type(binding.expr)](self, binding.expr, binding)
        except TilewrightError as error:
            self.fault(f"{error.what}: {error.reason}" if error.reason else error.what)
        self._dims.update(d for v in binding.outputs for d in _bare(v.type))
        for output in binding.outputs:
            self.require(not output.is_constant, f"{output.name} is bound, but is a constant")
            self.define(output)

    # ---- values and dimensions ------------------------------------------------------------------

    def define(self, value: Value) -> None:
        self.require(value not in self._defined, f"{value.name} is defined twice")
        self._defined.add(value)
        self._values.add(value)
        self.dims(value.name, dims_of(value.type))

    def use(self, value: Value) -> None:
        if value.constant is None:
            self.require(value in self._values, f"{value.name} is used, but not defined before")
            return
        type_ = value.type
        fits = isinstance(type_, TensorType) and (
            TensorType(type_.dtype, value.constant.shape) == type_
            and type_.dtype.numpy == value.constant.dtype
        )
        held = f"{value.constant.dtype}{list(value.constant.shape)}"
        self.require(fits, f"the constant {value.name} is {held}, not {type_}")

    def dims(self, owner: str, dims: Iterable[Var]) -> None:
        for dim in dims:
            known = dim in self._dims or dim is ANY
            self.require(known, f"{owner} uses the dimension {dim.name}, which nothing defines")

    # ---- one rule per node ----------------------------------------------------------------------

    def call(self, node: Call, binding: Binding) -> None:
        for value in node.attrs.values():
            self.dims(f"an attribute of {node.op.name}", _dims_in(value))
        args, attrs = node.op.bind(node.args, node.attrs)
        self.require(len(args) == len(node.args), f"{node.op.name} lacks operands")
        self.require(attrs.keys() == node.attrs.keys(), f"{node.op.name} lacks attributes")
        self.outputs(node.op.name, node.op.infer(args, attrs), binding)

    def outputs(self, what: str, types: Sequence[Type], binding: Binding) -> None:
        if len(types) != len(binding.outputs):
            self.fault(f"{what} gives {len(types)} results, not {len(binding.outputs)}")
            return
        for value, type_ in zip(binding.outputs, types, strict=True):
            self.require(
                may_be(type_, value.type), f"{value.name} is {value.type}, but {what} gives {type_}"
            )

    def read(self, node: Read, binding: Binding) -> None:
        size = node.value.tensor.size
        self.require(size == len(node.dims), f"{len(node.dims)} dimensions are read from {size}")
        self.require(node.value.dtype.is_integer, "dimensions are read from no integers")
        for dim in node.dims:
            self.require(dim not in self._bound_dims, f"{dim.name} is read twice")
        self._bound_dims.update(node.dims)
        self._dims.update(node.dims)
        self.outputs("read", (), binding)

    def branch(self, node: If, binding: Binding) -> None:
        self.scalar("condition of the branch", node.condition, "bool")
        for graph in node.graphs:
            self.require(not graph.params, "a side of the branch has parameters")
            self.outputs("a side of the branch", [r.type for r in graph.results], binding)

    def loop(self, node: Loop, binding: Binding) -> None:
        if node.trip_count is not None:
            self.scalar("trip count of the loop", node.trip_count, "int64")
        if node.condition is not None:
            self.scalar("condition of the loop", node.condition, "bool")
        count, body = len(node.initial), node.body
        if len(body.params) != 1 + count or len(body.results) < 1 + count:
            self.fault(
                f"a loop carries {count} values, but its body takes {len(body.params) - 1} "
                f"and gives {len(body.results) - 1}"
            )
            return
        self.scalar("first parameter of a loop body", body.params[0], "int64")
        self.scalar("first result of a loop body", body.results[0], "bool")
        state = zip(node.initial, body.params[1:], body.results[1 : 1 + count], strict=True)
        for first, param, result in state:
            for given in (first, result):
                fits = may_be(given.type, param.type)
                self.require(fits, f"a loop carries {param.type}, but is given {given.type}")
        stacked = [TensorType(r.dtype, [ANY, *r.shape]) for r in body.results[1 + count :]]
        self.outputs("the loop", [*(p.type for p in body.params[1:]), *stacked], binding)

    def scalar(self, what: str, value: Value, dtype: str) -> None:
        type_ = value.type
        fits = isinstance(type_, TensorType) and type_.dtype.name == dtype and type_.size == 1
        self.require(fits, f"the {what} is {type_}, not {dtype}[()]")

    def call_function(self, node: CallFunction, binding: Binding) -> None:
        if isinstance(node.callee, str):
            function = self.module[node.callee]
            params = [p.type for p in function.params]
            results = [r.type for r in function.results]
        else:
            type_ = node.callee.type
            if not isinstance(type_, FunctionType):
                self.fault(f"{node.callee.name} is called, but is {type_}")
                return
            params, results = list(type_.params), list(type_.results)
        given = [a.type for a in node.operands]
        visible = () if isinstance(node.callee, str) else self._dims
        self.outputs("the function", instantiate(params, results, given, visible), binding)

    def construct(self, node: Construct, binding: Binding) -> None:
        data = self.data_type(node.data_type)
        fields = data.constructors.get(node.constructor)
        if fields is None:
            self.fault(f"{data.name} has no constructor {node.constructor}")
            return
        instantiate(fields, (), [a.type for a in node.args if a is not None], ())
        self.outputs(node.constructor, [DataType(data.name)], binding)

    def match(self, node: Match, binding: Binding) -> None:
        if not isinstance(node.value.type, DataType):
            self.fault(f"{node.value.name} is matched, but is {node.value.type}")
            return
        data = self.data_type(node.value.type.name)
        odd = set(node.arms) ^ set(data.constructors)
        self.require(not odd, f"a match on {data.name} has arms {sorted(node.arms)}")
        for constructor, graph in node.arms.items():
            fields = data.constructors.get(constructor, ())
            self.require(
                len(fields) == len(graph.params), f"{constructor} has {len(fields)} fields"
            )
            self.outputs(f"the arm {constructor}", [r.type for r in graph.results], binding)

    def data_type(self, name: str) -> DataDef:
        if name not in self.module.data_types:
            raise UserError(f"the module has no data type {name}")
        return self.module.data_types[name]

    def make_tuple(self, node: MakeTuple, binding: Binding) -> None:
        self.outputs("the tuple", [TupleType(v.type for v in node.items)], binding)

    def project(self, node: Project, binding: Binding) -> None:
        type_ = node.value.type
        if not isinstance(type_, TupleType) or not 0 <= node.index < len(type_.items):
            self.fault(f"{node.value.name}: {type_} has no item {node.index}")
            return
        self.outputs("the item", [type_.items[node.index]], binding)

    def closure(self, node: Closure, binding: Binding) -> None:
        graph = node.graph
        type_ = FunctionType([p.type for p in graph.params], [r.type for r in graph.results])
        self.outputs("the closure", [type_], binding)

    def fused(self, node: Fused, binding: Binding) -> None:
        self.require(not node.graph.params, "what is fused has parameters")
        for inner in node.graph.body:
            self.require(isinstance(inner.expr, Call), "what is fused is more than calls")
        self.outputs("what is fused", [r.type for r in node.graph.results], binding)


_RULES: dict[type[Node], Callable[[_Verifier, Any, Binding], None]] = {
    Call: _Verifier.call,
    Read: _Verifier.read,
    MakeTuple: _Verifier.make_tuple,
    Project: _Verifier.project,
    If: _Verifier.branch,
    Loop: _Verifier.loop,
    Closure: _Verifier.closure,
    CallFunction: _Verifier.call_function,
    Construct: _Verifier.construct,
    Match: _Verifier.match,
    Fused: _Verifier.fused,
}


def _bare(type_: Type) -> list[Var]:
    """The dimensions that a type defines: those that are sizes by themselves."""
    if isinstance(type_, TensorType):
        return [d for d in type_.shape if isinstance(d, Var)]
    if isinstance(type_, FunctionType):
        # The dimensions in a function type belong to it.
        return dims_of(type_)
    return [d for p in type_.parts for d in _bare(p)]


def _dims_in(attribute: Any) -> Iterable[Var]:
    return (v for p in attribute_parts(attribute) if isinstance(p, Expr) for v in free_vars(p))
