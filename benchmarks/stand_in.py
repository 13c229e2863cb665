"""A stand-in for time: what scheduled loops should cost, by a simple model of a processor.

It is no part of the compiler and knows nothing of what cost models look at: it is the landscape on
which searches are compared with each other, cheaply, and the same on every machine.

    python benchmarks/stand_in.py [--trials 100] [--seeds 3] [--tuners random,ga,gbt]
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.ir import (
    Block,
    Const,
    Expr,
    For,
    Function,
    Stmt,
    Store,
    child_stmts,
    evaluate,
    free_vars,
    loads_in,
    substitute,
    walk,
)
from tilewright.tune.spaces.space import Point, Sample, Space
from tilewright.tune.tuners.table import tuner_of
from tilewright.tune.tuners.tuner import FAILED, Example, TaskHistory

#: Registers, lanes, cores, bytes of caches with cycles for a line from beyond each, and what else
#: costs cycles: an iteration of a loop, a parallel region.
REGISTERS, LANES, CORES = 16, 8, 8
CACHES = ((32 << 10, 4.0), (1 << 20, 14.0), (16 << 20, 60.0))
ITERATION, REGION = 1.0, 4000.0
BATCH = 8


def cost_of(function: Function) -> float:
    """Cycles of all nests of loops, one after the other."""
    return sum(_nest(block, loops) for block, loops in _nests(function.body, ()))


def _nests(stmt: Stmt, loops: tuple[For, ...]) -> Iterator[tuple[Block, tuple[For, ...]]]:
    if isinstance(stmt, Block):
        yield stmt, loops
        return
    inner = (*loops, stmt) if isinstance(stmt, For) else loops
    for child in child_stmts(stmt):
        yield from _nests(child, inner)


def _extent(loop: For) -> int:
    return int(loop.extent.value) if isinstance(loop.extent, Const) else 16


def _nest(block: Block, loops: tuple[For, ...]) -> float:
    count = math.prod(map(_extent, loops))
    vectors = math.prod(_extent(x) for x in loops if x.kind == "vectorized")
    shared = math.prod(_extent(x) for x in loops if x.kind == "parallel")
    lanes = min(LANES, vectors)
    rows = [_strides(indices, shape, block, loops) for indices, shape, _ in _accesses(block)]
    steps = count / lanes
    cycles = steps * (1.0 + _unaligned(rows, loops)) + _overhead(loops) * ITERATION
    cycles += _spills(rows, loops, lanes) * steps
    cycles += sum(_misses(row, loops) for row in rows)
    width = min(CORES, shared)
    # Parts that do not go evenly into cores leave some idle at the end.
    rounds = math.ceil(shared / CORES) * CORES / shared if shared > 1 else 1.0
    return cycles / width * (rounds if width == CORES else 1.0) + (REGION if shared > 1 else 0.0)


def _accesses(block: Block) -> list[tuple[tuple[Expr, ...], tuple[Expr, ...], bool]]:
    found = []
    for store in walk(block.body):
        if isinstance(store, Store):
            found.append((store.indices, store.buffer.shape, True))
            loads = dict.fromkeys(loads_in(store.value))
            found += [(x.indices, x.buffer.shape, False) for x in loads]
    return found


def _strides(
    indices: Sequence[Expr], shape: Sequence[Expr], block: Block, loops: Sequence[For]
) -> list[float]:
    """Elements that an iteration of each loop goes on by."""
    bound = dict(zip((it.var for it in block.iters), block.bindings, strict=True))
    sizes = [int(d.value) if isinstance(d, Const) else 16 for d in shape]
    offset = np.zeros(len(loops) + 1)
    for k, index in enumerate(indices):
        expr = substitute(index, bound)
        if any(True for _ in loads_in(expr)):
            continue
        env: dict[Any, Any] = dict.fromkeys(free_vars(expr), 0)
        for n, loop in enumerate(loops, 1):
            env[loop.var] = (np.arange(len(loops) + 1) == n).astype(np.int64)
        offset += np.broadcast_to(evaluate(expr, env), len(loops) + 1) * math.prod(sizes[k + 1 :])
    return [abs(float(x)) for x in offset[1:] - offset[0]]


def _unaligned(rows: Sequence[Sequence[float]], loops: Sequence[For]) -> float:
    """What gathering vectors costs."""
    inner = [k for k, loop in enumerate(loops) if loop.kind == "vectorized"]
    return sum(4.0 for row in rows for k in inner if row[k] > 1)


def _overhead(loops: Sequence[For]) -> float:
    """Iterations of loops that are neither unrolled nor vectors."""
    done, total = 1, 0
    for loop in loops:
        done *= 1 if loop.kind in ("unrolled", "vectorized") else _extent(loop)
        total += 0 if loop.kind in ("unrolled", "vectorized") else done
    return total


def _spills(rows: Sequence[Sequence[float]], loops: Sequence[For], lanes: int) -> float:
    """Registers that the straight code inside needs beyond those that there are."""
    inner = [k for k, x in enumerate(loops) if x.kind in ("unrolled", "vectorized")]
    held = 0.0
    for row in rows:
        size = math.prod(_extent(loops[k]) for k in inner if row[k])
        held += max(1.0, size / lanes)
    return 0.25 * max(0.0, held - REGISTERS)


def _misses(row: Sequence[float], loops: Sequence[For]) -> float:
    """Cycles for lines of one access that come from beyond each cache."""
    cycles = 0.0
    for size, price in CACHES:
        footprint, lines = 1.0, 1.0
        for loop, stride in zip(reversed(loops), reversed(row), strict=True):
            extent = _extent(loop)
            if stride or 4 * footprint > size:
                fresh = extent if stride >= 16 or not stride else max(1.0, extent * stride / 16)
                lines *= fresh
            footprint *= extent if stride else 1.0
        cycles += lines * price if 4 * footprint > size else 0.0
    return 0.2 * cycles


# ---- searches -----------------------------------------------------------------------------------


def searched(space: Space, name: str, trials: int, seed: int) -> list[float]:
    """The least cost, in that of the default, after each trial of a search."""
    tuner, rng, known = tuner_of(name), Random(seed), TaskHistory()
    base, best, curve = cost_of(space.default.function), 1.0, list[float]()
    texts, looked_at = {space.default.text}, set[Sample]()
    while len(curve) < trials:
        batch: list[Point] = []
        for sample in islice(tuner.samples(space, known, rng), 2000):
            if sample in looked_at or sample in known.ratios:
                continue
            looked_at.add(sample)
            point = space.point(sample)
            if point is not None and point.text not in texts and point.sample not in known.ratios:
                texts.add(point.text)
                batch.append(point)
            if len(batch) >= BATCH:
                break
        if not batch:
            break
        for point in batch:
            ratio = cost_of(point.function) / base
            known.ratios[point.sample] = ratio if ratio < FAILED else FAILED
            known.examples = [*known.examples, Example("task", point.features, ratio)]
            best = min(best, ratio)
            curve.append(best)
    return curve + [best] * (trials - len(curve))


def main() -> None:
    from tuning import MORE

    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tuners", default="random,ga,gbt")
    options = parser.parse_args()
    names = options.tuners.split(",")
    for f in MORE:
        space = tw.tune.automatic().space(f)
        cells = []
        for name in names:
            curves = [searched(space, name, options.trials, s) for s in range(options.seeds)]
            half, full = (
                statistics.median(c[n - 1] for c in curves)
                for n in (options.trials // 2, options.trials)
            )
            cells.append(f"{name} {half:.4f} {full:.4f}")
        print(f"{f.name:24} {space.size:8} samples  " + "   ".join(cells), flush=True)


if __name__ == "__main__":
    main()
