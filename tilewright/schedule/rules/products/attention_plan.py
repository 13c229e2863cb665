"""How attention is cut: its blocks, the two register tiles, and the work of threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tilewright.ir import Buffer, Expr, Iter, Load, Var, all_exprs, substitute
from tilewright.schedule.facts.products import is_reduction
from tilewright.schedule.rules.analysis import (
    Access,
    Contraction,
    as_contraction,
    extent_of,
    has_own_loops,
    is_injective,
    stores_of,
)
from tilewright.schedule.rules.products.tiles import Factors, Size, Tile, rank_tiles
from tilewright.schedule.rules.rule import MOST, Choices
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Threads take whole heads where each core gets at least this many.
_HEADS = 2


@dataclass(frozen=True)
class Attention:
    """The two products, the blocks between them, and which dimension of their results is the
    rows."""

    first: str
    second: str
    between: tuple[str, ...]
    axis: int
    #: The operands of the first product, by row and by key, and the variables of these.
    rows: Access
    keys: Access
    row: Var
    key: Iter
    depth: Iter
    result: Contraction
    #: How scalars of the keys of a tile reach the multiply-add.
    factors: Factors
    #: Whether vectors of values can be loaded in place.
    has_vectors_of_values: bool
    #: Heads of all batches; an extent that is known only at run time counts as one.
    heads: int


@dataclass(frozen=True)
class AttentionPlan:
    """How attention is computed."""

    found: Attention
    #: Register tiles of scores (whose rows are keys) and of results.
    scores: Tile
    results: Tile
    #: Whether the values of a head are copied, so that tiles read them in order.
    copies_values: bool
    #: Whether threads take whole heads, rather than blocks of rows.
    by_heads: bool

    @property
    def rows(self) -> int:
        """Rows of a block: the columns of a tile of scores."""
        return self.scores.columns


def find_attention(s: Schedule, _block: str, target: Target) -> Attention | None:
    """The attention that a function computes, if it does."""
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
    if sides is None:
        return None
    rows, keys, i, key = sides
    lanes, trial = target.lanes(b.out.buffer.dtype), s.copy()
    inline_keys(trial, keys, b)
    loads = [e for e in all_exprs(trial.block_of(first).body) if isinstance(e, Load)]
    key_loads = [Access(e.buffer, e.indices) for e in loads if i not in e.indices]
    has_vectors = runs_along(_source_of_values(trial, b), column.var, lanes)
    own = (*b.rows, *b.columns, *b.reduced)
    others = [it for it in s.block_of(second).iters if it.var not in [o.var for o in own]]
    return Attention(
        first,
        second,
        between,
        axis,
        rows,
        keys,
        i,
        key,
        a.reduced[0],
        b,
        _factors(key_loads, a.reduced[0], lanes),
        has_vectors,
        prod(extent_of(it) or 1 for it in others),
    )


def _between(s: Schedule, first: str, second: str) -> tuple[tuple[str, ...], set[Buffer]]:
    """The blocks that lead from the result of the first product to an operand of the second, and
    the buffers that they and the first product write."""
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
    """Whether the results of these blocks share the rows' dimension and are floats of one type."""
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
    """The accesses by row and by key, and the variables of both."""
    if len(c.rows) != 1 or len(c.columns) != 1:
        return None
    (i,), (j,) = c.rows, c.columns
    rows, keys, key = (c.a, c.b, j) if i.var is row else (c.b, c.a, i)
    if not isinstance(row, Var) or row not in rows.indices or rows.buffer is keys.buffer:
        return None
    return rows, keys, row, key


def writers(s: Schedule) -> dict[Buffer, str]:
    """The block that writes each buffer."""
    return {s.block_of(b).writes[0].buffer: b.name for b in s.blocks()}


def inline_keys(s: Schedule, keys: Access, result: Contraction) -> None:
    """Inline the copy that makes the keys, unless they are also the values."""
    if keys.buffer is not result.b.buffer:
        inline_if_possible(s, writers(s).get(keys.buffer))


def inline_if_possible(s: Schedule, name: str | None) -> None:
    if name is not None and s.can("compute_inline", name):
        s.compute_inline(name)


def runs_along(access: Access, var: Var, lanes: int) -> bool:
    """Whether elements along a variable are contiguous within each vector of `lanes`."""
    return access.step_within(var, lanes) == 1


def _factors(keys: Sequence[Access], depth: Iter, lanes: int) -> Factors:
    """Vectors along the reduction where keys are contiguous along it, else scalars."""
    near = all(runs_along(access, depth.var, lanes) for access in keys)
    return "depth" if near and (extent_of(depth) or 1) % lanes == 0 else "broadcast"


def _source_of_values(s: Schedule, result: Contraction) -> Access:
    """The second product's access to the values, seen through the copy that makes them."""
    used = result.b
    writer = writers(s).get(used.buffer)
    value = None if writer is None else stores_of(s.block_of(writer))[0].value
    if writer is None or not isinstance(value, Load):
        return used
    variables = [it.var for it in s.block_of(writer).iters]
    places = dict(zip(variables, used.indices, strict=True))
    return Access(value.buffer, tuple(substitute(i, places) for i in value.indices))


# ---- decisions ----------------------------------------------------------------------------------


def plan_attention(found: Attention, target: Target, choices: Choices) -> AttentionPlan:
    """Choose the tiles, whether values are copied, and the work of threads."""
    result, dtype = found.result, found.result.out.buffer.dtype
    rows, columns = extent_of(result.rows[0]), extent_of(result.columns[0])
    size = Size(extent_of(found.key), rows or 2 * target.lanes(dtype))
    scores = choices.choose("scores", rank_tiles(target, dtype, size, found.factors)[:MOST])
    block = scores.columns
    tiles = rank_tiles(target, dtype, Size(block, columns), "rows", whole=block)
    results = choices.choose("results", tiles[:MOST])
    few = rows is not None and rows < target.timing.copy_uses * block
    copies = not (few and found.has_vectors_of_values)
    can_stay = found.has_vectors_of_values
    copies = choices.choose("copy_values", (copies, not copies) if can_stay else (True,))
    many = found.heads >= _HEADS * target.cores
    by_heads = choices.choose("by_heads", (many, not many) if target.cores > 1 else (True,))
    return AttentionPlan(found, scores, results, copies, by_heads)
