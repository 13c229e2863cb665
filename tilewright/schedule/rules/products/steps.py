"""Steps of a scan (recurrent networks): a tile of all gates in registers, fused with its consumers.

    for step:
        for direction: for panel of the hidden state (parallel):
            for tile of the panel:
                accumulators = 0
                for the reduction: accumulators += state × weights        all in registers
            cell, state = gates(accumulators)

A step is a product of a few rows, memory-bound on the weights: these are packed in the order in
which they are read, every thread reads the same part at every step, and threads synchronize once
per step. Where a step is too short for that, the two directions of a bidirectional network run in
parallel, one thread each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import NamedTuple

from tilewright.ir import Block, Expr, Iter, Var
from tilewright.schedule.error import RefusedError
from tilewright.schedule.facts.products import is_step
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import (
    Contraction,
    as_contraction,
    constants_of,
    extent_of,
    is_stepwise,
)
from tilewright.schedule.rules.elementwise import outermost
from tilewright.schedule.rules.epilogue import vectorize_tile
from tilewright.schedule.rules.products.tiles import (
    Factors,
    Size,
    Tile,
    rank_tiles,
)
from tilewright.schedule.rules.rule import MOST, Choices, Rule, tried
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: The most elements of a panel, and the fewest panels per thread.
_PANEL, _PANELS = 64, 2
#: Rows of a tile where the batch is known only at run time. Most often it is 1, so tiles are wide:
#: the independent sums of one row hide each other's latency.
_ANY_BATCH = 4


@dataclass(frozen=True)
class StepPlan:
    """The product of a step; gates and hidden state are the last two dimensions of its result.

    A tile holds all gates of a single row, or one gate of several rows. A panel is `tiles` tiles,
    whose gates are all computed before the state.
    """

    contraction: Contraction
    gates: Iter
    hidden: Iter
    tile: Tile
    tiles: int

    @property
    def row(self) -> Iter | None:
        return self.contraction.rows[0] if self.contraction.rows else None

    @property
    def together(self) -> int:
        """How many gates a tile holds."""
        return 1 if self.row is not None else extent_of(self.gates) or 1

    @property
    def width(self) -> int:
        """Elements of the hidden state in a tile."""
        return self.tile.columns // self.together

    def cut(self, s: Schedule, loops: dict[Var, Loop]) -> tuple[list[Loop], list[Loop]]:
        """Loops over panels of the hidden state, and over the tiles, vectors and lanes of a panel.

        All other loops stay outside.
        """
        lanes = self.tile.lanes
        hidden = loops.pop(self.hidden.var)
        panels, *inner = s.split(hidden, None, self.tiles, self.width // lanes, lanes)
        return [*loops.values(), panels], inner


class GateProduct(NamedTuple):
    """The product of a step, its gates, and the hidden state."""

    contraction: Contraction
    gates: Iter
    hidden: Iter


def _match(s: Schedule, name: str, target: Target) -> GateProduct | None:
    """A block that is the product of a step of a scan."""
    block = s.block_of(name)
    c = as_contraction(block) if is_step(block) else None
    if c is None or len(c.reduced) != 1 or len(c.rows) > 1:
        return None
    gates, hidden = ([it for it in block.iters if it.var is i] for i in c.out.indices[-2:])
    if not gates or not hidden or not {*c.columns} <= {gates[0], hidden[0]}:
        return None
    found, dtype = GateProduct(c, gates[0], hidden[0]), c.out.buffer.dtype
    if any(extent_of(it) is None for it in (found.hidden, found.gates, c.reduced[0])):
        return None
    is_vector = dtype.is_float and target.lanes(dtype) >= 2
    return found if is_vector and c.b.step(found.hidden.var) == 1 else None


def _plan(found: GateProduct, target: Target, choices: Choices) -> StepPlan:
    c, size = found.contraction, extent_of(found.hidden) or 1
    tiles = _tiles(c, extent_of(found.gates) or 1, size, target)
    tile = choices.choose("tile", tiles[:MOST])
    panels = _tiles_of_a_panel(tile, size, target) if c.rows else [1]
    return StepPlan(*found, tile, choices.choose("panel", panels))


def _tiles(c: Contraction, gates: int, hidden: int, target: Target) -> list[Tile]:
    dtype, depth = c.out.buffer.dtype, c.reduced[0]
    near = c.a.step(depth.var) == 1 and (extent_of(depth) or 0) % target.lanes(dtype) == 0
    factors: Factors = "depth" if near else "broadcast"
    if c.rows:
        rows = extent_of(c.rows[0]) or _ANY_BATCH
        size = Size(rows, hidden, extent_of(depth))
        return rank_tiles(target, dtype, size, factors, block=hidden)
    size = Size(1, hidden * gates, extent_of(depth))
    return rank_tiles(target, dtype, size, factors, together=gates)


def _tiles_of_a_panel(tile: Tile, hidden: int, target: Target) -> list[int]:
    """Candidate numbers of tiles in a panel, the largest first: rows are read and written by whole
    lines, and every thread gets panels."""
    most = min(_PANEL, hidden // (_PANELS * target.cores)) // tile.columns
    return [n for n in range(most, 0, -1) if hidden % (n * tile.columns) == 0] or [1]


# ---- the schedule -------------------------------------------------------------------------------


def _schedule(s: Schedule, name: str, step: StepPlan, target: Target) -> None:
    """Cut the product `name` into tiles, and fuse the later blocks of the step into its panels."""
    _schedule_product(s, name, step)
    for follower in _followers(s, name):
        tried(s, "step_follower", follower, partial(_fuse_follower, s, name, step, follower))
    tried(s, "step_threads", name, lambda: _parallelize(s, name, step, target))


STEP = Rule("step", _match, _plan, _schedule)


def _schedule_product(s: Schedule, name: str, step: StepPlan) -> None:
    _pack(s, name, step)
    kept = s.cache_write(name, 0, "local").name
    loops = _loops_by_variable(s, name)
    gates = loops.pop(step.gates.var)
    depth, steps = _cut_depth(s, loops.pop(step.contraction.reduced[0].var), step.tile)
    row_tiles, rows = [], []
    if step.row is not None:
        row_tiles, rows = ([x] for x in s.split(loops.pop(step.row.var), None, step.tile.rows))
    outer, (tiles, vectors, lanes) = step.cut(s, loops)
    before, within = ([gates], []) if rows else ([], [gates])
    outer += [*before, tiles, *row_tiles]
    s.reorder(*outer, *depth, *steps, *rows, *within, vectors, lanes)
    for loop in (*steps, *rows, *within, vectors):
        s.unroll(loop)
    s.vectorize(lanes)
    vectorize_tile(s, s.reverse_compute_at(kept, outer[-1]), step.tile.lanes)


def _followers(s: Schedule, name: str) -> list[str]:
    """The blocks of the same step that follow the product, in order."""
    names = [b.name for b in s.blocks()]
    after = names[names.index(name) + 1 :]
    return [n for n in after if is_stepwise(s.block_of(n))]


def _fuse_follower(s: Schedule, name: str, step: StepPlan, follower: str) -> None:
    """Compute `follower` in the product's loops over panels; refused where it needs results of
    other panels."""
    mine = _panel_loops(s, name, step)
    own = _spatial(s.block_of(follower))
    wanted = [it for it in _spatial(s.block_of(name)) if it is not step.gates]
    if [it.extent for it in own] != [it.extent for it in wanted]:
        raise RefusedError(f"cannot compute block {follower} in the panels of {name}")
    loops = _loops_by_variable(s, follower)
    pairs = {it.var: loops[other.var] for it, other in zip(wanted, own, strict=True)}
    rows = [] if step.row is None else [pairs.pop(step.row.var)]
    outer, (tiles, vectors, lanes) = step.cut(s, pairs)
    s.reorder(*outer, *rows, tiles, vectors, lanes)
    for first, second in zip(mine, outer, strict=True):
        s.merge(first, second)
    s.unroll(vectors)
    s.vectorize(lanes)


def _parallelize(s: Schedule, name: str, step: StepPlan, target: Target) -> None:
    """Distribute panels over threads. These synchronize at every step, so each step must be worth
    it by itself; if only all steps together are, each thread takes a whole direction."""
    iters = s.block_of(name).iters
    work = prod(extent_of(it) or 1 for it in iters if it.kind != "ordered")
    least = target.timing.fork_cycles * target.fma_ports * step.tile.lanes
    if target.cores < 2:
        return
    if work >= least:
        chosen = outermost(s, _panel_loops(s, name, step), target.cores * 2)
        panels = s.fuse(*chosen) if len(chosen) > 1 else chosen[0]
        s.parallel(panels)
        # Each step begins with the weights that the previous one read last.
        s.annotate(panels, "back_and_forth", 1)
    elif work * (extent_of(iters[0]) or least) >= least:
        _separate_directions(s, name)


def _separate_directions(s: Schedule, name: str) -> None:
    """Give each direction, with all of its steps, a thread."""
    steps, directions, *_ = s.loops(name)
    if extent_of(_spatial(s.block_of(name))[0]) != 1:
        s.reorder(directions, steps)
        s.parallel(directions)


def _panel_loops(s: Schedule, name: str, step: StepPlan) -> tuple[Loop, ...]:
    """The product's loops over panels of the hidden state, inside the loop over steps."""
    count = sum(it not in (step.gates, step.row) for it in _spatial(s.block_of(name)))
    return s.loops(name)[1 : 1 + count]


