"""Default schedules: what a function gets that nobody has scheduled.

`default` chooses among the rules. These say what is fast, primitives what is right: where one of
them refuses, the block keeps its loops.

    whole functions   attention, transformed, strips, positions
    products          contraction (its plan, packing, tiles, chunks, panels), steps of scans;
                      with instructions: dot, dot_rows, amx (product, packing, available)
    reductions        rows, columns, long_columns
    the rest          elementwise, transpose
    beforehand        empty, stream, shift, widen, twofold
    used by many      analysis, epilogue, padding, ahead, threads
"""

# pyright: reportUnusedImport=false
from tilewright.schedule.rules.default import schedule_by_rules
from tilewright.schedule.rules.tiles import packed_columns
