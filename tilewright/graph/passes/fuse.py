"""Groups calls that become one kernel.

    a = conv2d(x, w)                 def group():
    b = add(a, bias)                     a = conv2d(x, w)
    y = relu(b)              -->         b = add(a, bias)
                                         c = relu(b)
                                         return c
                                     y = fused(group)

Whether calls fuse follows from their loops (`graph.fusion.definitions`): maps join the group that
computes one of their operands, be it a contraction, a reduction or other maps; reductions take in
cheap maps before them. One pass over the bindings: every group has a position at which all of it
can run, and a call joins if its other operands are computed before that position, or if the group
can be moved behind them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, TypeVar, cast

from tilewright.graph.fusion.definitions import Facts, FactTable, LoopKind
from tilewright.graph.fusion.repeated import with_own_copies
from tilewright.graph.fusion.sharing import Joins, is_shared
from tilewright.graph.fusion.tails import is_widening, widening_tail
from tilewright.graph.ir import Binding, Call, Fused, Graph, Module, Read, Value
from tilewright.graph.ir.types import dims_of
from tilewright.graph.layouts.images import count
from tilewright.graph.rewriting.context import Pass, PassContext
from tilewright.graph.rewriting.decisions import Decision, decision_key, joint_key
from tilewright.graph.rewriting.rewrite import all_used, attribute_dims, grouped, users_of
from tilewright.ir import Var
from tilewright.target import Target

AnyGraph = TypeVar("AnyGraph", bound=Graph)
#: Most calls in one group, and highest cost of an element of its result: large groups take long to
#: compile and run out of registers.
MAX_CALLS: Final = 32
MAX_COST: Final = 200
#: Highest cost of maps before a reduction, which recomputes them in each pass over its operand.
_CHEAP_BEFORE: Final = 8
#: From this cost on, maps after a sum of products may be better in a kernel of their own.
_LONG_AFTER: Final = 8
_TOGETHER, _APART = "together", "apart"


def fuse(target: Target) -> Pass:
    """The pass for a machine."""

    def fuse(module: Module) -> Module:
        """The module with calls that make one kernel grouped."""
        limit = int(PassContext.current().option("max_fused_calls", MAX_CALLS))
        setting = _Setting(FactTable(), limit, target)
        return module.map(lambda f: _fused(f, setting))

    return fuse


class _Setting(NamedTuple):
    """What all graphs of a module share."""

    table: FactTable
    limit: int
    target: Target

    def facts_of(self, binding: Binding, joins: Joins) -> Facts:
        """What the loops of a binding do."""
        facts = _facts_of(binding, self.table, joins)
        is_part = facts.kind is LoopKind.MAP and facts.moves and _is_part(binding)
        return facts._replace(kind=LoopKind.INJECTIVE) if is_part and self.chooses else facts

    @property
    def chooses(self) -> bool:
        """Whether a kernel may select, element by element, between several fused computations.
        On GPUs neighbouring threads select alike, and a launch costs more than repeated reads."""
        return self.target.gpu is not None


def _fused(graph: AnyGraph, setting: _Setting) -> AnyGraph:
    graph = cast("AnyGraph", graph.with_([_with_inner(b, setting) for b in graph.body]))
    if setting.chooses:
        joins = Joins(graph)
        own = with_own_copies(graph, lambda b: setting.facts_of(b, joins))
        graph = cast("AnyGraph", graph.with_(own))
    return cast("AnyGraph", graph.with_(_Fuser(graph, setting).run()))


def _with_inner(binding: Binding, setting: _Setting) -> Binding:
    expr = binding.expr
    if not expr.graphs or isinstance(expr, Fused):
        return binding
    graphs = [_fused(g, setting) for g in expr.graphs]
    return Binding(binding.outputs, expr.with_graphs(graphs), binding.origin)


class _Group:
    """Calls that run together, at the position of the binding number `position`."""

    def __init__(self, kind: LoopKind, position: int) -> None:
        self.kind, self.position = kind, position
        self.members: list[int] = []
        self.cost = 0
        self.transposes = False
        #: Whether a call outside reads a result, so that the group cannot be moved any more.
        self.is_read = False


class _Fuser:
    def __init__(self, graph: Graph, setting: _Setting) -> None:
        body = graph.body
        self._graph, self._body, self._limit = graph, body, setting.limit
        self._target, joins = setting.target, Joins(graph)
        self._chooses = setting.chooses
        self._facts = [setting.facts_of(b, joins) for b in body]
        self._makers = {v: b for b in body for v in b.outputs}
        #: Decisions so far: whether the readers of a value are fused with its producer.
        self._borders: dict[Value, bool] = {}
        self._uses = users_of(graph, body)
        self._owner: dict[Value, _Group] = {}
        #: The binding at which each dimension is first known; -1 for those of the parameters.
        self._shown = dict.fromkeys((d for p in graph.params for d in dims_of(p.type)), -1)
        self._groups: list[_Group] = []

    def run(self) -> list[Binding]:
        for index, binding in enumerate(self._body):
            self._place(index, binding)
            for dim in _shown_by(binding):
                self._shown.setdefault(dim, index)
        groups = sorted((g for g in self._groups if g.members), key=lambda g: g.position)
        return [b for g in groups for b in self._bindings(g)]

    # ---- placing one call -----------------------------------------------------------------------

    def _place(self, index: int, binding: Binding) -> None:
        facts = self._facts[index]
        group = self._choose(index, binding, facts)
        if group is None:
            group = _Group(facts.kind, index)
            self._groups.append(group)
        elif not self._is_there(group, binding):
            group.position = index
        self._add(group, [index], facts)
        self._absorb(index, binding, group)
        for value in all_used(binding):
            owner = self._owner.get(value)
            if owner is not None and owner is not group:
                owner.is_read = True

    def _add(self, group: _Group, members: Iterable[int], facts: Facts) -> None:
        group.kind = max(group.kind, facts.kind)
        group.cost += facts.cost
        group.transposes |= facts.transposes
        for index in members:
            group.members.append(index)
            for value in self._body[index].outputs:
                self._owner[value] = group

    def _when(self, value: Value, group: _Group) -> int:
        """The position at which a value is computed; -1 for inputs and for the group's own."""
        owner = self._owner.get(value)
        return -1 if owner is None or owner is group else owner.position

    def _choose(self, index: int, binding: Binding, facts: Facts) -> _Group | None:
        """The group to join, if any: contractions are preferred, then the latest group."""
        if facts.kind >= LoopKind.CONTRACTION or self._is_left_to_reduction(binding):
            return None
        found: list[_Group] = []
        for value in _operands(binding):
            group = self._owner.get(value)
            if group is not None and self._may_join(group, value, binding, facts):
                found.append(group)
        return max(found, key=lambda g: (g.kind, g.position), default=None)

    def _is_left_to_reduction(self, binding: Binding) -> bool:
        """Whether the call widens elements for a single reduction. The reduction can do that as it
        reads them, so that the narrow ones are stored between the two."""
        if not is_widening(binding) or not self._is_private(binding.outputs[0]):
            return False
        (reader,) = self._uses[binding.outputs[0]]
        return reader is not None and self._facts[reader].kind is LoopKind.REDUCTION

    def _may_join(self, group: _Group, value: Value, binding: Binding, facts: Facts) -> bool:
        if group.kind is LoopKind.OPAQUE or group.transposes or facts.transposes:
            return False
        if len(group.members) >= self._limit or group.cost + facts.cost > MAX_COST:
            return False
        fits = _FITS[facts.kind]
        if not fits(self, group, value, binding) or not self._is_ready(group, binding):
            return False
        own = facts.kind is not LoopKind.REDUCTION or group.cost <= _CHEAP_BEFORE
        is_open = self._is_open(group, value, facts)
        return self._goes_with(value, group, binding, own=own) if is_open else own

    def _only_gathers(self, group: _Group) -> bool:
        """Whether the group is a single call that changes a layout by tiles (not on GPUs)."""
        first, *others = group.members
        return self._facts[first].gathers and not others and not self._chooses

    def _is_ready(self, group: _Group, binding: Binding) -> bool:
        """Whether all operands are computed when the group runs, or it can be moved behind them."""
        return self._is_there(group, binding) or not group.is_read

    def _is_there(self, group: _Group, binding: Binding, joining: _Group | None = None) -> bool:
        """Whether a binding's operands and dimensions are known at a group's position."""
        operands = [v for v in _operands(binding) if self._owner.get(v) not in (None, joining)]
        if any(self._when(v, group) >= group.position for v in operands):
            return False
        return all(self._shown.get(d, -1) < group.position for d in _dims_of(binding))

    def map_fits(self, group: _Group, value: Value, binding: Binding) -> bool:
        """A map joins the producer of an operand of its own shape, if only maps read that."""
        if self._only_gathers(group) or any(v.shape != value.shape for v in binding.outputs):
            return False
        return self._only_maps_read(value)

    def _only_maps_read(self, value: Value) -> bool:
        return all(k is not None and self._is_map_of(k, value) for k in self._uses[value])

    def _is_map_of(self, index: int, value: Value) -> bool:
        if self._facts[index].kind is not LoopKind.MAP or self._is_left_to_reduction(
            self._body[index]
        ):
            return False
        return all(v.shape == value.shape for v in self._body[index].outputs)

    def injective_fits(self, group: _Group, value: Value, binding: Binding) -> bool:
        """A rearrangement takes in maps and rearrangements that only it reads."""
        is_alone = len(binding.expr.args) == 1 or self._chooses
        return is_alone and self._is_private(value) and group.kind <= LoopKind.INJECTIVE

    def reduction_fits(self, group: _Group, value: Value, binding: Binding) -> bool:
        """A reduction takes in maps that only it reads, if they are cheap."""
        del binding
        return group.kind is LoopKind.MAP and self._is_private(value)

    def _is_private(self, value: Value) -> bool:
        """Whether exactly one call of this graph reads it, and nothing else."""
        uses = self._uses[value]
        return len(uses) == 1 and None not in uses

    def _absorb(self, index: int, binding: Binding, group: _Group) -> None:
        """Take in the producers of a map's other operands, where only the map reads them: maps, and
        on GPUs rearrangements. Likewise for a rearrangement's operands."""
        most = LoopKind.INJECTIVE if self._chooses else LoopKind.MAP
        if self._facts[index].kind > most or group.members == [index]:
            return
        is_map = self._facts[index].kind is LoopKind.MAP
        for value in _operands(binding):
            other = self._owner.get(value)
            if other is None or other is group or other.is_read:
                continue
            is_whole = not is_map or value.shape == binding.outputs[0].shape
            if other.kind > most:
                self._take_tail(value, other, group, is_whole=is_map and is_whole)
            elif self._fits_into(other, value, group) and is_whole and not other.transposes:
                self._add(group, other.members, Facts(other.kind, other.cost))
                other.members = []

    def _take_tail(self, value: Value, other: _Group, group: _Group, *, is_whole: bool) -> None:
        """Take in the last maps of another kernel that compute an operand of a map, where their
        input is narrower than their result: then the narrow one is stored between the kernels."""
        if other.kind is LoopKind.OPAQUE or not is_whole:
            return
        maps = [k for k in other.members if self._facts[k].kind is LoopKind.MAP]
        made = {self._body[k].outputs[0]: k for k in maps}
        private = {v: self._body[k] for v, k in made.items() if self._is_private(v)}
        tail = [made[b.outputs[0]] for b in widening_tail(value, private)]
        cost = sum(self._facts[k].cost for k in tail)
        has_room = len(group.members) + len(tail) <= self._limit and group.cost + cost <= MAX_COST
        if tail and has_room and all(self._is_there(group, self._body[k]) for k in tail):
            self._add(group, tail, Facts(LoopKind.MAP, cost))
            other.members = [k for k in other.members if k not in tail]
            other.cost -= cost

    def _fits_into(self, other: _Group, value: Value, group: _Group) -> bool:
        if len(group.members) + len(other.members) > self._limit:
            return False
        if group.cost + other.cost > MAX_COST or not self._is_private(value):
            return False
        inside = {v for k in other.members for v in self._body[k].outputs}
        if any(v is not value and not self._stays_inside(v, other) for v in inside):
            return False
        return all(self._is_there(group, self._body[k], other) for k in other.members)

    def _stays_inside(self, value: Value, group: _Group) -> bool:
        return all(k in group.members for k in self._uses[value])

    # ---- fusion decided by measurement ----------------------------------------------------------

    def _is_open(self, group: _Group, value: Value, facts: Facts) -> bool:
        """Whether fusing across this border is worth measuring against not fusing: for a reduction,
        where the maps it recomputes in each pass are neither cheap nor expensive; for a sum of
        products, where an operand of its whole shape or expensive maps follow."""
        if facts.kind is LoopKind.REDUCTION:
            return _CHEAP_BEFORE // 4 < group.cost <= _CHEAP_BEFORE * 4
        maker = self._makers[value]
        if group.kind is not LoopKind.CONTRACTION or self._body[group.members[0]] is not maker:
            return False
        after = self._maps_after(value)
        inside = {value, *(v for k in after for v in self._body[k].outputs)}
        operands = {v for k in after for v in _operands(self._body[k])} - inside
        is_long = sum(self._facts[k].cost for k in after) >= _LONG_AFTER
        return is_long or any(v.shape == value.shape for v in operands)

    def _maps_after(self, value: Value) -> list[int]:
        """In order, the maps that follow a value, for as long as maps alone read each result."""
        found: set[int] = set()
        pending = [value]
        while pending:
            known = pending.pop()
            if self._only_maps_read(known):
                new = {k for k in self._uses[known] if k is not None} - found
                pending += [v for k in new for v in self._body[k].outputs]
                found |= new
        return sorted(found)

    def _goes_with(self, value: Value, group: _Group, binding: Binding, *, own: bool) -> bool:
        """Whether the readers of a value are fused with its producer; `own` is the answer of the
        rules."""
        if value not in self._borders:
            self._borders[value] = self._decided(value, group, binding, own=own)
        return self._borders[value]

    def _decided(self, value: Value, group: _Group, binding: Binding, *, own: bool) -> bool:
        is_sum = group.kind is LoopKind.CONTRACTION
        after = [self._body[k] for k in self._maps_after(value)] if is_sum else [binding]
        before = [self._body[k] for k in group.members]
        keys = [_decision_key(b) for b in (*before, *after)]
        names = [", ".join(dict.fromkeys(map(_operator, part))) for part in (after, before)]
        decision = Decision(
            joint_key("fuse", *keys),
            "fuse",
            f"{names[0]} with {names[1]} to {value.type}",
            (_TOGETHER, _APART) if own else (_APART, _TOGETHER),
            cycles=count(value.shape),
        )
        return PassContext.current().decide(self._target, decision) == _TOGETHER

    # ---- results --------------------------------------------------------------------------------

    def _bindings(self, group: _Group) -> list[Binding]:
        members = [self._body[k] for k in sorted(group.members)]
        if len(members) == 1:
            return members
        own = set(group.members)
        outputs = [
            v
            for b in members
            for v in b.outputs
            if any(k is None or k not in own for k in self._uses[v])
        ]
        return [grouped(members, outputs)] if outputs else []


