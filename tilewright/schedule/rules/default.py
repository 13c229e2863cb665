"""Choose a rule for every block."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilewright.ir import Alloc, Block, Buffer, Function, walk
from tilewright.schedule.rules.amx import plan_amx, schedule_amx
from tilewright.schedule.rules.analysis import (
    GATHERS,
    as_contraction,
    constants_of,
    is_cheap,
    is_conditional,
    is_injective,
    is_reduction,
    is_step,
    is_stepwise,
)
from tilewright.schedule.rules.attention import find_chain, schedule_attention
from tilewright.schedule.rules.columns import schedule_columns, vector_variable
from tilewright.schedule.rules.contraction import schedule_contraction
from tilewright.schedule.rules.contraction_plan import Operands, plan_contraction
from tilewright.schedule.rules.dot import plan_dot, schedule_dot
from tilewright.schedule.rules.dot_rows import plan_dot_rows, schedule_dot_rows
from tilewright.schedule.rules.elementwise import schedule_elementwise, vectorize_innermost
from tilewright.schedule.rules.empty import drop_empty
from tilewright.schedule.rules.long_columns import is_skinny
from tilewright.schedule.rules.positions import chooses_by_position, schedule_positions
from tilewright.schedule.rules.rows import is_total, schedule_rows, schedule_total
from tilewright.schedule.rules.shift import shift_operands
from tilewright.schedule.rules.steps import followers, plan_step, schedule_step, share_out, take_on
from tilewright.schedule.rules.stream import stream_results
from tilewright.schedule.rules.strips import find_strips, schedule_strips
from tilewright.schedule.rules.transformed import find_transformed, schedule_transformed
from tilewright.schedule.rules.transpose import (
    as_turn,
    can_transpose,
    is_thin,
    schedule_thin,
    schedule_transpose,
)
from tilewright.schedule.rules.twofold import part_operands
from tilewright.schedule.rules.widen import widen_operands
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.state import Declined
from tilewright.support.errors import UserError
from tilewright.target import Target


def schedule_by_rules(function: Function, target: Target) -> Function:
    """`function` under the default schedule for `target`."""
    s = Schedule(stream_results(drop_empty(function), target))
    if not s.blocks():
        return function
    taken = _attempt_found(s, find_chain(s, target), schedule_attention, target)
    if taken is None:
        inline_cheap(s)
        taken = _attempt_found(s, find_transformed(s), schedule_transformed, target)
        taken = taken or _attempt_found(s, find_strips(s), schedule_strips, target)
    if taken is not None:
        return _schedule_rest(taken, target)
    choosing = [b.name for b in s.blocks() if chooses_by_position(s.block_of(b))]
    s = (attempt(s, schedule_positions, choosing, target) if choosing else None) or s
    s = _schedule_dots(s, target)
    return _schedule_rest(_schedule_reductions(s, target), target)


def _schedule_rest(s: Schedule, target: Target) -> Function:
    """Vectors and threads for blocks that no other rule has taken."""
    for block in s.blocks():
        if _is_scheduled(s, block.name):
            continue
        if is_injective(s.block_of(block)):
            s = _schedule_independent(s, block.name, target)
        elif is_stepwise(s.block_of(block)):
            s = attempt(s, vectorize_innermost, block.name, target) or s
    return _telling_refusals(s)


def _telling_refusals(s: Schedule) -> Function:
    """The function with a note on blocks that are left with their plain loops, and why."""
    plain = {b.name for b in s.blocks() if not _is_scheduled(s, b.name)}
    told = [str(r) for r in s.declined if not r.block or r.block in plain]
    return s.function.with_attrs(refused=told) if told else s.function


def _schedule_dots(s: Schedule, target: Target) -> Schedule:
    """Products for which the target has an instruction."""
    prepared = widen_operands(shift_operands(part_operands(s.function), target), target)
    if prepared is not s.function:
        declined, s = s.declined, Schedule(prepared)
        s.declined = declined
    rules: list[tuple[Callable[[Block, Target], Any], Callable[..., None]]] = [
        (plan_amx, schedule_amx),
        (plan_dot, schedule_dot),
        (partial(plan_dot_rows, constants=constants_of(s.function)), schedule_dot_rows),
    ]
    for name in [b.name for b in s.blocks()]:
        if all(b.name != name for b in s.blocks()):
            continue  # it went into the product before it
        for plan, rule in rules:
            found = plan(s.block_of(name), target)
            done = None if found is None else attempt(s, rule, name, found, target)
            if done is not None:
                s = done
                break
    return s


def _schedule_reductions(s: Schedule, target: Target) -> Schedule:
    s = _schedule_steps(s, target)
    known = Operands.of(s)
    left = [b for b in s.blocks() if not _is_scheduled(s, b.name)]
    plans = {b.name: plan_contraction(s.block_of(b), target, known) for b in left}
    if not any(plans.values()) and not any(_is_scheduled(s, b.name) for b in s.blocks()):
        by_rows = schedule_rows(s, target)
        if by_rows is not None:
            return by_rows
    for block in s.blocks():
        plan = plans.get(block.name)
        # Constants are packed in the order in which tiles read them: that streams just as well.
        packed = plan is not None and plan.contraction.b.buffer in known.constants
        if plan is not None and (packed or not is_skinny(plan.contraction)):
            s = attempt(s, schedule_contraction, block.name, plan, target) or s
        elif _has_own_loops(s, block.name) and is_total(s, block.name):
            s = attempt(s, schedule_total, block.name, target) or s
        elif _has_own_loops(s, block.name) and vector_variable(s.block_of(block)) is not None:
            s = attempt(s, schedule_columns, block.name, target) or s
    return s


def _schedule_steps(s: Schedule, target: Target) -> Schedule:
    """Products in the steps of a scan."""
    for name in [b.name for b in s.blocks()]:
        plan = plan_step(s.block_of(name), target)
        done = None if plan is None else attempt(s, schedule_step, name, plan)
        if done is None:
            continue
        for follower in followers(done, name):
            done = attempt(done, take_on, name, plan, follower) or done
        s = attempt(done, share_out, name, plan, target) or done
    return s


def _schedule_independent(s: Schedule, name: str, target: Target) -> Schedule:
    block, done = s.block_of(name), None
    turn = as_turn(block) if _has_own_loops(s, name) else None
    if turn is not None and can_transpose(block, turn, target):
        done = attempt(s, schedule_transpose, name, turn, target)
    elif turn is not None and is_thin(block, turn, target):
        done = attempt(s, schedule_thin, name, turn, target)
    # Where sizes are not known, parts of one loop over all of them may not be told apart.
    return (
        done
        or attempt(s, schedule_elementwise, name, target)
        or attempt(s, partial(schedule_elementwise, as_one=False), name, target)
        or s
    )


def _has_own_loops(s: Schedule, name: str) -> bool:
    """Whether a block has one loop for each variable; others were made, or moved, by a rule."""
    return len(s.loops(name)) == len(s.block_of(name).iters)


def attempt(s: Schedule, rule: Callable[..., None], *args: Any) -> Schedule | None:
    """A copy of the schedule with `rule` applied; None where a primitive refuses.

    Rules say what is fast, primitives what is right: a block that a rule does not fit keeps its
    loops, and `inspect --schedule` tells so.
    """
    trial = s.copy()
    try:
        rule(trial, *args)
    except UserError as error:
        name = getattr(rule, "__name__", "rule")
        block = args[0] if args and isinstance(args[0], str) else ""
        s.declined.append(Declined(name, block, str(error).split("\n", 1)[0]))
        return None
    return trial


def _attempt_found(
    s: Schedule, found: Any, rule: Callable[..., None], target: Target
) -> Schedule | None:
    """The same for a rule that takes a whole function, where it has found what it is for."""
    return None if found is None else attempt(s, rule, found, target)


def inline_cheap(s: Schedule) -> None:
    """Fold intermediate results into their uses where that saves memory and costs no arithmetic."""
    constants = constants_of(s.function)
    for ref in s.blocks():
        block = s.block_of(ref)
        if not is_injective(block) or not _is_intermediate(s, block.writes[0].buffer):
            continue
        if chooses_by_position(block):
            continue  # it would be chosen once more for each element that is made of it
        if GATHERS in block.annotations:
            continue  # the copy is what it is for
        uses = [s.block_of(c) for c in s.consumers(ref)]
        if any(map(is_step, uses)) and all(r.buffer in constants for r in block.reads):
            continue  # it is made once for all steps
        heavy = is_conditional(block) and any(map(_reads_often, uses))
        heavy |= _takes_sums_on(s, block) and any(as_contraction(u) is not None for u in uses)
        if (len(uses) == 1 or is_cheap(block)) and not heavy and s.can("compute_inline", ref):
            s.compute_inline(ref)


def _takes_sums_on(s: Schedule, block: Block) -> bool:
    """Whether a block reads what a reduction made."""
    made = {
        w.buffer for b in s.blocks() if is_reduction(s.block_of(b)) for w in s.block_of(b).writes
    }
    return any(r.buffer in made for r in block.reads)


def _reads_often(block: Block) -> bool:
    """Whether an element of an operand is read for many elements of the result."""
    return is_reduction(block) or chooses_by_position(block)


def _is_scheduled(s: Schedule, name: str) -> bool:
    is_tensorized = "tensor_intrin" in s.block_of(name).annotations
    return is_tensorized or any(s.loop_of(loop).kind != "serial" for loop in s.loops(name))


def _is_intermediate(s: Schedule, buffer: Buffer) -> bool:
    return any(isinstance(a, Alloc) and buffer in a.buffers for a in walk(s.function.body))
