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

Only the scores of one block are in memory, and they fit the caches. Vector lanes hold rows: a sum
over keys adds whole vectors, and no vector is partly used whatever the number of keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import TRUE, Buffer, Const, Expr, Load, Var, all_exprs, free_vars
from tilewright.schedule.facts.products import is_reduction
from tilewright.schedule.handles import Loop
from tilewright.schedule.rules.analysis import (
    Access,
    constants_of,
    extent_of,
    is_injective,
    loops_within,
    stores_of,
)
from tilewright.schedule.rules.elementwise import vectorize_innermost
from tilewright.schedule.rules.epilogue import begin_epilogue, place_epilogue
from tilewright.schedule.rules.products.attention_plan import (
    AttentionPlan,
    find_attention,
    inline_if_possible,
    inline_keys,
    plan_attention,
    runs_along,
    writers,
)
from tilewright.schedule.rules.rule import Rule
from tilewright.schedule.rules.transpose import (
    known_extent,
    loop_inside,
    transpose_tiles,
    whole_and_rest,
)
from tilewright.schedule.rules.transpose_plan import plain_tile
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def _schedule(s: Schedule, _block: str, plan: AttentionPlan, target: Target) -> None:
    """Compute both products, and the blocks between them, for one block of rows at a time."""
    _Cut(s, plan, target).apply()


ATTENTION = Rule("attention", find_attention, plan_attention, _schedule)


