"""merge_online(first, second, greatest)"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, cast

from tilewright.ir import (
    TRUE,
    Binary,
    Block,
    Buffer,
    Expr,
    For,
    Function,
    If,
    Load,
    Seq,
    Stmt,
    Store,
    const,
    make_block,
    map_stmt,
    renew,
    select,
    seq,
    with_inferred_regions,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit, fresh_name, needed, nest, rebind, with_buffers
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.block_facts import buffer_is_intermediate
from tilewright.schedule.facts.dependence import everything_is_in_blocks, parts_meet_in_iterations
from tilewright.schedule.facts.legality import extents_are_equal, loop_is_plain
from tilewright.schedule.facts.online import Following, Power, Sum
from tilewright.schedule.facts.reduction import SpatialNest
from tilewright.schedule.handles import BlockRef, Loop
from tilewright.schedule.stages import new_buffer
from tilewright.schedule.writing import Written, stores_of


def merge_online(tree: Tree, first: For, second: For, greatest: Block) -> Edit:
    """Merge a loop with a later one that reads a maximum which the first one computes.

    In each iteration the second part uses the maximum so far, and the sums so far are rescaled when
    it changes (as in online softmax and attention). Statements between the loops run in each
    iteration if they read what the first loop writes, else before it.

    for i: m = max(m, x[i])                  for i:
    s = 0                           -->          before = m
    for i: s = s + exp(x[i] - m)                 m = max(m, x[i])
                                                 shift = 0 if m == -inf else m
                                                 growth = exp(before - shift)
                                                 s = s * growth
                                                 s = s + exp(x[i] - shift)

    Gives the loop, and the blocks that initialise `m` (where `greatest` joins parts of it) and
    compute `before`, `shift`, `growth` and each rescaled sum.
    """
    check(tree, first, second, greatest)
    made = _made(tree, first, second, greatest)
    assert not isinstance(made, Fault)
    return Edit(made.function, (Loop(first.var), *map(BlockRef, made.names)))


def check(tree: Tree, first: For, second: For, greatest: Block) -> None:
    what = f"cannot merge loops {first.var.name} and {second.var.name} online"
    require(
        tree,
        what,
        loop_is_plain(first),
        loop_is_plain(second),
        everything_is_in_blocks(first),
        everything_is_in_blocks(second),
        _stand_in_a_row(tree, first, second, greatest),
        extents_are_equal(first, second),
    )
    made = _made(tree, first, second, greatest)
    if isinstance(made, Fault):
        return require(tree, what, made)
    after = Tree(made.function)
    meeting = parts_meet_in_iterations(after, after.loops[first.var], made.early, made.carried)
    return require(tree, what, meeting)


def _stand_in_a_row(tree: Tree, first: For, second: For, greatest: Block) -> Fault | None:
    around = tree.parent[first]
    if not isinstance(around, Seq) or tree.parent[second] is not around:
        return Fault("the loops are not in the same row of statements", "", second)
    places = [around.statements.index(s) for s in (first, second)]
    if places[0] >= places[1]:
        return Fault("the second one does not come later", "name the first one first", second)
    inside = around.statements[places[0] : places[1]]
    if any(tree.is_above(s, greatest) for s in inside):
        return None
    return Fault(f"block {greatest.name} is neither in the first nor between them", "", greatest)


# ---- the edit -----------------------------------------------------------------------------------


class _Made(NamedTuple):
    """The function, the new blocks, the blocks of the first part, and the buffers carried from one
    iteration to the next."""

    function: Function
    names: tuple[str, ...]
    early: set[str]
    carried: set[Buffer]


def _made(tree: Tree, first: For, second: For, greatest: Block) -> _Made | Fault:
    store = _maximum(greatest)
    if store is None:
        return Fault(f"block {greatest.name} finds no maximum", "", greatest)
    following = Following(store.buffer)
    for block in tree.blocks_in(second):
        if (fault := following.follow(block)) is not None:
            return fault
    if not following.powers:
        return Fault(f"nothing in the second loop reads {store.buffer.name}", "", second)
    merging = _Merging(tree, first, second, greatest, store)
    return _stay_in_iterations(tree, second, following.buffers) or merging.made(following)


def _stay_in_iterations(tree: Tree, second: For, buffers: Iterable[Buffer]) -> Fault | None:
    """Powers hold for one iteration's maximum: only the second loop may read them."""
    for buffer in buffers:
        for block in tree.readers(buffer):
            if not tree.is_above(second, block):
                return Fault(f"block {block.name} reads {buffer.name} after the loop", "", block)
        if (fault := buffer_is_intermediate(tree, buffer)) is not None:
            return fault
    return None


