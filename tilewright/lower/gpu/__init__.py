"""Passes for loops that are bound to the threads of a GPU."""

from tilewright.lower.gpu.accesses import access_of
from tilewright.lower.gpu.barriers import place_barriers
from tilewright.lower.gpu.early_reads import read_early
from tilewright.lower.gpu.group_products import (
    fence_operands,
    group_operands,
    swizzle_operands,
    wait_for_products,
)
from tilewright.lower.gpu.launches import (
    OVERLAPS,
    overlap_launches,
    single_threaded,
    split_launches,
)
from tilewright.lower.gpu.merge_launches import MERGED, merge_launches
from tilewright.lower.gpu.pairs import join_pairs
from tilewright.lower.gpu.private import drop_thread_dimensions
from tilewright.lower.gpu.remote import reach_device
from tilewright.lower.gpu.stages import stage_copies

__all__ = [
    "MERGED",
    "OVERLAPS",
    "access_of",
    "drop_thread_dimensions",
    "fence_operands",
    "group_operands",
    "join_pairs",
    "merge_launches",
    "overlap_launches",
    "place_barriers",
    "reach_device",
    "read_early",
    "single_threaded",
    "split_launches",
    "stage_copies",
    "swizzle_operands",
    "wait_for_products",
]
