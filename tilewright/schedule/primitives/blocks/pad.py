"""pad(block, factors)"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tilewright.arith import prove, prove_equal, simplify
from tilewright.ir import (
    TRUE,
    Binary,
    Block,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Iter,
    Load,
    Stmt,
    Store,
    Var,
    all_exprs,
    all_of,
    const,
    free_vars,
    make_block,
    select,
    seq,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit, fresh_name, nest, with_buffers
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.block_facts import (
    block_has_no_effects,
    block_is_no_part_of_another,
    block_is_the_only_writer,
    readers_come_after,
)
from tilewright.schedule.facts.boxes import under_loops
from tilewright.schedule.facts.reduction import recognised_update
from tilewright.schedule.handles import BlockRef
from tilewright.schedule.stages import at_indices, stand_in
from tilewright.schedule.writing import Written, change_accesses, stores_of

Indices = tuple[Expr, ...]


def pad(tree: Tree, block: Block, factors: Sequence[int]) -> Edit:
    """Round the extents of a block's iterators up to multiples of factors, one for each iterator.

    Operands are copied into larger buffers with zeros at the edges, and the result is cropped from
    a larger one.

        for i in 10: B[i] += A[i, k]      -->      for i in 12: A_pad[i, k] = A[i, k] or, beyond, 0
                                                   for i in 12: B_pad[i] += A_pad[i, k]
                                                   for i in 10: B[i] = B_pad[i]
    """
    check(tree, block, factors)
    return _Padding(tree, block, factors).edit()


def check(tree: Tree, block: Block, factors: Sequence[int]) -> None:
    what = f"cannot pad block {block.name} to {list(factors)}"
    require(
        tree,
        what,
        block_is_no_part_of_another(tree, block),
        block_has_no_effects(block),
        _factors_fit(block, factors),
        _loops_are_as_made(tree, block),
    )
    stores = stores_of(block)
    if isinstance(stores, Fault):
        return require(tree, what, stores)
    padded = _padded_extents(block, factors).keys()
    require(tree, what, _indices_are_iterators(block, padded), _padding_adds_nothing(block, padded))
    for written in stores:
        require(
            tree,
            what,
            block_is_the_only_writer(tree, block, written.buffer),
            readers_come_after(tree, block, written.buffer),
        )
    return None


# ---- legality -----------------------------------------------------------------------------------


def _factors_fit(block: Block, factors: Sequence[int]) -> Fault | None:
    remedy = "give a whole number from 1 up for each iterator; 1 leaves it as it is"
    if len(factors) != len(block.iters):
        return Fault(f"block {block.name} has {len(block.iters)} iterators", remedy, block)
    if any(isinstance(f, bool) or f < 1 for f in factors):
        return Fault("no factor is below 1", remedy, block)
    if not _padded_extents(block, factors):
        return Fault("the factors divide all extents already", "there is nothing to pad", block)
    return None


def _loops_are_as_made(tree: Tree, block: Block) -> Fault | None:
    """The block has exactly one loop per iterator, which contain nothing else."""
    loops = tree.loops_above(block)
    alone = not loops or tree.is_above(tree.removable(block), loops[0])
    if alone and tuple(f.var for f in loops) == block.bindings and block.predicate is TRUE:
        return None
    return Fault(
        f"the loops of block {block.name} are not one for each iterator, in that order",
        "pad before its loops are reshaped",
        block,
    )


def _indices_are_iterators(block: Block, padded: Iterable[Var]) -> Fault | None:
    """Iterators that grow must be indices by themselves."""
    grown = frozenset(padded)
    for buffer, indices in _accesses(block):
        for index in indices:
            if not isinstance(index, Var) and not free_vars(index).isdisjoint(grown):
                return Fault(
                    f"block {block.name} touches {buffer.name} at `{index}`",
                    "only iterators that are indices by themselves can be padded; reindex first",
                    block,
                )
    return None


def _padding_adds_nothing(block: Block, padded: Iterable[Var]) -> Fault | None:
    """A padded reduction must add only zeros in the padding."""
    reducing = [it.var for it in block.iters if it.kind != "spatial" and it.var in set(padded)]
    if not reducing:
        return None
    wrong = Fault(
        f"block {block.name} does not sum up products that are zero where {reducing[0].name} is "
        "padded",
        "pad its spatial iterators only",
        block,
    )
    update = recognised_update(block)
    if isinstance(update, Fault):
        return wrong
    for value, combined in zip(update.values, update.combined, strict=True):
        if not isinstance(combined, Binary) or combined.op != "add":
            return wrong
        if not all(_is_zero_along(value, var) for var in reducing):
            return wrong
    return None


def _is_zero_along(value: Expr, var: Var) -> bool:
    """A product of loads that are all zero where `var` is padded, so never 0 * inf."""
    factors = list(_factors(value))
    loads = [f for f in factors if not isinstance(f, Const)]
    return bool(loads) and all(isinstance(f, Load) and var in f.indices for f in loads)


def _factors(value: Expr) -> Iterator[Expr]:
    if isinstance(value, Binary) and value.op == "mul":
        yield from _factors(value.a)
        yield from _factors(value.b)
    else:
        yield value.a if isinstance(value, Cast) else value


def _accesses(block: Block) -> Iterator[tuple[Buffer, Indices]]:
    stores = stores_of(block)
    assert not isinstance(stores, Fault)
    yield from ((w.buffer, w.indices) for w in stores)
    yield from ((e.buffer, e.indices) for e in all_exprs(block) if isinstance(e, Load))


def _padded_extents(block: Block, factors: Sequence[int]) -> dict[Var, Expr]:
    """The new extents of the iterators that grow."""
    found: dict[Var, Expr] = {}
    for it, factor in zip(block.iters, factors, strict=True):
        grown = simplify((it.extent + (factor - 1)) // factor * factor)
        if not prove_equal(grown, it.extent):
            found[it.var] = grown
    return found


# ---- edit ---------------------------------------------------------------------------------------


class _Padding:
    """Builds the parts of the edit."""

    def __init__(self, tree: Tree, block: Block, factors: Sequence[int]) -> None:
        self.tree, self.block = tree, block
        self.extents = _padded_extents(block, factors)
        self.domain = {it.var: it.extent for it in block.iters}
        self.names = set(tree.blocks)
        self.ranges = tree.ranges_at(tree.function.body)
        self.buffers: dict[tuple[Buffer, Indices], Buffer] = {}

    def edit(self) -> Edit:
        stores = stores_of(self.block)
        assert not isinstance(stores, Fault)
        written = {w.buffer for w in stores}
        copies = [self._copy(*a) for a in self._grown_accesses() if a[0] not in written]
        crops = [self._crop(w) for w in stores if self._grows(w.indices)]
        loops = self.tree.loops_above(self.block)
        at = loops[0] if loops else self.block
        parts = [*(c for c, _ in copies), self._grown_block(loops), *(c for c, _ in crops)]
        function = with_buffers(self.tree.replace(at, seq(*parts)), *self.buffers.values())
        return Edit(function, tuple(BlockRef(name) for _, name in (*copies, *crops)))

    def _grows(self, indices: Indices) -> bool:
        return any(i in self.extents for i in indices)

    def _grown_accesses(self) -> list[tuple[Buffer, Indices]]:
        found = dict.fromkeys(_accesses(self.block))
        return [(buffer, indices) for buffer, indices in found if self._grows(indices)]

    def _larger(self, buffer: Buffer, indices: Indices) -> Buffer:
        shape = [
            self.extents[i] if isinstance(i, Var) and i in self.extents else extent
            for i, extent in zip(indices, buffer.shape, strict=True)
        ]
        key = buffer, indices
        if key not in self.buffers:
            self.buffers[key] = self._named(stand_in(self.tree, buffer, "pad", shape=shape))
        return self.buffers[key]

    def _named(self, buffer: Buffer) -> Buffer:
        taken = {b.name for b in self.buffers.values()}
        return buffer.with_(name=fresh_name(buffer.name, taken))

    def _block_name(self, hint: str) -> str:
        name = fresh_name(hint, self.names)
        self.names.add(name)
        return name

    def _copy(self, buffer: Buffer, indices: Indices) -> tuple[Stmt, str]:
        """larger[…] = buffer[…] where that exists, else 0"""
        larger = self._larger(buffer, indices)
        iters = [Iter(Var(f"vax{n}"), e, "spatial") for n, e in enumerate(larger.shape)]
        place = tuple(it.var for it in iters)
        inside = [
            own < limit
            for own, index, extent in zip(place, indices, buffer.shape, strict=True)
            if isinstance(index, Var) and index in self.extents
            for limit in self._limits(index, extent)
        ]
        value = select(all_of(*inside), Load(buffer, place), const(0, buffer.dtype))
        return self._nest(larger.name, iters, Store(larger, place, value))

    def _limits(self, index: Var, extent: Expr) -> list[Expr]:
        """The old extent; and also the buffer's, which guarded reads may exceed."""
        end = self.domain[index]
        return [end] if prove(end <= extent, self.ranges) else [end, extent]

    def _crop(self, written: Written) -> tuple[Stmt, str]:
        """buffer[…] = larger[…]"""
        larger = self._larger(written.buffer, written.indices)
        own = {
            it.var: it._replace(var=Var(it.var.name, it.var.dtype))
            for it in self.block.iters
            if it.kind == "spatial"
        }
        place = at_indices(written.indices, {var: it.var for var, it in own.items()})
        body = Store(written.buffer, place, Load(larger, place))
        return self._nest(f"{written.buffer.name}_crop", list(own.values()), body)

    def _nest(self, hint: str, iters: Sequence[Iter], body: Stmt) -> tuple[Stmt, str]:
        name = self._block_name(hint)
        copy = make_block(name, iters, [it.var for it in iters], body)
        return under_loops(copy, {}, self.ranges).nest, name

    def _grown_block(self, loops: Sequence[For]) -> Stmt:
        block = self.block
        iters = [it._replace(extent=self.extents.get(it.var, it.extent)) for it in block.iters]
        grown = change_accesses(
            replace(block, iters=tuple(iters)),
            {buffer for buffer, _ in self.buffers},
            self._replaced,
            lambda s: replace(s, buffer=self.buffers.get((s.buffer, s.indices), s.buffer)),
        )
        larger = [replace(loop, extent=it.extent) for loop, it in zip(loops, iters, strict=True)]
        return nest(larger, grown)

    def _replaced(self, load: Load) -> Expr:
        found = self.buffers.get((load.buffer, load.indices))
        return load if found is None else Load(found, load.indices, load.mask)
