"""Two products with a normalisation between them (attention): some rows at a time.

for head (parallel):
    copy the values of the head together
    for block of rows:
        transpose the rows of the block
        for tile of keys:
            scores[key, row] += keys[key, d] * rows[d, row]
            masked[key, row] = …
        greatest[row], powers[key, row], total[row], shares[key, row]
        for tile of columns: result[row, column] += shares[key, row] * values[key, column]

Only the scores of one block are in memory, where they stay in the nearest caches. Lanes are rows: a
sum over keys is one of vectors, and no number of keys leaves a rest of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.ir import Buffer, Const, Expr, Iter, Load, Var, all_exprs, free_vars, substitute
from tilewright.schedule.facts.products import is_reduction
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import (
    Access,
    Contraction,
    as_contraction,
    constants_of,
    extent_of,
    has_own_loops,
    is_injective,
    stores_of,
)
from tilewright.schedule.rules.elementwise import vectorize_innermost
from tilewright.schedule.rules.epilogue import begin_epilogue, place_epilogue
from tilewright.schedule.rules.products.tiles import Factors, Size, choose_tile
from tilewright.schedule.rules.rule import Rule, as_found
from tilewright.schedule.rules.winograd.positions import loops_within
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Values are copied together where so many blocks of rows read them.
_WORTH_COPYING = 4
#: Heads for each core from which on threads take whole heads.
_HEADS = 2


@dataclass(frozen=True)
class Chain:
    """The two products, what lies between them, and the dimension of all that holds rows."""

    first: str
    second: str
    between: tuple[str, ...]
    axis: int
    #: What the first product reads by rows and by keys, and the variables of these.
    rows: Access
    keys: Access
    row: Var
    key: Iter
    depth: Iter
    result: Contraction


def _match(s: Schedule, _block: str, target: Target) -> Chain | None:
    """The products of a function that is attention, as far as its blocks tell."""
    found = [(b.name, as_contraction(s.block_of(b))) for b in s.blocks()]
    products = [(name, c) for name, c in found if c is not None]
    if len(products) != 2 or not all(has_own_loops(s, b.name) for b in s.blocks()):
        return None
    (first, a), (second, b) = products
    if len(b.rows) != 1 or len(b.columns) != 1 or len(b.reduced) != 1 or len(a.reduced) != 1:
        return None
    between, made = _between(s, first, second)
    row, (column,) = b.rows[0], b.columns
    if b.a.buffer not in made or b.b.buffer in made or row.var not in b.a.indices:
        return None
    axis = b.a.indices.index(row.var)
    known = extent_of(column) is not None and b.out.step(column.var) == 1
    if not known or not _share_rows(s, [first, *between], axis, b.a.buffer, target):
        return None
    sides = _sides(a, a.out.indices[axis])
    return None if sides is None else Chain(first, second, between, axis, *sides, a.reduced[0], b)


def _between(s: Schedule, first: str, second: str) -> tuple[tuple[str, ...], set[Buffer]]:
    """The blocks that turn the results of one into an operand of the other, and all they make."""
    made = {s.block_of(first).writes[0].buffer}
    names: list[str] = []
    for block in s.blocks():
        if block.name == second:
            break
        if any(r.buffer in made for r in s.block_of(block).reads) and block.name != first:
            names.append(block.name)
            made.update(w.buffer for w in s.block_of(block).writes)
    return tuple(names), made


def _share_rows(s: Schedule, names: Sequence[str], axis: int, like: Buffer, target: Target) -> bool:
    """Whether rows are one dimension of all that these blocks make, in floats of one type."""
    if not like.dtype.is_float or target.lanes(like.dtype) < 2:
        return False
    for name in names:
        block = s.block_of(name)
        stores = stores_of(block)
        buffer = stores[0].buffer
        if len(stores) != 1 or buffer.dtype is not like.dtype or buffer.ndim != like.ndim:
            return False
        if buffer.shape[axis] is not like.shape[axis] or not _is_spatial(name, s, axis):
            return False
        if buffer in s.function.buffers or not (is_injective(block) or is_reduction(block)):
            return False
    return True


def _is_spatial(name: str, s: Schedule, axis: int) -> bool:
    index = stores_of(s.block_of(name))[0].indices[axis]
    return any(it.var is index and it.kind == "spatial" for it in s.block_of(name).iters)


def _sides(c: Contraction, row: Expr) -> tuple[Access, Access, Var, Iter] | None:
    """What is read by rows and by keys, and the variables of both."""
    if len(c.rows) != 1 or len(c.columns) != 1:
        return None
    (i,), (j,) = c.rows, c.columns
    mine, keys, key = (c.a, c.b, j) if i.var is row else (c.b, c.a, i)
    if not isinstance(row, Var) or row not in mine.indices or mine.buffer is keys.buffer:
        return None
    return mine, keys, row, key


# ---- the schedule -------------------------------------------------------------------------------


def _schedule(s: Schedule, _block: str, chain: Chain, target: Target) -> None:
    """Compute both products, and what is between them, for a block of rows at a time."""
    _Cut(s, chain, target).apply()


ATTENTION = Rule("attention", _match, as_found, _schedule)


class _Cut:
    """The steps of the schedule."""

    def __init__(self, s: Schedule, chain: Chain, target: Target) -> None:
        self.s, self.chain, self.target = s, chain, target
        self._makers = {s.block_of(b).writes[0].buffer: b.name for b in s.blocks()}
        # Keys are read where they lie, unless they are the values, which may be copied.
        if chain.keys.buffer is not chain.result.b.buffer:
            self._inline(self._makers.get(chain.keys.buffer))
        result = chain.result
        dtype, rows = result.out.buffer.dtype, extent_of(result.rows[0])
        self.lanes = target.lanes(dtype)
        keys = extent_of(chain.key)
        #: A tile of scores has rows of keys; one of results, rows.
        self.scores = choose_tile(
            target, dtype, Size(keys, rows or 2 * self.lanes), self._factors()
        )
        self.size = self.scores.columns
        columns = extent_of(result.columns[0])
        self.results = choose_tile(target, dtype, Size(self.size, columns), "rows", whole=self.size)

    def _factors(self) -> Factors:
        depth, loads = self.chain.depth, all_exprs(self.s.block_of(self.chain.first).body)
        keys = [e for e in loads if isinstance(e, Load) and self.chain.row not in e.indices]
        near = all(_runs_along(Access(e.buffer, e.indices), depth.var, self.lanes) for e in keys)
        return "depth" if near and (extent_of(depth) or 1) % self.lanes == 0 else "broadcast"

    def apply(self) -> None:
        s, chain = self.s, self.chain
        rows, values = self._copies()
        first, *others = self._stages()
        heads, block = self._cut_results()
        for name in reversed((first, *others)):
            s.compute_at(name, block)
        for name in (chain.first, first, *others):
            self._put_last(name, chain.axis)
        s.compute_at(chain.first, block)
        self._cut_scores(first, block)
        self._turn_added(first, block)
        for name in others:
            self._by_lanes(name, block)
        self._transpose_rows(rows, block)
        whole = self._are_many(heads)
        if values is not None and (heads or not whole):
            self._place_values(values, heads[-1] if whole else block)
        self._parallelize(heads if whole else [*heads, block])

    def _stages(self) -> list[str]:
        """The blocks between the products; the first takes scores on from the registers."""
        s, chain = self.s, self.chain
        readers = s.consumers(chain.first)
        if len(readers) == 1 and is_injective(s.block_of(readers[0])):
            s.set_scope(chain.first, 0, "local")
            return [*chain.between]
        return [s.cache_write(chain.first, 0, "local").name, *chain.between]

    # ---- operands -------------------------------------------------------------------------------

    def _copies(self) -> tuple[str, str | None]:
        """The blocks that copy the rows and, where that pays, the values; keys stay in place."""
        s, chain = self.s, self.chain
        rows, values = map(self._makers.get, (chain.rows.buffer, chain.result.b.buffer))
        if rows is None or rows == values or not is_injective(s.block_of(rows)):
            rows = s.cache_read(chain.first, chain.rows.buffer).name
        count = extent_of(chain.result.rows[0])
        few = count is not None and count < _WORTH_COPYING * self.size
        if few and _runs_along(self._values(), chain.result.columns[0].var, self.lanes):
            self._inline(values)
            return rows, None
        if values is None or not is_injective(s.block_of(values)):
            values = s.cache_read(chain.second, chain.result.b.buffer).name
        return rows, values

    def _values(self) -> Access:
        """How the second product reads its values where they lie before they are copied."""
        used = self.chain.result.b
        maker = self._makers.get(used.buffer)
        value = None if maker is None else stores_of(self.s.block_of(maker))[0].value
        if maker is None or not isinstance(value, Load):
            return used
        variables = [it.var for it in self.s.block_of(maker).iters]
        places = dict(zip(variables, used.indices, strict=True))
        return Access(value.buffer, tuple(substitute(i, places) for i in value.indices))

    def _place_values(self, name: str, around: Loop) -> None:
        """Copy the values in a loop, with neighbouring columns side by side."""
        s, column = self.s, self.chain.result.columns[0].var
        s.compute_at(name, around)
        used = self.chain.result.b.indices
        if used[-1] is column or column not in used:
            vectorize_innermost(s, name, self.target)
            return
        self._put_last(name, used.index(column))
        last = stores_of(s.block_of(name))[0].indices[-1]
        loops = loops_within(self.s, name, around)
        if isinstance(last, Var) and last in loops and self._copies_along(name, last):
            s.reorder(*(loop for v, loop in loops.items() if v is not last), loops[last])
            vectorize_innermost(s, name, self.target)
        else:
            self._turn(name, around)

    def _copies_along(self, name: str, var: Var) -> bool:
        """Whether a copy reads neighbouring elements along a variable."""
        value = stores_of(self.s.block_of(name))[0].value
        is_load = isinstance(value, Load)
        return is_load and _runs_along(Access(value.buffer, value.indices), var, self.lanes)

    def _inline(self, name: str | None) -> None:
        if name is not None and self.s.can("compute_inline", name):
            self.s.compute_inline(name)

    def _transpose_rows(self, name: str, block: Loop) -> None:
        """Copy the rows of a block so that they lie side by side."""
        self.s.compute_at(name, block)
        self._put_last(name, self.chain.rows.indices.index(self.chain.row))
        self._turn(name, block)

    def _turn_added(self, name: str, block: Loop) -> None:
        """Likewise what is added to the scores; once for all heads that share it."""
        s, own = self.s, self.s.block_of(name)
        row = stores_of(own)[0].indices[-1]
        for access in _read_apart(self.s, name, row):
            copy = s.cache_read(name, access.buffer).name
            axis = access.indices.index(row)
            is_constant = access.buffer in constants_of(s.function)
            if not is_constant and _is_owned(s, name, access, row):
                s.compute_at(copy, block)
                self._put_last(copy, axis)
                self._turn(copy, block)
            else:
                self._put_last(copy, axis)

    def _turn(self, name: str, block: Loop) -> None:
        s, own = self.s, self.s.block_of(name)
        loops = loops_within(self.s, name, block)
        row = stores_of(own)[0].indices[-1]
        along = next((v for v in loops if v is not row and self._copies_along(name, v)), None)
        if not isinstance(row, Var) or row not in loops or along is None:
            return
        others = [loop for v, loop in loops.items() if v not in (row, along)]
        vectors, rows = s.split(loops[row], None, self.lanes)
        steps, lanes = s.split(loops[along], None, self.lanes)
        s.reorder(*others, vectors, steps, rows, lanes)
        s.unroll(vectors)
        s.unroll(rows)
        s.vectorize(lanes)

    # ---- cutting --------------------------------------------------------------------------------

    def _cut_results(self) -> tuple[list[Loop], Loop]:
        """The loops over heads and that over blocks of rows."""
        s, result, name = self.s, self.chain.result, self.chain.second
        epilogue = begin_epilogue(s, name)
        iters = s.block_of(name).iters
        loops = dict(zip((it.var for it in iters), s.loops(name), strict=True))
        row, column, key = (
            loops.pop(it.var) for (it,) in (result.rows, result.columns, result.reduced)
        )
        tile = self.results
        block, tiles, rows = s.split(row, None, self.size // tile.rows, tile.rows)
        columns, vectors, lanes = s.split(column, None, tile.vectors, self.lanes)
        s.reorder(*loops.values(), block, columns, tiles, key, rows, vectors, lanes)
        s.unroll(rows)
        s.unroll(vectors)
        s.vectorize(lanes)
        place_epilogue(s, epilogue, tiles, self.lanes, self.target)
        return [*loops.values()], block

    def _cut_scores(self, stage: str, block: Loop) -> None:
        """Tiles of scores in registers; `stage` takes them on."""
        s, chain, name = self.s, self.chain, self.chain.first
        loops = loops_within(self.s, name, block)
        tiles, keys = s.split(loops[chain.key.var], None, self.scores.rows)
        depth, steps = [loops[chain.depth.var]], list[Loop]()
        if self.scores.factors == "depth":
            outer, inner = s.split(depth[0], None, self.lanes)
            depth, steps = [outer], [inner]
        vectors, lanes = s.split(loops[chain.row], None, self.lanes)
        s.reorder(tiles, *depth, *steps, keys, vectors, lanes)
        for loop in (*steps, keys, vectors):
            s.unroll(loop)
        s.vectorize(lanes)
        s.reverse_compute_at(stage, tiles)
        s.unroll(self._by_lanes(stage, tiles)[-1])

    def _by_lanes(self, name: str, around: Loop) -> list[Loop]:
        """Let lanes be rows; gives the other loops of the block inside of `around`."""
        s, block = self.s, self.s.block_of(name)
        loops = loops_within(self.s, name, around)
        row = stores_of(block)[0].indices[-1]
        assert isinstance(row, Var)
        rows = loops.pop(row)
        vectors, lanes = s.split(rows, None, self.lanes)
        s.reorder(*loops.values(), vectors, lanes)
        s.unroll(vectors)
        s.vectorize(lanes)
        if is_reduction(block):
            s.set_scope(name, 0, "local")
        return [*loops.values()]

    def _put_last(self, name: str, axis: int) -> None:
        def turned(*indices: Expr) -> tuple[Expr, ...]:
            return (*indices[:axis], *indices[axis + 1 :], indices[axis])

        self.s.transform_layout(name, 0, turned)

    # ---- threads --------------------------------------------------------------------------------

    def _are_many(self, heads: Sequence[Loop]) -> bool:
        """Whether there are whole heads for every core."""
        known = [self.s.loop_of(loop).extent for loop in heads]
        count = prod(int(e.value) if isinstance(e, Const) else 1 for e in known)
        return self.target.cores < 2 or count >= _HEADS * self.target.cores

    def _parallelize(self, loops: Sequence[Loop]) -> None:
        if self.target.cores > 1 and loops:
            self.s.parallel(self.s.fuse(*loops) if len(loops) > 1 else loops[0])


def _read_apart(s: Schedule, name: str, row: Expr) -> list[Access]:
    """What a block reads from parameters so that neighbouring rows lie apart."""
    block, found = s.block_of(name), dict[Buffer, Access]()
    for e in all_exprs(block.body):
        if isinstance(e, Load) and e.buffer in s.function.buffers and row in e.indices:
            access = Access(e.buffer, e.indices)
            if isinstance(row, Var) and access.step(row) != 1:
                found[e.buffer] = access
    return [*found.values()]


def _is_owned(s: Schedule, name: str, access: Access, row: Expr) -> bool:
    """Whether each head reads elements of its own."""
    block = s.block_of(name)
    long = [it for it in block.iters if extent_of(it) != 1 and it.var is not row]
    return sum(any(it.var in free_vars(i) for i in access.indices) for it in long) == len(long)


def _runs_along(access: Access, var: Var, lanes: int) -> bool:
    """Whether vectors of neighbours along a variable lie in memory as they are."""
    return access.step_within(var, lanes) == 1
