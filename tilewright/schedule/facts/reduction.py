"""The parts of a reduction: how its update combines values, and where its init runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tilewright.arith import Ranges, conjuncts
from tilewright.ir import (
    Binary,
    Block,
    Buffer,
    Const,
    DType,
    Expr,
    For,
    Iter,
    Let,
    Load,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    all_exprs,
    free_vars,
    loads_in,
    make_block,
    renew,
    substitute,
)
from tilewright.schedule.edit import fresh_loops, needed, nest
from tilewright.schedule.error import Fault
from tilewright.schedule.facts.proportion import exchanged

_COMBINERS: Final = frozenset("add mul min max and or".split())


# ---- init ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SpatialNest:
    """Copies of the loops that a block's spatial iterators need, without those that only reduce."""

    iters: tuple[Iter, ...]
    bindings: tuple[Expr, ...]
    loops: tuple[For, ...]
    predicate: Expr

    @staticmethod
    def of(block: Block, loops: Sequence[For], ranges: Ranges) -> SpatialNest:
        """`ranges` is what is known outside `loops`, which are around the block."""
        pairs = list(zip(block.iters, block.bindings, strict=True))
        spatial = [(it, value) for it, value in pairs if it.kind != "reduce"]
        used = frozenset[Var]().union(*(free_vars(value) for _, value in spatial))
        dropped = [loop.var for loop in loops if loop.var not in used]
        copies, values = fresh_loops(loops, *dropped)
        for loop in copies:
            ranges = ranges.with_extent(loop.var, loop.extent)
        bindings = tuple(substitute(value, values) for _, value in spatial)
        # An element's first instance is the one where all dropped loops are at 0.
        values |= {var: Const(0, var.dtype) for var in dropped}
        exists = [substitute(c, values) for c in conjuncts(block.predicate)]
        inside = [value < it.extent for (it, _), value in zip(spatial, bindings, strict=True)]
        predicate = needed([*exists, *inside], ranges)
        return SpatialNest(tuple(it for it, _ in spatial), bindings, tuple(copies), predicate)


def init_nest(block: Block, loops: Sequence[For], ranges: Ranges, name: str) -> Stmt:
    """The init of `block` as a separate block, in copies of those of `loops` that it needs."""
    assert block.init is not None
    own = SpatialNest.of(block, loops, ranges)
    made = make_block(
        name, own.iters, own.bindings, block.init, predicate=own.predicate, span=block.span
    )
    # The iterators of the two blocks must differ; the bindings use loop variables and stay.
    return nest(own.loops, renew(made))


def without_init(block: Block) -> Block:
    """Only the update, which now also reads what it accumulates into."""
    known = {region.buffer for region in block.reads}
    loaded = {e.buffer for e in all_exprs(block.body) if isinstance(e, Load)}
    back = [r for r in block.writes if r.buffer in loaded and r.buffer not in known]
    return replace(block, init=None, reads=(*back, *block.reads))


# ---- update -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Update:
    """state = combine(state, value), for one or several buffers at once."""

    stores: tuple[Store, ...]
    #: The values that an instance contributes.
    values: tuple[Expr, ...]
    #: The new states in terms of `lhs` and `rhs`.
    combined: tuple[Expr, ...]
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    #: The values that leave any state unchanged.
    identities: tuple[Expr, ...]

    def apply(self, states: Sequence[Expr], values: Sequence[Expr]) -> list[Expr]:
        """The new states."""
        pairs = [*zip(self.lhs, states, strict=True), *zip(self.rhs, values, strict=True)]
        return [substitute(e, dict(pairs)) for e in self.combined]

    def stored(self, loads: Sequence[Load], values: Sequence[Expr]) -> Stmt:
        """Store the new states in place of `loads`; all are computed before the first store."""
        combined = self.apply(loads, values)
        if len(loads) == 1:
            return Store(loads[0].buffer, loads[0].indices, combined[0])
        names = [Var(f"{old.buffer.name}_next", old.dtype) for old in loads]
        stores = tuple(Store(o.buffer, o.indices, n) for o, n in zip(loads, names, strict=True))
        body: Stmt = Seq(stores)
        for name, value in zip(reversed(names), reversed(combined), strict=True):
            body = Let(name, value, body)
        return body


