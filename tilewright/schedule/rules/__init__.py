"""Default schedules, for functions without a schedule of their own.

`table` says which rules there are and in which order they are tried; `rule` what a rule is. Rules
say what is fast, primitives what is right: where one of them refuses, the block keeps its loops.

    beforehand        merge_rows, gather_rows, remove_empty, stream, inline
    whole functions   attention, transformed, strips, positions, rows
    products          separate_operands, shift, widen; with instructions: amx, dot, dot_rows
                      (product, packing, available); contraction (its plan, packing, tiles, chunks,
                      panels); steps of scans
    reductions        rows, long_columns, columns
    the rest          transpose, elementwise
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