class _Cut:
    """The steps of the schedule."""

    def __init__(self, s: Schedule, plan: AttentionPlan, target: Target) -> None:
        self.s, self.plan, self.found, self.target = s, plan, plan.found, target
        self.lanes = target.lanes(plan.found.result.out.buffer.dtype)
        self._writers = writers(s)

    def apply(self) -> None:
        s, found, by_heads = self.s, self.found, self.plan.by_heads
        inline_keys(s, found.keys, found.result)
        rows, values = self._copies()
        first, *others = self._stages()
        heads, block = self._cut_results()
        for name in reversed((first, *others)):
            s.compute_at(name, block)
        for name in (found.first, first, *others):
            self._put_last(name, found.axis)
        s.compute_at(found.first, block)
        self._cut_scores(first, block)
        self._transpose_added(first, block)
        for name in others:
            self._by_lanes(name, block)
        self._transpose_rows(rows, heads, block)
        if values is not None and (heads or not by_heads):
            self._place_values(values, heads[-1] if by_heads else block)
        self._parallelize(heads if by_heads else [*heads, block])

    def _stages(self) -> list[str]:
        """Blocks between the products; the first one reads scores from registers."""
        s, found = self.s, self.found
        readers = s.consumers(found.first)
        if len(readers) == 1 and is_injective(s.block_of(readers[0])):
            s.set_scope(found.first, 0, "local")
            return [*found.between]
        return [s.cache_write(found.first, 0, "local").name, *found.between]

    # ---- operands -------------------------------------------------------------------------------

    def _copies(self) -> tuple[str, str | None]:
        """Blocks that copy the rows and, by the plan, the values; keys are read in place."""
        s, found = self.s, self.found
        rows, values = map(self._writers.get, (found.rows.buffer, found.result.b.buffer))
        if rows is None or rows == values or not is_injective(s.block_of(rows)):
            rows = s.cache_read(found.first, found.rows.buffer).name
        if not self.plan.copies_values:
            inline_if_possible(s, values)
            return rows, None
        if values is None or not is_injective(s.block_of(values)):
            values = s.cache_read(found.second, found.result.b.buffer).name
        return rows, values

    def _place_values(self, name: str, around: Loop) -> None:
        """Copy the values in the loop `around`, with the columns of a tile contiguous: what tiles
        read is then spread over all sets of L1."""
        s, column = self.s, self.found.result.columns[0].var
        s.compute_at(name, around)
        used = self.found.result.b.indices
        if column not in used:
            vectorize_innermost(s, name, self.target)
            return
        axis = used.index(column)
        last = stores_of(s.block_of(name))[0].indices[axis]
        # Copies of other operands may read vectors of these values: those stay in one piece.
        is_shared = len(s.consumers(name)) > 1
        self._put_last(name, axis, 0 if is_shared else self.plan.results.columns)
        loops = loops_within(self.s, name, around)
        if isinstance(last, Var) and last in loops and self._copies_along(name, last):
            s.reorder(*(loop for v, loop in loops.items() if v is not last), loops[last])
            vectorize_innermost(s, name, self.target)
        else:
            self._transpose(name, around)

    def _copies_along(self, name: str, var: Var) -> bool:
        """Whether a copy reads neighbouring elements along a variable."""
        value = stores_of(self.s.block_of(name))[0].value
        is_load = isinstance(value, Load)
        return is_load and runs_along(Access(value.buffer, value.indices), var, self.lanes)

    def _transpose_rows(self, name: str, heads: Sequence[Loop], block: Loop) -> None:
        """Transpose the rows of a block, so that neighbouring rows are contiguous.

        Where the last block is not full, all rows of a head at once: conditions on rows would keep
        them from being transposed by squares.
        """
        rows = extent_of(self.found.result.rows[0])
        is_even = rows is not None and rows % self.plan.rows == 0
        at_once = self.plan.by_heads and bool(heads) and not is_even
        around = heads[-1] if at_once else block
        self.s.compute_at(name, around)
        axis = self.found.rows.indices.index(self.found.row)
        self._put_last(name, axis, self.plan.rows if at_once else 0)
        self._transpose(name, around)

    def _transpose_added(self, name: str, block: Loop) -> None:
        """Transpose also what is added to the scores (a mask), once for all heads that share it."""
        s, own = self.s, self.s.block_of(name)
        row = stores_of(own)[0].indices[-1]
        for access in _strided_reads(self.s, name, row):
            copy = s.cache_read(name, access.buffer).name
            axis = access.indices.index(row)
            is_constant = access.buffer in constants_of(s.function)
            if not is_constant and _is_owned(s, name, access, row):
                s.compute_at(copy, block)
                self._put_last(copy, axis)
                self._transpose(copy, block)
            else:
                self._put_last(copy, axis)

    def _transpose(self, name: str, around: Loop) -> None:
        """Transpose a copy by squares in registers; what they do not cover by vectors along the
        source."""
        s, own = self.s, self.s.block_of(name)
        loops = loops_within(self.s, name, around)
        rows = [v for v in loops if v in free_vars(stores_of(own)[0].indices[-1])]
        along = next((v for v in loops if v not in rows and self._copies_along(name, v)), None)
        if len(rows) != 1 or along is None:
            return
        (row,) = rows
        others = [loop for v, loop in loops.items() if v not in (row, along)]
        s.reorder(*others, loops[row], loops[along])
        rest = [loops[row]]
        square = plain_tile(stores_of(own)[0].buffer.dtype, self.lanes, self.target)
        is_whole = own.predicate is TRUE and known_extent(s, loops[along]) % square.width == 0
        if is_whole and known_extent(s, loops[row]) >= square.height:
            whole, *rest = whole_and_rest(s, loops[row], square.height)
            transpose_tiles(s, loop_inside(s, whole), whole, square)
        for loop in rest:
            self._by_vectors(loop)

    def _by_vectors(self, row: Loop) -> None:
        """Copy a nest of two loops, over rows and along the source, by vectors of the source."""
        s = self.s
        along = loop_inside(s, row)
        vectors, rows = s.split(row, None, self.lanes)
        steps, lanes = s.split(along, None, self.lanes)
        s.reorder(vectors, steps, rows, lanes)
        if isinstance(s.loop_of(vectors).extent, Const):
            s.unroll(vectors)
        s.unroll(rows)
        s.vectorize(lanes)

    # ---- cutting --------------------------------------------------------------------------------

    def _cut_results(self) -> tuple[list[Loop], Loop]:
        """Cut the second product; gives the loops over heads and the loop over blocks of rows."""
        s, result, name = self.s, self.found.result, self.found.second
        epilogue = begin_epilogue(s, name)
        iters = s.block_of(name).iters
        loops = dict(zip((it.var for it in iters), s.loops(name), strict=True))
        row, column, key = (
            loops.pop(it.var) for (it,) in (result.rows, result.columns, result.reduced)
        )
        tile = self.plan.results
        block, tiles, rows = s.split(row, None, self.plan.rows // tile.rows, tile.rows)
        columns, vectors, lanes = s.split(column, None, tile.vectors, self.lanes)
        s.reorder(*loops.values(), block, columns, tiles, key, rows, vectors, lanes)
        s.unroll(rows)
        s.unroll(vectors)
        s.vectorize(lanes)
        place_epilogue(s, epilogue, tiles, self.lanes, self.target)
        return [*loops.values()], block

    def _cut_scores(self, stage: str, block: Loop) -> None:
        """Compute tiles of scores in registers; `stage` reads each tile from there."""
        s, found, scores = self.s, self.found, self.plan.scores
        loops = loops_within(self.s, found.first, block)
        tiles, keys = s.split(loops[found.key.var], None, scores.rows)
        depth, steps = [loops[found.depth.var]], list[Loop]()
        if scores.factors == "depth":
            outer, inner = s.split(depth[0], None, self.lanes)
            depth, steps = [outer], [inner]
        vectors, lanes = s.split(loops[found.row], None, self.lanes)
        s.reorder(tiles, *depth, *steps, keys, vectors, lanes)
        for loop in (*steps, keys, vectors):
            s.unroll(loop)
        s.vectorize(lanes)
        s.reverse_compute_at(stage, tiles)
        s.unroll(self._by_lanes(stage, tiles)[-1])

    def _by_lanes(self, name: str, around: Loop) -> list[Loop]:
        """Vectorize a block over rows; gives its other loops inside `around`."""
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

    def _put_last(self, name: str, axis: int, block: int = 0) -> None:
        """Make dimension `axis` of what a block writes the innermost one; by `block` elements, with
        the blocks one after the other."""

        def transposed(*indices: Expr) -> tuple[Expr, ...]:
            index, others = indices[axis], (*indices[:axis], *indices[axis + 1 :])
            return (index // block, *others, index % block) if block else (*others, index)

        self.s.transform_layout(name, 0, transposed)

    # ---- threads --------------------------------------------------------------------------------

    def _parallelize(self, loops: Sequence[Loop]) -> None:
        if self.target.cores > 1 and loops:
            self.s.parallel(self.s.fuse(*loops) if len(loops) > 1 else loops[0])


def _strided_reads(s: Schedule, name: str, row: Expr) -> list[Access]:
    """Reads of parameters of the function in which neighbouring rows are not contiguous."""
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
