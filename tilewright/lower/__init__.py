"""Lowering: from scheduled blocks to flat loops that a code generator can print.

A back end starts with `flat_loop_passes` and adds the other passes that it needs.
"""

from tilewright.lower.arena import ArenaPlan, arena_plan
from tilewright.lower.formats import native_formats
from tilewright.lower.gpu import (
    MERGED,
    OVERLAPS,
    access_of,
    drop_thread_dimensions,
    fence_operands,
    group_operands,
    join_pairs,
    merge_launches,
    overlap_launches,
    place_barriers,
    read_early,
    single_threaded,
    split_launches,
    stage_copies,
    swizzle_operands,
    wait_for_products,
)
from tilewright.lower.host import lower_host
from tilewright.lower.lanes import group_lanes
from tilewright.lower.math import Arithmetic, expand, expand_angles, expand_math
from tilewright.lower.pipeline import NamedPass, flat_loop_passes, lower
from tilewright.lower.prefetch import place_prefetches, prefetch_next
from tilewright.lower.prepare import Prepared, split_constant_work
from tilewright.lower.quotients import bind_quotients
from tilewright.lower.rounding import expand_rounding
from tilewright.lower.scalarize import scalarize
from tilewright.lower.tiles import place_tiles
from tilewright.lower.unroll import unroll
from tilewright.lower.vectorize import vectorize

__all__ = [
    "MERGED",
    "OVERLAPS",
    "ArenaPlan",
    "Arithmetic",
    "NamedPass",
    "Prepared",
    "access_of",
    "arena_plan",
    "bind_quotients",
    "drop_thread_dimensions",
    "expand",
    "expand_angles",
    "expand_math",
    "expand_rounding",
    "fence_operands",
    "flat_loop_passes",
    "group_lanes",
    "group_operands",
    "join_pairs",
    "lower",
    "lower_host",
    "merge_launches",
    "native_formats",
    "overlap_launches",
    "place_barriers",
    "place_prefetches",
    "place_tiles",
    "prefetch_next",
    "read_early",
    "scalarize",
    "single_threaded",
    "split_constant_work",
    "split_launches",
    "stage_copies",
    "swizzle_operands",
    "unroll",
    "vectorize",
    "wait_for_products",
]
