"""How much of tiles, reductions and epilogues is unrolled: as much as helps, and no more code."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright import ops, te
from tilewright.ir import Block, For, evaluate, walk
from tilewright.schedule import Schedule, schedule_by_rules
from tilewright.schedule.rules.epilogue import vectorize_tile


@pytest.mark.parametrize(
    ("rows", "unrolled"), [(7, [7]), (8, [2, 2]), (10, [2, 2]), (4, [2, 2]), (3, [3])]
)
def test_of_ways_to_fill_groups_of_vectors_the_one_with_least_code_is_taken(
    rows: int, unrolled: list[int]
) -> None:
    """Tiles of so many rows of two vectors, in groups of four."""
    x = te.placeholder((rows, 8), "float32", name="X")
    s = Schedule(te.function([x], [te.compute((rows, 8), lambda i, j: te.exp(x[i, j]), name="Y")]))
    vectorize_tile(s, s.loops("Y"), 4, 4)
    loops = [s.loop_of(loop) for loop in s.loops("Y")]
    assert [evaluate(f.extent, {}) for f in loops if f.kind == "unrolled"] == unrolled


def test_reductions_and_epilogues_that_would_be_much_code_stay_loops() -> None:
    """A softmax over 16 elements in tiles of eight vectors: 128 vectors each time."""
    x = te.placeholder((1, 16, 4, 4096), "float32", name="X")
    out = ops.softmax(x, axis=1)
    target = tw.Target.of("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1")
    scheduled = schedule_by_rules(te.function([x], [out], name="f"), target)
    counts = [
        int(np.prod([evaluate(f.extent, {}) for f in around if f.kind == "unrolled"]))
        for b in walk(scheduled.body)
        if isinstance(b, Block)
        for around in [[f for f in walk(scheduled.body) if isinstance(f, For) and b in walk(f)]]
    ]
    assert max(counts) <= 64
