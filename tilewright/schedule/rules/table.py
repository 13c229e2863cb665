"""The default schedules: the rules, in the order in which they are tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from tilewright.schedule.primitives.blocks.remove_empty import never_runs
from tilewright.schedule.rules.analysis import is_scheduled
from tilewright.schedule.rules.elementwise import ELEMENTWISE, ELEMENTWISE_BY_ROWS, STEPWISE
from tilewright.schedule.rules.gpu.attention.rule import ONE_LAUNCH_ATTENTION
from tilewright.schedule.rules.gpu.columns import COLUMN_SUMS, FEW_ROWS
from tilewright.schedule.rules.gpu.elementwise import ELEMENTS
from tilewright.schedule.rules.gpu.inline import INLINE_CHOICES
from tilewright.schedule.rules.gpu.parts import PARTS
from tilewright.schedule.rules.gpu.products import PRODUCTS, PRODUCTS_ALONE
from tilewright.schedule.rules.gpu.rest import REST
from tilewright.schedule.rules.gpu.results import OUTERMOST, RESULTS, SUMS
from tilewright.schedule.rules.gpu.rows import ROW_SUMS, SHARED_ROWS
from tilewright.schedule.rules.gpu.split_sums import SPLIT_SUMS
from tilewright.schedule.rules.gpu.steps import STEP_PRODUCTS
from tilewright.schedule.rules.gpu.tensor_products import (
    TENSOR_PRODUCTS,
    TENSOR_PRODUCTS_ALONE,
)
from tilewright.schedule.rules.gpu.transposes import TRANSPOSES
from tilewright.schedule.rules.gpu.windows import WINDOWS
from tilewright.schedule.rules.inline import INLINE
from tilewright.schedule.rules.merge_rows import MERGE_ROWS
from tilewright.schedule.rules.products.amx import AMX
from tilewright.schedule.rules.products.attention import ATTENTION
from tilewright.schedule.rules.products.contraction import CONTRACTION
from tilewright.schedule.rules.products.dot import DOT
from tilewright.schedule.rules.products.dot_rows import DOT_ROWS
from tilewright.schedule.rules.products.gather_rows import GATHER_ROWS
from tilewright.schedule.rules.products.separate_operands import SEPARATE_OPERANDS
from tilewright.schedule.rules.products.shift import SHIFT
from tilewright.schedule.rules.products.steps import STEP
from tilewright.schedule.rules.products.widen import WIDEN
from tilewright.schedule.rules.reductions.columns import COLUMNS
from tilewright.schedule.rules.reductions.dot_windows import DOT_WINDOWS
from tilewright.schedule.rules.reductions.long_columns import LONG_COLUMNS
from tilewright.schedule.rules.reductions.rows import ROWS, SINGLE_ROWS, TOTAL
from tilewright.schedule.rules.remove_empty import REMOVE_EMPTY
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.rules.shared_places import SHARED_PLACES
from tilewright.schedule.rules.stream import STREAM
from tilewright.schedule.rules.transpose import THIN_TRANSPOSE, TRANSPOSE
from tilewright.schedule.rules.winograd.positions import POSITIONS
from tilewright.schedule.rules.winograd.strips import STRIPS
from tilewright.schedule.rules.winograd.transformed import TRANSFORMED
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


@dataclass(frozen=True)
class Stage:
    """Alternative rules: the first that applies is used.

    They are tried on the whole function, or on each block in program order that no rule has
    scheduled yet. After a rule of a stage that `ends`, only the last stage of the table follows. A
    stage is skipped for functions none of whose blocks run, unless it is for `all_functions`.
    """

    over: Literal["function", "blocks"]
    rules: tuple[Rule[Any, Any], ...]
    ends: bool = False
    all_functions: bool = False


Table = tuple[Stage, ...]

#: The rules for CPUs, in order.
CPU_RULES: Final[Table] = (
    # Blocks that need no schedule, and results to store past the caches.
    Stage("function", (REMOVE_EMPTY,)),
    Stage("function", (STREAM,)),
    # Whole functions. Attention does its own inlining.
    Stage("function", (ATTENTION,), ends=True),
    Stage("blocks", (INLINE,)),
    Stage("function", (TRANSFORMED, STRIPS), ends=True),
    Stage("function", (POSITIONS,)),
    # Operands in the types, signs and buffers that instructions take; then the instructions.
    Stage("blocks", (SEPARATE_OPERANDS,)),
    Stage("blocks", (SHIFT,)),
    Stage("blocks", (WIDEN,)),
    Stage("blocks", (AMX, DOT, DOT_ROWS, DOT_WINDOWS)),
    # Other products, and reductions. ROWS schedules a whole function or nothing.
    Stage("blocks", (STEP,)),
    Stage("function", (ROWS,)),
    Stage("blocks", (CONTRACTION, TOTAL, SINGLE_ROWS, LONG_COLUMNS, COLUMNS)),
    # The rest.
    Stage("blocks", (SHARED_PLACES,)),
    Stage("blocks", (TRANSPOSE, THIN_TRANSPOSE, ELEMENTWISE, ELEMENTWISE_BY_ROWS, STEPWISE)),
)

#: The same for callers that pass addresses: parameters may change shape over the same memory.
CPU_RULES_BY_ADDRESS: Final[Table] = (
    Stage("function", (MERGE_ROWS,)),
    Stage("blocks", (GATHER_ROWS,)),
    *CPU_RULES,
)

#: The rules for GPUs: the last stage puts everything left into a launch.
GPU_RULES: Final[Table] = (
    Stage("function", (REMOVE_EMPTY,)),
    # It inlines blocks that need no buffer; it leaves other blocks to later rules.
    Stage("function", (ONE_LAUNCH_ATTENTION,)),
    Stage("blocks", (INLINE,)),
    Stage("blocks", (SEPARATE_OPERANDS,)),
    # Before products: everything a scan's step computes of a tile is fused with its product.
    Stage("blocks", (STEP_PRODUCTS,)),
    Stage("blocks", (FEW_ROWS, SPLIT_SUMS)),
    Stage("blocks", (TENSOR_PRODUCTS, TENSOR_PRODUCTS_ALONE, PRODUCTS, PRODUCTS_ALONE)),
    Stage("blocks", (INLINE_CHOICES,)),
    # Reductions: few long ones in parts, blocks that share rows in one launch, or one by one.
    Stage("blocks", (COLUMN_SUMS, PARTS)),
    Stage("blocks", (SHARED_ROWS,)),
    Stage("blocks", (ROW_SUMS, SUMS)),
    Stage("blocks", (TRANSPOSES, ELEMENTS, RESULTS, OUTERMOST)),
    Stage("function", (REST,), all_functions=True),
)

#: The same for callers that pass addresses.
GPU_RULES_BY_ADDRESS: Final[Table] = (
    Stage("function", (MERGE_ROWS,)),
    Stage("blocks", (WINDOWS,)),
    *GPU_RULES,
)


def table_for(target: Target, *, by_address: bool = False) -> Table:
    """The rules for a target's device."""
    if target.kind.device == "gpu":
        return GPU_RULES_BY_ADDRESS if by_address else GPU_RULES
    return CPU_RULES_BY_ADDRESS if by_address else CPU_RULES