_FITS = {
    LoopKind.MAP: _Fuser.map_fits,
    LoopKind.INJECTIVE: _Fuser.injective_fits,
    LoopKind.REDUCTION: _Fuser.reduction_fits,
}


def _facts_of(binding: Binding, facts: FactTable, joins: Joins) -> Facts:
    # A call that costs nothing by itself need not be part of a kernel.
    if not isinstance(binding.expr, Call) or is_shared(binding) or joins.is_free(binding):
        return Facts(LoopKind.OPAQUE)
    return facts(binding.expr, [v.type for v in binding.outputs])


def _is_part(binding: Binding) -> bool:
    """Whether the result has another shape than its only operand."""
    operands = _operands(binding)
    return len(operands) == 1 and operands[0].shape != binding.outputs[0].shape


def _decision_key(binding: Binding) -> str:
    assert isinstance(binding.expr, Call)
    return decision_key(binding.expr, [v.type for v in binding.outputs])


def _operator(binding: Binding) -> str:
    assert isinstance(binding.expr, Call)
    return binding.expr.op.name


def _operands(binding: Binding) -> list[Value]:
    return [a for a in dict.fromkeys(binding.expr.args) if a is not None]


def _dims_of(binding: Binding) -> set[Var]:
    """The dimensions that a call and its results mention."""
    return attribute_dims(binding.expr).union(*(dims_of(v.type) for v in binding.outputs))


def _shown_by(binding: Binding) -> Iterable[Var]:
    """The dimensions that may appear here for the first time."""
    if isinstance(binding.expr, Call):
        return ()
    read = binding.expr.dims if isinstance(binding.expr, Read) else ()
    return (*read, *(d for v in binding.outputs for d in dims_of(v.type)))
