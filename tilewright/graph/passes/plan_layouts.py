"""Chooses layouts for the images of a whole graph, and inserts the conversions between them.

    a = conv(x, w, strides=[2, 2])           a = conv_into_blocked(x, packed w, strides=[2, 2])
    b = relu(a)                              b = relu(a)
    c = conv(b, v)                   -->     c = conv_blocked(b, packed v)
    y = mean(c, axes=[2, 3])                 m = mean(c, axes=[2, 3], keepdims=True)
                                             y = reshape(m)

Operators declare in which layouts they can be computed and at what cost (`graph.layouts.images`);
the plan of least total cost for the graph is taken (`graph.layouts.plan`). Parameters and results
of a graph, and values that inner graphs use, keep the plain layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final, TypeVar, cast

from tilewright.graph.building.builder import Builder
from tilewright.graph.ir import Binding, Call, Graph, Module, Value, all_graphs
from tilewright.graph.ir.types import TensorType
from tilewright.graph.layouts.images import (
    PLAIN,
    Blocking,
    Form,
    blocked_type,
    change_layout,
    count,
)
from tilewright.graph.layouts.last import ChannelsLast
from tilewright.graph.layouts.plan import STATES, Option, PlannedCall, plan
from tilewright.graph.precision.stored import stored_type
from tilewright.graph.rewriting.context import Pass, PassContext
from tilewright.graph.rewriting.decisions import Decision, decision_key, joint_key
from tilewright.support.errors import InternalError
from tilewright.target import Target

AnyGraph = TypeVar("AnyGraph", bound=Graph)
_SLIGHT: Final = 1e-3
#: Forms are worth measuring whose predicted time is at most this multiple of the least.
_TRIED: Final = 1.25
_AS_PLANNED, _ALL_PLAIN = "as planned", "all plain"


def plan_layouts(target: Target) -> Pass:
    """The pass for a machine."""

    def plan_layouts(module: Module) -> Module:
        """The module with images in the layouts that suit the whole of it."""
        convs = _convolutions(module)
        # The best layout of one image depends on all others.
        key = joint_key("plan_layouts", *(decision_key(c, [out]) for c, out in convs))
        blocking = _limited(_blocking(target, convs), convs, key)
        return module if blocking is None else module.map(lambda f: _planned(f, blocking, key))

    return plan_layouts


def _convolutions(module: Module) -> list[tuple[Call, TensorType]]:
    bodies = [g.body for f in module.functions.values() for g in all_graphs(f)]
    calls = [(b.expr, b.outputs) for body in bodies for b in body if isinstance(b.expr, Call)]
    return [(c, outputs[0].tensor) for c, outputs in calls if c.op.name == "conv"]


def _blocking(target: Target, convs: Sequence[tuple[Call, TensorType]]) -> Blocking | None:
    """The layouts for a machine; on GPUs channels last, for products of narrow types or TF32."""
    images = [c.args[0] for c, _ in convs]
    # Of the narrowest elements of images that convolutions read.
    itemsize = min([4, *(x.dtype.itemsize for x in images if x is not None)])
    if target.kind.device == "cpu":
        return Blocking(target, itemsize)
    narrow = stored_type()
    floats = 4 if narrow is None else narrow.itemsize
    itemsize = min(itemsize, floats)
    multiplied = target.gpu is not None and target.gpu.tf32
    return ChannelsLast(target, itemsize, floats=floats) if itemsize <= 2 or multiplied else None


def _limited(
    blocking: Blocking | None, convs: Sequence[tuple[Call, TensorType]], key: str
) -> Blocking | None:
    """The layouts to choose from: all those for the machine, or fewer."""
    if blocking is None or not convs:
        return blocking
    plain = [c.op.plain_cost(blocking, c, out) for c, out in convs]
    others = [[f.cost for f in c.op.forms(blocking, c, out)] for c, out in convs]
    least = sum(min([own, *costs]) for own, costs in zip(plain, others, strict=True))
    narrower = {f"blocks of {w} at most": replace(blocking, widest=w) for w in blocking.widths[1:]}
    ways: dict[str, Blocking | None] = {_AS_PLANNED: blocking, **narrower}
    if sum(plain) <= _TRIED * least:
        ways[_ALL_PLAIN] = None
    subject = f"all {len(convs)} convolutions"
    decision = Decision(key, "plan_layouts", subject, tuple(ways), len(convs), least)
    return ways[PassContext.current().decide(blocking.target, decision)]


def _planned(graph: AnyGraph, blocking: Blocking, key: str) -> AnyGraph:
    body = [_with_inner(b, blocking, key) for b in graph.body]
    problem = _Problem(graph, body, blocking, key)
    if not problem.is_worth_it:
        same = all(a is b for a, b in zip(body, graph.body, strict=True))
        return graph if same else cast("AnyGraph", graph.with_(body))
    limit = int(PassContext.current().option("layout_states", STATES))
    chosen = problem.solve(limit)
    return cast("AnyGraph", graph.with_(_Writer(body, graph.results, chosen, blocking).body()))


def _with_inner(binding: Binding, blocking: Blocking, key: str) -> Binding:
    expr = binding.expr
    if not expr.graphs:
        return binding
    graphs = [_planned(g, blocking, key) for g in expr.graphs]
    return Binding(binding.outputs, expr.with_graphs(graphs), binding.origin)


def used_values(binding: Binding) -> list[Value]:
    """Operands, and values that inner graphs use."""
    found = [a for a in binding.expr.args if a is not None]
    for inner in binding.expr.graphs:
        for graph in all_graphs(inner):
            found += graph.results
            found += [a for b in graph.body for a in b.expr.args if a is not None]
    return list(dict.fromkeys(found))


class _Problem:
    """The graph as numbered values and the forms of its calls."""

    def __init__(self, graph: Graph, body: Sequence[Binding], blocking: Blocking, key: str) -> None:
        self._blocking, self._body, self._key = blocking, body, key
        self._forms = [_forms(b, blocking) for b in body]
        self._numbers: dict[Value, int] = {}
        self._values: list[Value] = []
        self._changes: dict[tuple[int, int, int], float] = {}
        self._results = graph.results
        #: Whether some call that costs anything can be computed in a layout other than plain.
        self.is_worth_it = any(form.cost > 0 for forms in self._forms for form in forms[1:])

    def solve(self, limit: int) -> list[Form | None]:
        """The form for each binding; None where it stays as it is."""
        chosen: list[Form | None] = [None] * len(self._body)
        steps: list[PlannedCall] = []
        taken: list[int] = []
        made: set[Value] = set()
        for index, (binding, forms) in enumerate(zip(self._body, self._forms, strict=True)):
            if forms:
                made.update(binding.outputs)
            elif not made.intersection(used_values(binding)):
                continue
            steps.append(self._step(binding, forms, made))
            taken.append(index)
        steps.append(self._end(made))
        numbers = plan(steps, self._change, limit)
        given = self._given(dict(zip(taken, numbers, strict=False)))
        if given:
            fixed = [_with_only(s, given.get(k)) for s, k in zip(steps, [*taken, -1], strict=True)]
            numbers = plan(fixed, self._change, limit)
        for index, number in zip(taken, numbers, strict=False):
            if number:
                chosen[index] = self._forms[index][number]
        return chosen

    def _given(self, numbers: Mapping[int, int]) -> dict[int, int]:
        """The forms, by number, of bindings whose planned form is overruled by a decision."""
        alike: dict[str, list[int]] = {}
        for index, forms in enumerate(self._forms):
            if any(form.cost > 0 for form in forms[1:]):
                alike.setdefault(self._key_of(index), []).append(index)
        found: dict[int, int] = {}
        for key, group in alike.items():
            taken = self._decided(key, group, numbers)
            found.update((index, taken) for index in group if taken is not None)
        return found

    def _key_of(self, index: int) -> str:
        binding = self._body[index]
        assert isinstance(binding.expr, Call)
        return joint_key(self._key, decision_key(binding.expr, [binding.outputs[0].type]))

    def _decided(self, key: str, group: Sequence[int], numbers: Mapping[int, int]) -> int | None:
        """The form that replaces the planned one for equal calls; None: the plan stays."""
        forms, planned = self._forms[group[0]], list(dict.fromkeys(numbers[k] for k in group))
        named = {str(forms[k]): k for k in [*planned, *self._worth_measuring(group[0], numbers)]}
        # Equal calls may have different plans, as their neighbours differ.
        options = tuple(named) if len(planned) == 1 else (_AS_PLANNED, *named)
        binding, cycles = self._body[group[0]], forms[planned[0]].cost * len(group)
        assert isinstance(binding.expr, Call)
        operands = ", ".join(str(v.type) for v in binding.expr.args if v is not None)
        subject = f"{binding.expr.op.name} of {operands}"
        decision = Decision(key, "plan_layouts", subject, options, len(group), cycles)
        taken = PassContext.current().decide(self._blocking.target, decision)
        return None if taken == decision.default else named[taken]

    def _worth_measuring(self, index: int, numbers: Mapping[int, int]) -> Iterator[int]:
        """The forms of a call that may turn out to be the fastest: the best for each combination of
        plain or blocked image and result. The width of blocks is decided for the whole graph."""
        forms, planned = self._forms[index], self._forms[index][numbers[index]]
        binding, number = self._body[index], self._blocking.number
        value, made = (self._number(v) for v in (binding.expr.args[0], binding.outputs[0]) if v)

        def cost(form: Form) -> float:
            """Includes the conversions of image and result from and to the planned layouts."""
            before = self._change(value, number(planned.operands[0]), number(form.operands[0]))
            return (
                form.cost + before + self._change(made, number(form.result), number(planned.result))
            )

        seen: set[tuple[bool, bool]] = set()
        for k in sorted(range(len(forms)), key=lambda k: cost(forms[k])):
            kind = (forms[k].operands[0] == PLAIN, forms[k].result == PLAIN)
            if kind not in seen and cost(forms[k]) <= _TRIED * planned.cost:
                seen.add(kind)
                yield k

    def _step(self, binding: Binding, forms: Sequence[Form], made: set[Value]) -> PlannedCall:
        if not forms:
            used = [v for v in used_values(binding) if v in made]
            return PlannedCall(None, [Option(tuple((self._number(v), 0) for v in used), 0, 0.0)])
        options = [self._option(binding, form) for form in forms]
        return PlannedCall(self._number(binding.outputs[0]), options)

    def _option(self, binding: Binding, form: Form) -> Option:
        pairs = zip(binding.expr.args, form.operands, strict=True)
        takes = [
            (self._number(v), self._blocking.number(layout))
            for v, layout in pairs
            if v is not None and not v.is_constant
        ]
        return Option(tuple(takes), self._blocking.number(form.result), form.cost)

    def _end(self, made: set[Value]) -> PlannedCall:
        results = [v for v in dict.fromkeys(self._results) if v in made]
        return PlannedCall(None, [Option(tuple((self._number(v), 0) for v in results), 0, 0.0)])

    def _number(self, value: Value) -> int:
        if value not in self._numbers:
            self._numbers[value] = len(self._values)
            self._values.append(value)
        return self._numbers[value]

    def _change(self, value: int, old: int, new: int) -> float:
        key = (value, old, new)
        if key not in self._changes:
            type_, blocking = self._values[value].type, self._blocking
            assert isinstance(type_, TensorType)
            both = (blocking.layout(type_, number) for number in (old, new))
            self._changes[key] = blocking.change(type_, *both)
        return self._changes[key]


def _with_only(step: PlannedCall, number: int | None) -> PlannedCall:
    """A call restricted to one form, if that is given."""
    if number is None:
        return step
    options = [o if k == number else o._replace(cost=inf) for k, o in enumerate(step.options)]
    return step._replace(options=options)


def _forms(binding: Binding, blocking: Blocking) -> list[Form]:
    """The forms of a call, the plain one first; none if it can only be plain."""
    call = binding.expr
    if not isinstance(call, Call) or len(binding.outputs) != 1 or call.op.how != "compute":
        return []
    out = binding.outputs[0].type
    others: list[Form] = call.op.forms(blocking, call, out)
    if not others:
        return []
    # Other things equal, blocks are preferred, to match the convolution before.
    cost = call.op.plain_cost(blocking, call, out) or _SLIGHT * blocking.copy(
        count(binding.outputs[0].shape), binding.outputs[0].dtype
    )
    plain = Form((PLAIN,) * len(call.args), PLAIN, cost, _as_it_is)
    return [plain, *others]


def _as_it_is(builder: Builder, args: Sequence[Value | None]) -> Value:
    raise InternalError("the plain form of a call stays as it is written")


class _Writer:
    """Rewrites the calls into the forms that were chosen."""

    def __init__(
        self,
        body: Sequence[Binding],
        results: Sequence[Value],
        chosen: Sequence[Form | None],
        blocking: Blocking,
    ) -> None:
        self._old, self._results, self._chosen = body, results, chosen
        self._blocking = blocking
        self._made: list[Binding] = []
        #: Each value in all layouts it exists in; in the plain one, it is the value itself.
        self._at: dict[Value, dict[int, Value]] = {}

    def body(self) -> list[Binding]:
        for binding, form in zip(self._old, self._chosen, strict=True):
            if form is None:
                for value in used_values(binding):
                    self._in_layout(value, PLAIN, binding.origin)
                self._made.append(binding)
            else:
                self._write(binding, form)
        for value in self._results:
            self._in_layout(value, PLAIN, "")
        return self._made

    def _write(self, binding: Binding, form: Form) -> None:
        pairs = zip(binding.expr.args, form.operands, strict=True)
        args = [None if a is None else self._in_layout(a, k, binding.origin) for a, k in pairs]
        builder = _builder(binding.origin, args)
        value = binding.outputs[0]
        made = form.emit(builder, args)
        wanted = blocked_type(value.tensor, form.result)
        if made.type != wanted:
            raise InternalError(f"{made} is not {wanted}, the blocked form of {value}")
        made = self._taken(builder, made, value if form.result == PLAIN else None)
        made.name = value.name
        self._at[value] = {form.result: made}

    def _in_layout(self, value: Value, wanted: int, origin: str) -> Value:
        """The value in a layout, converted unless it exists in it already."""
        if not isinstance(value.type, TensorType):
            return value
        held = self._at.setdefault(value, {PLAIN: value})
        if wanted not in held:
            old = min(held, key=lambda k: self._blocking.change(value.tensor, k, wanted))
            builder = _builder(origin, [held[old]])
            made = change_layout(builder, held[old], value.tensor, old, wanted)
            held[wanted] = self._taken(builder, made, value if wanted == PLAIN else None)
        return held[wanted]

    def _taken(self, builder: Builder, made: Value, plain: Value | None) -> Value:
        """The bindings of a builder; their result becomes the value `plain`, where it is given."""
        builder.output(made)
        body = builder.function().body
        if plain is not None:
            *rest, last = body
            assert last.outputs == (made,)
            body = [*rest, Binding((plain,), last.expr, last.origin)]
        self._made += body
        return made if plain is None else plain


def _builder(origin: str, values: Sequence[Value | None]) -> Builder:
    builder = Builder()
    builder.origin = origin
    for value in values:
        if value is not None:
            builder.own(value)
    return builder
