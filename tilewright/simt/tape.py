"""Expressions as tapes: lists of steps, each of which computes one node for all lanes.

A step writes the value of its node to a slot. Nodes without loads are computed for all lanes. Loads
are only executed in the lanes that need them, since they may be out of bounds elsewhere: selects,
and the lazy `and` and `or`, create *contexts*, each with its own mask.

Values loaded from uninitialized memory are *unknown*. Computing with them is legal, as in tiles
that extend past an edge, so they are tracked to where they matter (`simt.unknown`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir import Binary, Call, Cast, Const, Expr, Load, Select, Var, operation
from tilewright.simt.error import LaneError
from tilewright.simt.lanes import Array, Mask, in_warp, mask_for, of_threads
from tilewright.simt.unknown import Computed, follow

#: The values of all nodes so far.
Slots = list[Any]
Step = Callable[[Slots], None]
#: Executes a load with these indices in the lanes of a mask; also gives the unknown lanes.
LoadRule = Callable[[Load, list[Array], Mask], tuple[Array, Mask]]
#: A tape: the values of its expressions in the lanes of a mask, and for each the unknown lanes;
#: None for none.
Tape = Callable[[Mask], tuple[list[Array], list[Mask]]]

#: The slots of the statement's mask, and of the unknown loads.
_ACTIVE, _UNKNOWN = 0, 1


@dataclass(frozen=True, eq=False)
class _Context:
    """A context, whose mask is in a slot; `lanes` is the length of vectors in that mask."""

    slot: int
    lanes: int
    parent: _Context | None


def make_tape(
    exprs: Sequence[Expr], env: dict[Var, Array], unknown: dict[Var, Array], loads: LoadRule
) -> Tape:
    """A tape of several expressions; `env` and `unknown` are filled before it runs."""
    writer = _Writer(env, loads)
    results = [writer.expr(e) for e in exprs]
    steps, template, nodes = writer.steps, writer.template, writer.nodes
    variables = {v for e in exprs for v in e.variables}
    all_known: list[Mask] = [None for _ in exprs]

    def run(active: Mask) -> tuple[list[Array], list[Mask]]:
        slots = template.copy()
        slots[_ACTIVE], slots[_UNKNOWN] = active, {}
        for step in steps:
            step(slots)
        values = [slots[k] for k in results]
        found: dict[int, Array] = slots[_UNKNOWN]
        if not found and (not unknown or unknown.keys().isdisjoint(variables)):
            return values, all_known
        follow(nodes, slots, found, unknown)
        return values, [found.get(k) for k in results]

    return run


class _Writer:
    """Writes one tape."""

    def __init__(self, env: dict[Var, Array], loads: LoadRule) -> None:
        self.env, self.loads = env, loads
        self.steps: list[Step] = []
        #: The initial contents of the slots: constants.
        self.template: Slots = [None, None]
        #: The computed nodes, in order.
        self.nodes: list[Computed] = []
        self._all = _Context(_ACTIVE, 1, None)
        self._contexts: dict[tuple[int, bool, _Context], _Context] = {}
        self._slots: dict[tuple[Expr, _Context], int] = {}
        self._loading: dict[Expr, bool] = {}

    def expr(self, root: Expr) -> int:
        """The slot that will hold the value of `root`."""
        pending = [(root, self._all)]
        while pending:
            node, context = pending[-1]
            missing = None if self._slot(node, context) is not None else self._missing(*pending[-1])
            if missing is not None:
                pending.append(missing)
                continue
            pending.pop()
            if self._slot(node, context) is None:
                own = context if self._has_loads(node) else self._all
                self._slots[node, own] = self._write(node, context)
        return self._held(root, self._all)

    def _slot(self, node: Expr, context: _Context) -> int | None:
        """The slot of a node's value, computed in this context or an enclosing one."""
        if not self._has_loads(node):
            return self._slots.get((node, self._all))
        at: _Context | None = context
        while at is not None:
            if (node, at) in self._slots:
                return self._slots[node, at]
            at = at.parent
        return None

    def _held(self, node: Expr, context: _Context) -> int:
        slot = self._slot(node, context)
        assert slot is not None
        return slot

    def _missing(self, node: Expr, context: _Context) -> tuple[Expr, _Context] | None:
        """An operand that has to be computed first."""
        for number, operand in enumerate(node.operands):
            own = self._operand_context(node, number, context)
            if self._slot(operand, own) is None:
                return operand, own
        return None

    def _operand_context(self, node: Expr, number: int, context: _Context) -> _Context:
        """The context of an operand; preceding operands are computed already."""
        if number == 0 or not self._has_loads(node.operands[number]):
            return context
        if isinstance(node, Select):
            wanted = number == 1
        elif isinstance(node, Binary) and node.op in ("and", "or"):
            wanted = node.op == "and"
        else:
            return context
        decides = node.operands[0]
        return self._within(self._held(decides, context), decides.dtype.lanes, wanted, context)

    def _within(self, decides: int, lanes: int, wanted: bool, around: _Context) -> _Context:
        key = decides, wanted, around
        if key not in self._contexts:
            slot = self._new_slot()

            def step(slots: Slots) -> None:
                chosen: Array = slots[decides] if wanted else ~slots[decides]
                mask = mask_for(slots[around.slot], around.lanes, lanes)
                slots[slot] = chosen if mask is None else mask & chosen

            self.steps.append(step)
            self._contexts[key] = _Context(slot, lanes, around)
        return self._contexts[key]

    def _has_loads(self, root: Expr) -> bool:
        known = self._loading
        if root in known:
            return known[root]
        pending = [root]
        while pending:
            node = pending[-1]
            missing = [o for o in node.operands if o not in known] if node not in known else []
            if missing:
                pending.extend(missing)
                continue
            pending.pop()
            known[node] = isinstance(node, Load) or any(known[o] for o in node.operands)
        return known[root]

    # ---- steps ----------------------------------------------------------------------------------

    def _new_slot(self, value: Any = None) -> int:
        self.template.append(value)
        return len(self.template) - 1

    def _write(self, node: Expr, context: _Context) -> int:
        if isinstance(node, Const):
            return self._new_slot(np.array(node.value, dtype=node.dtype.numpy))
        slot = self._new_slot()
        operands = [
            self._held(o, self._operand_context(node, k, context))
            for k, o in enumerate(node.operands)
        ]
        self.nodes.append(Computed(node, slot, tuple(operands), context.slot, context.lanes))
        if isinstance(node, Var):
            self.steps.append(_read_variable(self.env, node, slot))
        elif isinstance(node, Load):
            self.steps.append(self._load(node, operands, context, slot))
        elif isinstance(node, Call) and node.name == "of_lane":
            self.steps.append(_ask(node.dtype.lanes, operands, context, slot))
        else:
            self.steps.append(_compute(node, operands, slot))
        return slot

    def _load(self, node: Load, operands: list[int], context: _Context, slot: int) -> Step:
        count, loads, lanes = len(node.indices), self.loads, node.dtype.lanes
        nothing = np.zeros((), node.dtype.numpy)
        own = [o.dtype.lanes < lanes for o in node.indices]

        def step(slots: Slots) -> None:
            wanted = mask_for(slots[context.slot], context.lanes, lanes)
            indices = [
                np.asarray(slots[k])[..., None] if widen else np.asarray(slots[k])
                for k, widen in zip(operands[:count], own, strict=True)
            ]
            if node.mask is None:
                value, unknown = loads(node, indices, wanted)
            else:
                mask: Array = slots[operands[count]]
                value, unknown = loads(node, indices, mask if wanted is None else wanted & mask)
                value = np.where(mask, value, nothing)
            slots[slot] = value
            if unknown is not None:
                slots[_UNKNOWN][slot] = unknown

        return step


