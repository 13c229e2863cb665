"""Blocks that choose what to compute by where they are (transforms of tiles by fixed matrices).

    for i in 6: for x: T[i, x] = X[x] + X[x + 2] if i == 0 else X[x + 1] - X[x + 2] if i == 1 …
    for j in 4: for y: Y[y] = T[y % 4, …] …

The positions are written out, so that nothing is chosen when it runs; all of a tile is computed at
once, one vector wide, with what lies between such blocks in registers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod
from typing import Final

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
    operations,
    stores_of,
)
from tilewright.schedule.rules.elementwise import instances, parallelize_outer, vector_lanes
from tilewright.schedule.rules.epilogue import vectorize_tile
from tilewright.schedule.rules.padding import padding_before, place_padding
from tilewright.schedule.rules.rule import Rule, as_found
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: More positions than this are not written out.
_FEW: Final = 8
#: Images that every core but the first must have for threads to take whole ones.
_SHARE: Final = 4


def chooses_by_position(block: Block) -> bool:
    """Whether some variable of few values says which of several sums is computed."""
    if not is_injective(block) or is_cheap(block) or not block.iters:
        return False
    chosen = _positions(block)
    return bool(chosen) and block.iters[-1].var not in chosen


def _match(s: Schedule, _block: str, _target: Target) -> list[str] | None:
    return [b.name for b in s.blocks() if chooses_by_position(s.block_of(b))] or None


def _schedule(s: Schedule, _block: str, names: list[str], target: Target) -> None:
    """Compute the blocks `names`, each of which reads the one before, tile by tile."""
    for name, user in itertools.pairwise(names):
        if [c.name for c in s.consumers(name)] != [user]:
            raise RefusedError(f"what {name} makes is not for {user} alone")
    users = s.consumers(names[-1])
    end = users[0].name if users else names[-1]
    if len(users) > 1 or not is_injective(s.block_of(end)):
        raise RefusedError(f"what {names[-1]} makes is not taken on by one block")
    work = sum(instances(s.block_of(n)) * operations(s.block_of(n)) for n in names)
    chain = [n for n in names if n != end]
    outer = walk_source(s, chain, end, cut_tiles(s, chain, end, target))
    pads, images = padding_before(s, names[0]), loops_over_images(s, chain, end, outer)
    if pads and _are_enough(s, images, target):
        place_padding(s, pads, images[-1], target)
        outer = images
    parallelize_outer(s, end, target, work, within=outer)


POSITIONS = Rule("positions", _match, as_found, _schedule)


def cut_tiles(
    s: Schedule, names: Sequence[str], end: str, target: Target, around: Loop | None = None
) -> list[Loop]:
    """Compute the block `end` tile by tile, and the blocks `names` before it in each; the loops
    over tiles, of those inside of `around`."""
    chosen = _positions(s.block_of(end)).union(*(_handed_on(s, n, end) for n in names))
    outer = _cut(s, end, chosen, target, around)
    for name in reversed(names):
        s.set_scope(name, 0, "local")
        vectorize_tile(s, s.compute_at(name, outer[-1]), vector_lanes(s.block_of(name), target))
    return outer


def walk_source(s: Schedule, names: Sequence[str], end: str, outer: Sequence[Loop]) -> list[Loop]:
    """Let the loops over tiles walk in the order of what the first block reads: that is read with
    an overlap, or from many places at once, and what is written comes once."""
    places = _places_in_source(s, names, end, outer)
    ordered = sorted(outer, key=lambda loop: places[loop][0])
    s.reorder(*ordered)
    return ordered


def loops_over_images(
    s: Schedule, names: Sequence[str], end: str, outer: Sequence[Loop]
) -> list[Loop]:
    """The outermost loops over tiles, as far as each step has an image of its own to read."""
    places = _places_in_source(s, names, end, outer)
    return list(itertools.takewhile(lambda loop: places[loop][1], outer))


def _are_enough(s: Schedule, loops: Sequence[Loop], target: Target) -> bool:
    """Whether threads can take whole steps of these loops."""
    extents = [s.loop_of(loop).extent for loop in loops]
    count = prod(int(e.value) for e in extents if isinstance(e, Const))
    known = all(isinstance(e, Const) for e in extents)
    return bool(loops) and known and count >= _SHARE * (target.cores - 1)


def _places_in_source(
    s: Schedule, names: Sequence[str], end: str, outer: Sequence[Loop]
) -> dict[Loop, tuple[int, bool]]:
    """Along which dimension of what the first block reads each loop walks, and whether step by
    step."""
    block, indices = s.block_of(end), indices_of_source(s, names, end)
    pairs = list(zip(block.iters, block.bindings, strict=True))
    found: dict[Loop, tuple[int, bool]] = {}
    for loop in outer:
        own = {it.var for it, binding in pairs if loop.var in free_vars(binding)}
        dims = [k for k, index in enumerate(indices) if own & free_vars(index)]
        found[loop] = (dims[0], indices[dims[0]] in own) if dims else (-1, True)
    return found


def indices_of_source(s: Schedule, names: Sequence[str], end: str) -> Sequence[Expr]:
    """Where the first of `names` reads, in the variables of the block `end`."""
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


def _handed_on(s: Schedule, name: str, reader: str) -> set[Var]:
    """The variables of `reader` that say which position of the block `name` it reads."""
    block, (store,) = s.block_of(name), stores_of(s.block_of(name))
    chosen = _positions(block)
    dims = [k for k, index in enumerate(store.indices) if index in chosen]
    loads = [e for e in all_exprs(s.block_of(reader).body) if isinstance(e, Load)]
    read = [e.indices[k] for e in loads if e.buffer is store.buffer for k in dims]
    return {index for index in read if isinstance(index, Var)}


def _cut(
    s: Schedule, name: str, chosen: set[Var], target: Target, around: Loop | None
) -> list[Loop]:
    """Loops over tiles around the loops of one: positions and parts of tiles, then a vector."""
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


def loops_within(s: Schedule, name: str, around: Loop | None) -> dict[Var, Loop]:
    """The loops of a block inside of another, by the variables that they feed."""
    block, loops = s.block_of(name), s.loops(name)
    inside = loops if around is None else loops[loops.index(around) + 1 :]
    pairs = zip(block.iters, block.bindings, strict=True)
    fed = [(it.var, loop) for it, b in pairs for loop in inside if loop.var in free_vars(b)]
    return dict(fed)


def _positions(block: Block) -> set[Var]:
    """The variables of few values that a choice compares with numbers."""
    few = {it.var for it in block.iters if _is_few(it)}
    chosen = [e.condition for e in all_exprs(block.body) if isinstance(e, Select)]
    return few.intersection(map(_compared, chosen))


def _is_few(it: Iter) -> bool:
    return 1 < (extent_of(it) or 0) <= _FEW


def _compared(condition: Expr) -> Var | None:
    """The variable that a condition compares with a number for being equal."""
    if not isinstance(condition, Binary) or condition.op != "eq":
        return None
    return condition.a if isinstance(condition.a, Var) and isinstance(condition.b, Const) else None


def _parts(block: Block) -> dict[Var, int]:
    """The variables that are read in parts, y // 4 and y % 4, and the length of a part."""
    found = {_part(e) for e in all_exprs(block.body)}
    both = [p for p in found if p and p[0] == "floordiv" and ("floormod", *p[1:]) in found]
    return {var: length for _, var, length in both}


def _part(e: Expr) -> tuple[str, Var, int] | None:
    if not isinstance(e, Binary) or e.op not in ("floordiv", "floormod"):
        return None
    if not isinstance(e.a, Var) or not isinstance(e.b, Const):
        return None
    return e.op, e.a, int(e.b.value)
