"""`te.scan`: a recurrence along the first axis.

The first elements along the axis come from `init`; each further one from `update`, which reads the
state at earlier steps. All steps are kept, so the result has the shape of the state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.ir import Binary, Const, Expr, Load, Var, loads_in
from tilewright.support.errors import UserError
from tilewright.tensor.te.compute import Compute
from tilewright.tensor.te.tensor import INDEX, Definition, Placeholder, Tensor


class Scan(Definition):
    """A recurrence; `steps` are the computes that run once for each step, in order."""

    kind = "scan"

    def __init__(
        self,
        name: str,
        init: tuple[Tensor, ...],
        updates: tuple[Tensor, ...],
        states: tuple[Tensor, ...],
    ) -> None:
        self.init, self.updates, self.states = init, updates, states
        self.steps = _steps(name, updates, states)
        inner = {*states, *(t for op in self.steps for t in op.outputs)}
        read = dict.fromkeys((*init, *(t for op in self.steps for t in op.inputs)))
        super().__init__(name, (), [t for t in read if t not in inner])
        names = [name] if len(states) == 1 else [f"{name}_{n}" for n in range(len(states))]
        self.outputs = tuple(
            Tensor(n, s.dtype, s.shape, self) for n, s in zip(names, states, strict=True)
        )

    @property
    def within_step(self) -> list[Tensor]:
        """Tensors that are computed within a step, and are not state."""
        updates = set(self.updates)
        return [t for op in self.steps for t in op.outputs if t not in updates]

    @property
    def first(self) -> Expr:
        """The first step that `update` computes."""
        return self.init[0].shape[0]

    @property
    def count(self) -> Expr:
        """How many steps `update` computes."""
        last, first = self.states[0].shape[0], self.first
        if isinstance(last, Const) and isinstance(first, Const):
            return Const(max(0, int(last.value) - int(first.value)), INDEX)
        return last - first


def scan(
    init: Tensor | Sequence[Tensor],
    update: Tensor | Sequence[Tensor],
    state: Tensor | Sequence[Tensor],
    inputs: Iterable[Tensor] | None = None,
    name: str = "scan",
) -> Any:
    """The tensor(s) whose first steps are `init` and whose further steps are `update`.

    `state` is a placeholder that stands for the result inside `update`. Give lists to carry several
    states. Where `inputs` is given, `update` may read nothing else.

        state = te.placeholder((m, n))
        init = te.compute((1, n), lambda _, i: X[0, i])
        update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i])
        total = te.scan(init, update, state)
    """
    single = isinstance(state, Tensor)
    parts = tuple((x,) if isinstance(x, Tensor) else tuple(x) for x in (init, update, state))
    _check_states(name, *parts)
    op = Scan(name, *parts)
    _check_times(op)
    if inputs is not None:
        _check_inputs(op, {*inputs, *op.init})
    return op.outputs[0] if single else op.outputs


def _steps(
    name: str, updates: tuple[Tensor, ...], states: tuple[Tensor, ...]
) -> tuple[Compute, ...]:
    """The definitions between the states and the updates, inputs first."""
    needed, given = {t.op for t in updates}, set(states)
    reads_state: dict[Definition, bool] = {}
    pending = [t.op for t in reversed(updates)]
    while pending:
        op = pending[-1]
        missing = [t.op for t in op.inputs if t.op not in reads_state]
        if op not in reads_state and missing:
            pending.extend(reversed(missing))
            continue
        pending.pop()
        uses = any(t in given or reads_state[t.op] for t in op.inputs)
        reads_state.setdefault(op, uses)
    steps = [op for op, uses in reads_state.items() if uses or op in needed]
    return tuple(_as_step(name, op, states[0].shape[0]) for op in steps)


def _as_step(name: str, op: Definition, extent: Expr) -> Compute:
    if not isinstance(op, Compute):
        raise UserError(
            f"te.scan {name} cannot step through {op.where()}",
            reason="what depends on the state has to be a te.compute",
        )
    if not op.shape or op.shape[0] is not extent:
        raise UserError(
            f"te.scan {name} cannot step through {op.where()}",
            reason=f"its first dimension is not the {extent} steps of the scan",
            remedy="give everything that depends on the state the time as its first dimension",
        )
    return op


def _check_states(
    name: str, init: tuple[Tensor, ...], updates: tuple[Tensor, ...], states: tuple[Tensor, ...]
) -> None:
    if not states or not len(init) == len(updates) == len(states):
        raise UserError(
            f"te.scan {name} has {len(init)} inits, {len(updates)} updates, {len(states)} states",
            remedy="give one of each for every state",
        )
    if len(set(updates)) != len(updates) or len(set(states)) != len(states):
        raise UserError(f"te.scan {name} names a state or an update twice")
    for first, new, old in zip(init, updates, states, strict=True):
        _check_state(name, first, new, old)
    if any(t.shape[0] is not states[0].shape[0] for t in states) or any(
        t.shape[0] is not init[0].shape[0] for t in init
    ):
        raise UserError(f"te.scan {name} has states of different lengths along the first axis")


def _check_state(name: str, init: Tensor, update: Tensor, state: Tensor) -> None:
    if not isinstance(state.op, Placeholder):
        raise UserError(
            f"te.scan {name} has the state {state.name}, which is no placeholder",
            remedy="make it with te.placeholder",
        )
    if not state.ndim:
        raise UserError(f"te.scan {name} has the state {state.name} without a first axis to run on")
    if update.shape != state.shape or init.shape[1:] != state.shape[1:]:
        raise UserError(
            f"te.scan {name} has a state, an init and an update of different shapes",
            reason=f"{state!r}, {init!r}, {update!r}",
            remedy="only the first extent of the init may differ",
        )
    if not init.dtype is update.dtype is state.dtype:
        raise UserError(
            f"te.scan {name} mixes types for the state {state.name}",
            reason=f"state {state.dtype}, init {init.dtype}, update {update.dtype}",
        )


def _check_times(op: Scan) -> None:
    """Elements that a step reads must exist at that step."""
    states, within = set(op.states), set(op.within_step)
    for step in op.steps:
        for load in (load for value in step.values for load in loads_in(value)):
            back = _steps_back(load, step.axes[0])
            if back is not None and load.buffer in states:
                _check_back(op, step, load, back)
            if back and load.buffer in within:
                raise UserError(
                    f"{step.where()} reads `{load}`",
                    reason="only states are kept from one step of a scan to the next",
                    remedy="make it a state, or read it at the step itself",
                )


def _check_back(op: Scan, step: Compute, load: Load, back: int) -> None:
    if back < 1:
        raise UserError(
            f"{step.where()} reads `{load}`",
            reason=f"that step of te.scan {op.name} is not known yet",
            remedy="read the state at an earlier step, as in state[t - 1, …]",
        )
    if isinstance(op.first, Const) and back > op.first.value:
        raise UserError(
            f"{step.where()} reads `{load}`",
            reason=f"that is {back} steps back, but te.scan {op.name} starts with {op.first}",
            remedy=f"give an init of {back} steps",
        )


def _steps_back(load: Load, time: Var) -> int | None:
    """How many steps before `time` is read, where that is evident."""
    index = load.indices[0] if load.indices else None
    if index is time:
        return 0
    if not isinstance(index, Binary) or index.a is not time or not isinstance(index.b, Const):
        return None
    return (
        {"add": -1, "sub": 1}[index.op] * int(index.b.value) if index.op in ("add", "sub") else None
    )


def _check_inputs(op: Scan, allowed: set[Tensor]) -> None:
    for tensor in op.inputs:
        if tensor not in allowed:
            raise UserError(
                f"te.scan {op.name} reads {tensor.name}, which is not among its inputs",
                remedy="list it in inputs=[…], or leave inputs out",
            )