def apply_table(s: Schedule, table: Table, target: Target, choices: Choices) -> None:
    """Schedule by the rules of a table."""
    if all(never_runs(s.block_of(b)) for b in s.blocks()):
        table = tuple(stage for stage in table if stage.all_functions)
    if not table:
        return
    *stages, last = table
    for stage in stages:
        if _apply_stage(s, stage, target, choices) and stage.ends:
            break
    _apply_stage(s, last, target, choices)


def _apply_stage(s: Schedule, stage: Stage, target: Target, choices: Choices) -> bool:
    """Whether a rule of the stage applied."""
    if stage.over == "function":
        return _take_first(s, stage.rules, "", target, choices)
    taken = [
        _take_first(s, stage.rules, name, target, choices)
        for name in [b.name for b in s.blocks()]
        if _is_unscheduled(s, name)
    ]
    return any(taken)


def _take_first(
    s: Schedule, rules: tuple[Rule[Any, Any], ...], block: str, target: Target, choices: Choices
) -> bool:
    return any(rule.attempt(s, block, target, choices) for rule in rules)


def _is_unscheduled(s: Schedule, name: str) -> bool:
    """Whether a block still exists (it may have been fused into another) and is not scheduled."""
    return any(b.name == name for b in s.blocks()) and not is_scheduled(s, name)
