"""Default schedules, for functions without a schedule of their own.

`table` lists the rules in the order in which they are tried; `rule` defines what a rule is. Rules
decide what is fast, primitives check what is correct: where one refuses, the block keeps its loops.

    beforehand        merge_rows, gather_rows, remove_empty, stream, inline
    whole functions   attention, transformed, strips, positions, rows
    products          separate_operands, shift, widen; with instructions: amx, dot, dot_rows
                      (product, packing, available); contraction (its plan, packing, tiles, chunks,
                      panels); steps of scans
    reductions        rows, long_columns, columns, dot_windows
    the rest          shared_places, transpose, elementwise
    used by many      analysis, epilogue, padding, ahead, threads

`gpu/` has the rules for GPUs.
"""

# pyright: reportUnusedImport=false
from tilewright.schedule.rules.elementwise import instances
from tilewright.schedule.rules.products.tiles import packed_columns
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.rules.table import (
    CPU_RULES,
    CPU_RULES_BY_ADDRESS,
    GPU_RULES,
    Table,
    apply_table,
    table_for,
)