def _ask(lanes: int, operands: list[int], context: _Context, slot: int) -> Step:
    """A shuffle: values of other threads of the warp."""
    value, lane, _ = operands

    def step(slots: Slots) -> None:
        source, active = in_warp(slots[lane]), slots[context.slot]
        if active is not None:
            asked = of_threads(active, source)
            if (active & ~asked).any():
                missing = int(np.argmax(active & ~asked))
                raise LaneError(missing, "the thread that it asks for a value does not take part")
        slots[slot] = of_threads(slots[value], source, lanes)

    return step


def _read_variable(env: dict[Var, Array], var: Var, slot: int) -> Step:
    def step(slots: Slots) -> None:
        slots[slot] = env[var]

    return step


def _compute(node: Expr, operands: list[int], slot: int) -> Step:
    rule = _select(node) if isinstance(node, Select) else operation(node)
    if isinstance(node, Cast | Call):
        # Conversions need arrays, but NumPy gives scalars for arrays without dimensions.
        return _general(rule, operands, slot)
    if len(operands) == 1:
        a = operands[0]

        def unary(slots: Slots) -> None:
            slots[slot] = rule(slots[a])

        return unary
    if len(operands) == 2:
        first, second = operands

        def binary(slots: Slots) -> None:
            slots[slot] = rule(slots[first], slots[second])

        return binary
    return _general(rule, operands, slot)


def _general(rule: Callable[..., Any], operands: list[int], slot: int) -> Step:
    def step(slots: Slots) -> None:
        slots[slot] = np.asarray(rule(*(np.asarray(slots[k]) for k in operands)))

    return step


def _select(node: Select) -> Callable[..., Array]:
    widen = node.condition.dtype.lanes < node.dtype.lanes

    def choose(condition: Array, a: Array, b: Array) -> Array:
        return np.where(condition[..., None] if widen else condition, a, b)

    return choose
