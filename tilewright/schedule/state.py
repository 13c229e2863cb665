"""The state of a schedule: the present function, its tree and its trace."""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any, NamedTuple, Self, cast

from tilewright.ir import Block, For, Function, Var
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit, with_outer_regions
from tilewright.schedule.error import RefusedError, ScheduleError
from tilewright.schedule.handles import (
    BlockLike,
    BlockRef,
    Loop,
    LoopLike,
    Result,
    Sampled,
)
from tilewright.schedule.primitives import find_primitive
from tilewright.schedule.trace import FETCH, BlockName, LoopId, Trace, TraceStep, ValueId
from tilewright.support.errors import UserError, nearest


class Refusal:
    """Why a primitive cannot be applied; false, so that `if s.can(…)` reads well."""

    __slots__ = ("_error",)

    def __init__(self, error: RefusedError) -> None:
        # Most callers only need yes or no: the reason prints the loops, which is slow.
        self._error = error.with_traceback(None)

    @property
    def reason(self) -> str:
        return str(self._error)

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return self.reason


class _Asked(NamedTuple):
    """The edit that `can` computed, reused when the primitive is then applied."""

    tree: Tree
    name: str
    args: tuple[Any, ...]
    options: dict[str, Any]
    edit: Edit

    def is_for(self, tree: Tree, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
        return self.tree is tree and (self.name, self.args, self.options) == (name, args, options)


class Declined(NamedTuple):
    """A rule that did not fit a block, and why; the block is empty for rules of whole functions."""

    rule: str
    block: str
    reason: str

    def __str__(self) -> str:
        return f"{self.rule} of {self.block or 'all'}: {self.reason}"


class ScheduleState:
    """A function under edit; `LoopMethods` and kin add one method per primitive.

    All changes go through `_apply`.
    """

    def __init__(self, function: Function, *, seed: int = 0) -> None:
        self.trace = Trace()
        self.tree = Tree(function)
        self._random = random.Random(seed)
        self._count = 0
        self._loop_ids: dict[Var, LoopId] = {}
        self._values: dict[int, Sampled] = {}
        #: What no longer exists, and the name and number of the step that consumed it.
        self._gone: dict[Var | str, tuple[str, int]] = {}
        self._latest: _Asked | None = None
        #: Rules that were refused, on this schedule and on its copies.
        self.declined: list[Declined] = []

    @property
    def function(self) -> Function:
        """The present function."""
        return self.tree.function

    def copy(self) -> Self:
        """An independent schedule in the same state; handles are valid for both."""
        twin = copy.copy(self)
        twin.trace = self.trace.copy()
        twin._random = random.Random()
        twin._random.setstate(self._random.getstate())
        twin._loop_ids, twin._values = dict(self._loop_ids), dict(self._values)
        twin._gone = dict(self._gone)
        return twin

    def restore(self, saved: Self) -> None:
        """Return to the state of the copy `saved`, but keep the list of refused rules."""
        declined = self.declined
        vars(self).update(vars(saved.copy()))
        self.declined = declined

    def __str__(self) -> str:
        return repr(self.function)

    def __repr__(self) -> str:
        return f"Schedule of {self.function.name} after {len(self.trace)} steps:\n{self}"

    # ---- finding ---------------------------------------------------------------------------------

    def blocks(self) -> tuple[BlockRef, ...]:
        """All blocks in program order."""
        return tuple(BlockRef(name) for name in self.tree.blocks)

    def block(self, name: BlockLike) -> BlockRef:
        """The block of this name."""
        return BlockRef(self._block(name).name)

    def loops(self, block: BlockLike) -> tuple[Loop, ...]:
        """The loops around a block, outermost first, up to the block it is in."""
        return tuple(Loop(f.var) for f in self.tree.loops_above(self._block(block)))

    def all_loops(self) -> tuple[Loop, ...]:
        """Every loop of the function in program order."""
        return tuple(Loop(var) for var in self.tree.loops)

    def loop(self, loop: LoopLike) -> Loop:
        """The loop of this handle, variable or (where it is unambiguous) name."""
        if isinstance(loop, str):
            return self._loop_named(loop)
        return Loop(loop) if isinstance(loop, Var) else loop

    def producers(self, block: BlockLike) -> tuple[BlockRef, ...]:
        """The blocks that write what `block` reads."""
        return tuple(BlockRef(b.name) for b in self.tree.producers(self._block(block)))

    def consumers(self, block: BlockLike) -> tuple[BlockRef, ...]:
        """The blocks that read what `block` writes."""
        return tuple(BlockRef(b.name) for b in self.tree.consumers(self._block(block)))

    def loop_of(self, loop: LoopLike) -> For:
        """The statement of a loop."""
        return self._for(self.loop(loop))

    def block_of(self, block: BlockLike) -> Block:
        """The statement of a block."""
        return self._block(block)

    def can(self, primitive: str, *args: Any, **options: Any) -> bool | Refusal:
        """Whether a primitive could be applied now; if not, a false value that says why.

        Arguments that refer to nothing raise errors here, too.
        """
        find_primitive(primitive)
        trial = self.copy()
        try:
            getattr(trial, primitive)(*args, **options)
        except RefusedError as error:
            return Refusal(error)
        self._latest = trial._latest
        return True

    def _loop_named(self, name: str) -> Loop:
        found = [var for var in self.tree.loops if var.name == name]
        if len(found) == 1:
            return Loop(found[0])
        if found:
            raise UserError(
                f"{len(found)} loops are named {name}",
                remedy="take the loop from loops(block)",
            )
        raise UserError(
            f"there is no loop {name}", remedy=nearest(name, (v.name for v in self.tree.loops))
        )

    def _for(self, loop: Loop) -> For:
        found = self.tree.loops.get(loop.var)
        if found is not None:
            return found
        step = self._gone.get(loop.var)
        reason = f"{step[0]} at step {step[1]} consumed it" if step else "it is of another function"
        known = (v.name for v in self.tree.loops)
        raise ScheduleError(f"loop {loop.name} is gone: {reason}", remedy=nearest(loop.name, known))

    def _block(self, block: BlockLike) -> Block:
        name = block.name if isinstance(block, BlockRef) else block
        found = self.tree.blocks.get(name)
        if found is not None:
            return found
        step = self._gone.get(name)
        what = f"block {name} is gone: {step[0]} at step {step[1]} consumed it" if step else ""
        remedy = nearest(name, self.tree.blocks)
        raise ScheduleError(what or f"there is no block {name}", remedy=remedy)

    # ---- changing --------------------------------------------------------------------------------

    def _apply(self, name: str, *args: Any, **options: Any) -> tuple[Any, ...]:
        """Run a primitive on the present function, record it, and wrap its results."""
        latest = self._latest
        if latest is None or not latest.is_for(self.tree, name, args, options):
            latest = _Asked(self.tree, name, args, options, self._run(name, args, options))
        self._latest, edit = latest, latest.edit
        results = tuple(self._named(r) for r in edit.results)
        self._record(name, args, options, results, edit)
        return results

    def _sample(self, name: str, *args: Any, decision: Any = None, **options: Any) -> Any:
        """Run a primitive that samples: at random, or as `decision` says."""
        chance = {**options, "decision": decision, "source": self._random}
        edit = self._run(name, args, chance)
        results = tuple(self._named(r) for r in edit.results)
        self._record(name, args, options, results, edit)
        return results

    def _run(self, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> Edit:
        actual = [self._resolved(a) for a in args]
        named = {key: self._resolved(value) for key, value in options.items()}
        return find_primitive(name)(self.tree, *actual, **named)

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, Loop):
            return self._for(value)
        if isinstance(value, BlockRef):
            return self._block(value)
        return int(value) if isinstance(value, Sampled) else value

    def _named(self, result: Result) -> Result:
        if isinstance(result, int) and not isinstance(result, bool):
            sampled = Sampled(result, self._count)
            self._values[self._count] = sampled
            self._count += 1
            return sampled
        return result

    def _record(
        self,
        name: str,
        args: tuple[Any, ...],
        options: dict[str, Any],
        results: tuple[Result, ...],
        edit: Edit,
    ) -> None:
        sent = tuple(self._encoded(a) for a in args)
        extra = {key: self._encoded(value) for key, value in options.items()}
        number = len(self.trace)
        self._move(with_outer_regions(edit.function, self.tree), name, number)
        given: tuple[Any, ...] = tuple(self._traced(r) for r in results)
        self.trace.steps.append(TraceStep(name, sent, extra, given, self._encoded(edit.decision)))

    def _move(self, function: Function, name: str, number: int) -> None:
        if function is self.function:
            return
        before, self.tree = self.tree, Tree(function)
        for var in before.loops.keys() - self.tree.loops.keys():
            self._gone[var] = name, number
        for block in before.blocks.keys() - self.tree.blocks.keys():
            self._gone[block] = name, number

    # ---- trace references ------------------------------------------------------------------------

    def _encoded(self, value: Any) -> Any:
        """A value as the trace keeps it."""
        if isinstance(value, Loop):
            return self._loop_id(value.var)
        if isinstance(value, BlockRef):
            return BlockName(value.name)
        if isinstance(value, Sampled):
            known = self._values.get(value.id) is value
            return ValueId(value.id) if known else int(value)
        if isinstance(value, tuple | list):
            return tuple(self._encoded(v) for v in cast(Sequence[Any], value))
        return value

    def _loop_id(self, var: Var) -> LoopId:
        found = self._loop_ids.get(var)
        return found if found is not None else self._fetched(var)

    def _fetched(self, var: Var) -> LoopId:
        """Record how to find a loop that no step made: by its first block, and its depth."""
        loop = self.tree.loops[var]
        block = next(iter(self.tree.blocks_in(loop)), None)
        if block is None:
            place: tuple[Any, ...] = None, list(self.tree.loops).index(var)
        else:
            place = BlockName(block.name), self.tree.loops_above(block).index(loop)
        found = self._new_loop_id(var)
        self.trace.steps.append(TraceStep(FETCH, place, results=(found,)))
        return found

    def _traced(self, result: Result) -> Any:
        """A result as the trace keeps it; a new loop gets its number."""
        if isinstance(result, Loop) and result.var not in self._loop_ids:
            return self._new_loop_id(result.var)
        return self._encoded(result)

    def _new_loop_id(self, var: Var) -> LoopId:
        found = self._loop_ids[var] = LoopId(self._count)
        self._count += 1
        return found

    # ---- replay ----------------------------------------------------------------------------------

    @classmethod
    def from_trace(cls, function: Function, trace: Trace) -> Self:
        """A schedule of `function` after all steps of `trace`."""
        schedule = cls(function)
        known: dict[Any, Any] = {}
        for number, step in enumerate(trace.steps):
            schedule._repeat(number, step, known)
        return schedule

    def _repeat(self, number: int, step: TraceStep, known: dict[Any, Any]) -> None:
        args = [_decoded(a, known, number) for a in step.args]
        options = {key: _decoded(v, known, number) for key, v in step.options.items()}
        try:
            results = self._replay_step(step, args, options)
        except (TypeError, ValueError, AttributeError) as error:
            # A trace comes from a file: wrong types or numbers of arguments are the trace's fault.
            raise UserError(
                f"cannot replay step {number} of the trace, {step.name}",
                reason=f"its arguments do not fit: {error}",
            ) from error
        if len(results) != len(step.results):
            given, recorded = len(results), len(step.results)
            raise UserError(
                f"cannot replay step {number} of the trace, {step.name}",
                reason=f"it gives {given} results, the trace says {recorded}",
            )
        known.update(zip(step.results, results, strict=True))

    def _replay_step(
        self, step: TraceStep, args: list[Any], options: dict[str, Any]
    ) -> tuple[Any, ...]:
        if step.name == FETCH:
            return (self._at(*args),)
        if step.decision is not None:
            return self._sample(step.name, *args, decision=step.decision, **options)
        return self._apply(step.name, *args, **options)

    def _at(self, block: BlockRef | None = None, depth: int = 0) -> Loop:
        loops = self.all_loops() if block is None else self.loops(block)
        if not 0 <= depth < len(loops):
            place = f"block {block.name}" if block else "the function"
            raise UserError(
                f"cannot replay the trace: {place} has {len(loops)} loops, number {depth} is none"
            )
        return loops[depth]


def _decoded(value: Any, known: dict[Any, Any], number: int) -> Any:
    if isinstance(value, LoopId | ValueId):
        if value not in known:
            raise UserError(
                f"cannot replay step {number} of the trace",
                reason=f"no step before it made {value}",
            )
        return known[value]
    if isinstance(value, BlockName):
        return BlockRef(value.name)
    if isinstance(value, tuple):
        return tuple(_decoded(v, known, number) for v in cast(tuple[Any, ...], value))
    return value