class _Merging:
    """Builds the merged loop."""

    def __init__(self, tree: Tree, first: For, second: For, greatest: Block, store: Store) -> None:
        self._tree, self._first, self._second = tree, first, second
        self._greatest, self._maximum = greatest, Load(store.buffer, store.indices)
        self._taken = set(tree.blocks)
        self._names: list[str] = []
        around = tree.parent[first]
        assert isinstance(around, Seq)
        self._around = around
        place, end = (around.statements.index(s) for s in (first, second))
        self._between = around.statements[place + 1 : end]

    def made(self, following: Following) -> _Made | Fault:
        tree, first, second, m = self._tree, self._first, self._second, self._maximum
        before, shift, growth = (
            new_buffer(tree, f"{m.buffer.name}_{kind}", m.dtype, m.buffer.shape)
            for kind in ("before", "shift", "growth")
        )
        again, once = self._sorted()
        read = {b for stmt in (first, *again) for b in _touched(tree, stmt)}
        for stmt in once:
            if _written(tree, stmt) & read:
                reason = "what stands between the loops writes what is read before it"
                return Fault(reason, "", stmt)
        start: list[Stmt] = []
        if not tree.is_above(first, self._greatest):
            start.append(self._each("start", m.buffer, const(float("-inf"), m.dtype)))
        power, old, low = next(iter(following.powers.values())), Load(before, m.indices), m.dtype
        lowest = m == const(float("-inf"), low)
        state = [
            self._each("before", before, m),
            self._each("shift", shift, select(lowest, const(0.0, low), m)),
            self._each("growth", growth, power.of(old - Load(shift, m.indices))),
        ]
        scaled = [self._scaled(s, growth) for s in following.sums]
        late = self._second_part(following.powers, shift)
        body = seq(state[0], first.body, *again, *state[1:], *scaled, late)
        merged = replace(first, body=body)
        kept: list[Stmt] = []
        for stmt in self._around.statements:
            if stmt is first:
                kept += [*once, *start, merged]
            elif stmt is not second and stmt not in self._between:
                kept.append(stmt)
        function = with_buffers(tree.replace(self._around, seq(*kept)), before, shift, growth)
        carried = {before, shift, growth, m.buffer, *(s.state.buffer for s in following.sums)}
        early = {b.name for stmt in (first, *again) for b in tree.blocks_in(stmt)}
        return _Made(function, tuple(self._names), early, carried)

    def _sorted(self) -> tuple[list[Stmt], list[Stmt]]:
        """The statements between the loops: those that depend on the first loop, and the rest."""
        changing, again, once = _written(self._tree, self._first), list[Stmt](), list[Stmt]()
        for stmt in self._between:
            if _touched(self._tree, stmt) & changing:
                changing |= _written(self._tree, stmt)
                again.append(stmt)
            else:
                once.append(stmt)
        return again, once

    def _each(self, kind: str, buffer: Buffer, value: Expr) -> Stmt:
        """A nest that stores a value for each element of the maximum."""
        store = Store(buffer, self._maximum.indices, value)
        return self._nest(self._greatest, f"{self._maximum.buffer.name}_{kind}", store)

    def _scaled(self, one: Sum, growth: Buffer) -> Stmt:
        """A sum times its growth; elements padded with zeros may have no maximum."""
        ranges = self._tree.ranges_at(one.block)
        for it in one.block.iters:
            ranges = ranges.with_extent(it.var, it.extent)
        sizes = zip(one.maximum, growth.shape, strict=True)
        exists = needed([index < size for index, size in sizes], ranges)
        factor: Expr = Load(growth, one.maximum)
        if exists is not TRUE:
            factor = select(exists, factor, const(1.0, factor.dtype))
        store = Store(one.state.buffer, one.state.indices, one.state * factor)
        return self._nest(one.block, f"{one.block.name}_scaled", store)

    def _nest(self, like: Block, hint: str, body: Stmt) -> Stmt:
        """A nest of a new block over the elements that another block reduces to."""
        loops = self._tree.loops_above(like)
        own = loops[len(self._tree.loops_above(self._first)) :]
        if own and own[0] in (self._first, self._second):
            own = own[1:]
        ranges = self._tree.ranges_at(own[0] if own else like)
        spatial = SpatialNest.of(like, own, ranges)
        name = fresh_name(hint, self._taken)
        self._taken.add(name)
        self._names.append(name)
        made = make_block(
            name, spatial.iters, spatial.bindings, body, predicate=spatial.predicate, span=like.span
        )
        return nest(spatial.loops, renew(made))

    def _second_part(self, powers: Mapping[Block, Power], shift: Buffer) -> Stmt:
        """The body of the second loop, with powers relative to the maximum so far."""
        first, second, changed = self._first, self._second, dict[Stmt, Stmt]()
        for block, power in powers.items():
            (written,) = cast("list[Written]", stores_of(block))
            value = power.of(power.exponent - Load(shift, power.maximum.indices))
            body = Store(written.buffer, written.indices, value)
            changed[block] = with_inferred_regions(replace(block, body=body))
        body = map_stmt(second.body, changed.get)
        ranges = self._tree.ranges_at(first).with_extent(first.var, first.extent)
        return rebind(body, {second.var: first.var}, ranges)


def _maximum(block: Block) -> Store | None:
    """The store of a block that computes a maximum."""
    body = block.body.then if isinstance(block.body, If) else block.body
    if not isinstance(body, Store) or not isinstance(body.value, Binary) or body.value.op != "max":
        return None
    state = Load(body.buffer, body.indices)
    return body if body.value.a is state or body.value.b is state else None


def _written(tree: Tree, stmt: Stmt) -> set[Buffer]:
    return {r.buffer for block in tree.blocks_in(stmt) for r in block.writes}


def _touched(tree: Tree, stmt: Stmt) -> set[Buffer]:
    blocks = tree.blocks_in(stmt)
    return {r.buffer for block in blocks for r in (*block.reads, *block.writes)}