def recognised_update(block: Block) -> Update | Fault:
    """How the body of a reduction combines its state with new values."""
    unknown = Fault(
        f"the update of block {block.name} is not of the form state = combine(state, value)",
        "combine by +, *, min, max, and, or, or choose between state and value by a select",
        block,
    )
    stores, values = _stores_of(block.body)
    starts = {s.buffer: s.value for s in _stores_of(block.init)[0]} if block.init else {}
    if not stores or any(s.buffer not in starts or s.mask is not None for s in stores):
        return unknown
    states = tuple(Load(s.buffer, s.indices) for s in stores)
    given = [_contribution(v, state, states) for v, state in zip(values, states, strict=True)]
    contributed = [g for g in given if g is not None]
    if len(contributed) != len(values):
        return unknown
    return _abstracted(stores, values, states, contributed, starts) or unknown


def _stores_of(body: Stmt | None) -> tuple[tuple[Store, ...], tuple[Expr, ...]]:
    """The stores of `let … let store … store`, and the stored values with the lets inlined."""
    lets: dict[Var, Expr] = {}
    while isinstance(body, Let):
        lets[body.var] = substitute(body.value, lets)
        body = body.body
    statements = body.statements if isinstance(body, Seq) else (body,)
    stores = tuple(s for s in statements if isinstance(s, Store))
    if len(stores) != len(statements):
        return (), ()
    return stores, tuple(substitute(s.value, lets) for s in stores)


def _contribution(value: Expr, state: Load, states: Sequence[Load]) -> Expr | None:
    """What `value` combines `state` with: the other operand, or the other case of a select."""
    if not isinstance(value, Binary | Select):
        return None
    if isinstance(value, Binary) and value.op not in _COMBINERS:
        return None
    others = [side for side in (value.a, value.b) if side is not state]
    if len(others) != 1 or _touches(others[0], states):
        return None
    return others[0]


def _touches(expr: Expr, states: Sequence[Load]) -> bool:
    buffers = {state.buffer for state in states}
    return any(load.buffer in buffers for load in loads_in(expr))


def _abstracted(
    stores: tuple[Store, ...],
    values: Sequence[Expr],
    states: Sequence[Load],
    contributed: Sequence[Expr],
    starts: dict[Buffer, Expr],
) -> Update | None:
    """The update in terms of variables for states and contributions, if nothing else is needed."""
    lhs = tuple(Var(f"lhs{i}", s.dtype) for i, s in enumerate(states))
    rhs = tuple(Var(f"rhs{i}", s.dtype) for i, s in enumerate(states))
    names: dict[Expr, Expr] = dict(zip(states, lhs, strict=True))
    names |= dict(zip(contributed, rhs, strict=True))
    combined = tuple(exchanged(v, names) for v in values)
    for expr in combined:
        if loads_in(expr) or not free_vars(expr) <= {*lhs, *rhs}:
            return None
    identities = tuple(
        identity_of(v, starts[s.buffer], s.buffer.dtype)
        for v, s in zip(values, stores, strict=True)
    )
    known = tuple(i for i in identities if i is not None)
    if len(known) != len(stores):
        return None
    return Update(stores, tuple(contributed), combined, lhs, rhs, known)


def identity_of(update: Expr, start: Expr, dtype: DType) -> Expr | None:
    """The identity element of this update."""
    if isinstance(update, Binary):
        return Const(_IDENTITIES[update.op](dtype), dtype)
    # A select has no identity of its own: the initial value has to be one.
    return start if isinstance(start, Const) else None


def _lowest(dtype: DType) -> float | int:
    return float("-inf") if dtype.is_float else dtype.min_value


def _highest(dtype: DType) -> float | int:
    return float("inf") if dtype.is_float else dtype.max_value


_IDENTITIES: Final[dict[str, Callable[[DType], float | int]]] = {
    "add": lambda _: 0,
    "mul": lambda _: 1,
    "min": _highest,
    "max": _lowest,
    "and": lambda _: True,
    "or": lambda _: False,
}


def block_is_reduction(block: Block) -> Fault | None:
    if block.init is not None and any(it.kind == "reduce" for it in block.iters):
        return None
    return Fault(f"block {block.name} is no reduction with an init", "choose one that is", block)