def _spatial(block: Block) -> list[Iter]:
    return [it for it in block.iters if it.kind == "spatial"]


def _loops_by_variable(s: Schedule, name: str) -> dict[Var, Loop]:
    """The loops of a block that is not scheduled yet, without the one over steps."""
    iters = s.block_of(name).iters
    pairs = zip(iters, s.loops(name), strict=True)
    return {it.var: loop for it, loop in pairs if it.kind != "ordered"}


def _cut_depth(s: Schedule, loop: Loop, tile: Tile) -> tuple[list[Loop], list[Loop]]:
    """Unroll neighbouring steps of the reduction where lanes hold them."""
    if tile.factors != "depth":
        return [loop], []
    outer, inner = s.split(loop, None, tile.lanes)
    return [outer], [inner]


def _pack(s: Schedule, name: str, step: StepPlan) -> None:
    """Pack constant weights in the order in which tiles read them."""
    weights, constants = step.contraction.b.buffer, constants_of(s.function)
    makers = [b for b in s.producers(name) if s.block_of(b).writes[0].buffer is weights]
    if not makers or not all(r.buffer in constants for r in s.block_of(makers[0]).reads):
        return
    width, has_rows = step.width, step.row is not None

    def blocked(d: Expr, k: Expr, gate: Expr, j: Expr) -> tuple[Expr, ...]:
        inner = (gate, k) if has_rows else (k, gate)
        return d, j // width, *inner, j % width

    s.transform_layout(makers[0], 0, blocked)
