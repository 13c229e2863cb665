"""Blocks whose formula depends on the position (transforms of Winograd tiles by fixed matrices).

    for i in 6: for x: T[i, x] = X[x] + X[x + 2] if i == 0 else X[x + 1] - X[x + 2] if i == 1 …
    for j in 4: for y: Y[y] = T[y % 4, …] …

Loops over positions are unrolled, so that nothing is selected at run time. A whole tile is computed
at once, one vector wide, and intermediate results between such blocks stay in registers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod
from typing import Final, NamedTuple

from tilewright.ir import (
    Binary,
    Block,
    Const,
    Expr,
    Iter,
    Load,
    Select,
    Var,
    all_exprs,
    free_vars,
    substitute,
)
from tilewright.schedule.error import RefusedError
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import (
    extent_of,
    is_cheap,
    is_injective,
    loops_within,
    operations,
    stores_of,
)
from tilewright.schedule.rules.elementwise import instances, parallelize_outer, vector_lanes
from tilewright.schedule.rules.epilogue import vectorize_tile
from tilewright.schedule.rules.padding import padding_before, place_padding
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: The longest loop over positions that is unrolled.
_FEW: Final = 8
#: Threads take whole images where there are at least this many per core, the first one not counted.
_SHARE: Final = 4


class TransformChain(NamedTuple):
    """Blocks each of which reads the one before, up to the block `end`, cut into tiles."""

    schedule: Schedule
    names: list[str]
    end: str
    #: The loops over tiles, in the order of `end`, and in that of the first block's operand.
    outer: list[Loop]
    in_source_order: list[Loop]
    #: The blocks that pad the first block's operand.
    pads: list[str]
    work: int


class TransformPlan(NamedTuple):
    """The order of the loops over tiles, and which of them are distributed over threads."""

    chain: TransformChain
    outer: list[Loop]
    #: The loops over whole images, where threads take these and pad them themselves.
    images: list[Loop]


def chooses_by_position(block: Block) -> bool:
    """Whether the value of a short loop's variable selects which of several sums is computed."""
    if not is_injective(block) or is_cheap(block) or not block.iters:
        return False
    chosen = _positions(block)
    return bool(chosen) and block.iters[-1].var not in chosen


def _match(s: Schedule, _block: str, target: Target) -> TransformChain | None:
    """The transforms of a function, cut into tiles on a copy of the schedule."""
    names = [b.name for b in s.blocks() if chooses_by_position(s.block_of(b))]
    if not names:
        return None
    for name, user in itertools.pairwise(names):
        if [c.name for c in s.consumers(name)] != [user]:
            raise RefusedError(f"{user} is not the only block that reads the results of {name}")
    users = s.consumers(names[-1])
    end = users[0].name if users else names[-1]
    if len(users) > 1 or not is_injective(s.block_of(end)):
        raise RefusedError(f"several blocks read the results of {names[-1]}")
    work = sum(instances(s.block_of(n)) * operations(s.block_of(n)) for n in names)
    chain, s = [n for n in names if n != end], s.copy()
    outer = cut_tiles(s, chain, end, target)
    ordered, pads = source_order(s, chain, end, outer), padding_before(s, names[0])
    return TransformChain(s, chain, end, outer, ordered, pads, work)


def _plan(chain: TransformChain, target: Target, choices: Choices) -> TransformPlan:
    s, orders = chain.schedule, (chain.in_source_order, chain.outer)
    outer = choices.choose("order", orders if orders[0] != orders[1] else orders[:1])
    images = loops_over_images(s, chain.names, chain.end, outer) if chain.pads else []
    many = _are_enough(s, images, target)
    by_images = choices.choose("by_images", (many, not many) if images else (False,))
    return TransformPlan(chain, outer, images if by_images else [])


def _schedule(s: Schedule, _block: str, plan: TransformPlan, target: Target) -> None:
    """Distribute the loops over tiles, or those over whole images, over threads."""
    chain = plan.chain
    s.restore(chain.schedule)
    s.reorder(*plan.outer)
    if plan.images:
        place_padding(s, chain.pads, plan.images[-1], target)
    parallelize_outer(s, chain.end, target, chain.work, within=plan.images or plan.outer)


POSITIONS = Rule("positions", _match, _plan, _schedule)


def cut_tiles(
    s: Schedule, names: Sequence[str], end: str, target: Target, around: Loop | None = None
) -> list[Loop]:
    """Compute the block `end` in tiles, and for each tile the blocks `names` before it.

    Gives the loops over tiles inside `around`.
    """
    chosen = _positions(s.block_of(end)).union(*(_positions_read(s, n, end) for n in names))
    outer = _cut(s, end, chosen, target, around)
    for name in reversed(names):
        s.set_scope(name, 0, "local")
        vectorize_tile(s, s.compute_at(name, outer[-1]), vector_lanes(s.block_of(name), target))
    return outer


def source_order(s: Schedule, names: Sequence[str], end: str, outer: Sequence[Loop]) -> list[Loop]:
    """The loops over tiles in the order of the first block's operand.

    That operand is read with overlaps, or from many places at once; results are written only once.
    """
    places = _places_in_source(s, names, end, outer)
    return sorted(outer, key=lambda loop: places[loop][0])


def loops_over_images(
    s: Schedule, names: Sequence[str], end: str, outer: Sequence[Loop]
) -> list[Loop]:
    """The outermost loops over tiles of which each iteration reads a different image."""
    places = _places_in_source(s, names, end, outer)
    return list(itertools.takewhile(lambda loop: places[loop][1], outer))


def _are_enough(s: Schedule, loops: Sequence[Loop], target: Target) -> bool:
    """Whether these loops have enough iterations for threads to take whole ones."""
    extents = [s.loop_of(loop).extent for loop in loops]
    count = prod(int(e.value) for e in extents if isinstance(e, Const))
    known = all(isinstance(e, Const) for e in extents)
    return bool(loops) and known and count >= _SHARE * (target.cores - 1)


def _places_in_source(
    s: Schedule, names: Sequence[str], end: str, outer: Sequence[Loop]
) -> dict[Loop, tuple[int, bool]]:
    """For each loop, the dimension of the source (the first block's operand) that it indexes, and
    whether its variable alone is the index there."""
    block, indices = s.block_of(end), indices_of_source(s, names, end)
    pairs = list(zip(block.iters, block.bindings, strict=True))
    found: dict[Loop, tuple[int, bool]] = {}
    for loop in outer:
        own = {it.var for it, binding in pairs if loop.var in free_vars(binding)}
        dims = [k for k, index in enumerate(indices) if own & free_vars(index)]
        found[loop] = (dims[0], indices[dims[0]] in own) if dims else (-1, True)
    return found


def indices_of_source(s: Schedule, names: Sequence[str], end: str) -> Sequence[Expr]:
    """The indices at which the first of `names` reads, in terms of variables of the block `end`."""
    values: dict[Var, Expr] = {}
    indices: Sequence[Expr] = ()
    for name, maker in itertools.zip_longest([end, *reversed(names)], reversed(names)):
        made = None if maker is None else stores_of(s.block_of(maker))[0]
        loads = [e for e in all_exprs(s.block_of(name).body) if isinstance(e, Load)]
        own = next(e for e in loads if made is None or e.buffer is made.buffer)
        indices = [substitute(i, values) for i in own.indices]
        if made is not None:
            pairs = zip(made.indices, indices, strict=True)
            values = {v: index for v, index in pairs if isinstance(v, Var)}
    return indices


def _positions_read(s: Schedule, name: str, reader: str) -> set[Var]:
    """The variables of `reader` that index positions of the block `name`."""
    block, (store,) = s.block_of(name), stores_of(s.block_of(name))
    chosen = _positions(block)
    dims = [k for k, index in enumerate(store.indices) if index in chosen]
    loads = [e for e in all_exprs(s.block_of(reader).body) if isinstance(e, Load)]
    read = [e.indices[k] for e in loads if e.buffer is store.buffer for k in dims]
    return {index for index in read if isinstance(index, Var)}


def _cut(
    s: Schedule, name: str, chosen: set[Var], target: Target, around: Loop | None
) -> list[Loop]:
    """Split loops into those over tiles, which are returned, and those within a tile: positions,
    parts of tiles, and a vector."""
    block, lanes = s.block_of(name), vector_lanes(s.block_of(name), target)
    parts, loops = _parts(block), loops_within(s, name, around)
    outer: list[Loop] = []
    inner: list[Loop] = []
    *others, last = block.iters
    for it in others:
        if it.var not in loops:
            continue
        if it.var in parts:
            tile, within = s.split(loops[it.var], None, parts[it.var])
            outer.append(tile)
            inner.append(within)
        else:
            (inner if it.var in chosen else outer).append(loops[it.var])
    vectors, vector = s.split(loops[last.var], None, min(lanes, extent_of(last) or lanes))
    s.reorder(*outer, vectors, *inner, vector)
    for loop in inner:
        s.unroll(loop)
    s.vectorize(vector)
    return [*outer, vectors]


def _positions(block: Block) -> set[Var]:
    """The variables of short loops that a select compares with a constant."""
    few = {it.var for it in block.iters if _is_short(it)}
    chosen = [e.condition for e in all_exprs(block.body) if isinstance(e, Select)]
    return few.intersection(map(_compared, chosen))


def _is_short(it: Iter) -> bool:
    return 1 < (extent_of(it) or 0) <= _FEW


def _compared(condition: Expr) -> Var | None:
    """The variable that a condition compares with a constant for equality."""
    if not isinstance(condition, Binary) or condition.op != "eq":
        return None
    return condition.a if isinstance(condition.a, Var) and isinstance(condition.b, Const) else None


def _parts(block: Block) -> dict[Var, int]:
    """The variables that indices divide, as in y // 4 and y % 4, and their divisors."""
    found = {_part(e) for e in all_exprs(block.body)}
    both = [p for p in found if p and p[0] == "floordiv" and ("floormod", *p[1:]) in found]
    return {var: length for _, var, length in both}


def _part(e: Expr) -> tuple[str, Var, int] | None:
    if not isinstance(e, Binary) or e.op not in ("floordiv", "floormod"):
        return None
    if not isinstance(e.a, Var) or not isinstance(e.b, Const):
        return None
    return e.op, e.a, int(e.b.value)
