"""Attention on GPUs: how it is recognised, and how many rows a block of threads computes."""

from __future__ import annotations

from math import prod
from typing import Final, Literal, NamedTuple

from tilewright.ir import (
    GROUP,
    GROUP_COLUMNS,
    GROUP_ROWS,
    NEIGHBOURS,
    OWNERS,
    PITCH,
    TILE_SIDE,
    Buffer,
    Const,
    DType,
    Var,
)
from tilewright.schedule.facts.online import power_of
from tilewright.schedule.rules.analysis import (
    extent_of,
    has_own_loops,
    is_injective,
    is_intermediate,
    stores_of,
)
from tilewright.schedule.rules.gpu.grid import only_reduces
from tilewright.schedule.rules.gpu.product_plan import Product, Tile, product_of
from tilewright.schedule.rules.gpu.results import following
from tilewright.schedule.rules.gpu.warp_tiles import Warps, has_instruction
from tilewright.schedule.rules.rule import Choices
from tilewright.schedule.schedule import Schedule
from tilewright.target import Gpu, Target

_F32: Final = DType.of("float32")
#: Warps that share the rows of a tile, the best first where there are enough tiles, and the most
#: warps of a block.
_DOWN: Final = (4, 2, 1)
_MOST_WARPS: Final = 8
#: Keys whose scores are computed, or multiplied by values, at a time.
_KEYS: Final = 128
_STEPS: Final = 64
#: The most tiles of keys or values that are in shared memory at once (pipeline stages).
_STAGES: Final = 3
#: The most keys whose scores a warp keeps in registers as a whole.
_MOST_OWN_KEYS: Final = 256
#: Keys of a chunk, and the number of chunks in shared memory at once.
_CHUNKS: Final = (128, 64)
_CHUNK_STAGES: Final = 2
#: The most chunks of a tile for which exchanging results at its end pays.
_SHORT_TILE: Final = 4
#: The fraction of the multiprocessors that should have a tile.
_BUSY: Final = 0.9


#: Where scores are kept: in shared memory, whole rows in registers, or a chunk in registers.
Way = Literal["shared", "registers", "online"]


class Attention(NamedTuple):
    """The two products, and the blocks between them by their roles."""

    #: The function after intermediate blocks have been inlined.
    prepared: Schedule
    first: str
    second: str
    #: The block that reads the scores, if there is just one.
    home: str | None
    reductions: tuple[str, ...]
    #: The block that computes what the second reduction sums, if any.
    powers: str | None
    #: The block that computes the left operand of the second product.
    shares: str
    #: The block that reads the results, if there is just one.
    after: str | None
    products: tuple[Product, Product]


class AttentionPlan(NamedTuple):
    """The warps of a block, and the tiles of both products."""

    found: Attention
    warps: Warps
    keys: int
    steps: int
    stages: int
    way: Way = "shared"
    #: How many tiles a block of threads computes, one after the other.
    tiles_each: int = 1
    #: Whether the next tile's rows are copied while a tile ends: there is memory for both.
    begins_early: bool = False

    @property
    def keeps_pairs(self) -> bool:
        """Whether threads store the results that they hold without exchanging them first. Where a
        block has taken all registers and tiles have many chunks, the exchange costs more registers
        than it saves time at the end (an H200: with it 512 keys are 10 % faster, 4096 keys 10 %
        slower)."""
        return self.tiles_each > 1 and _extent(self.found, 0) > _SHORT_TILE * self.keys

    @property
    def is_shared(self) -> bool:
        """Whether scores are kept in shared memory."""
        return self.way == "shared"

    @property
    def choice(self) -> tuple[int, Way, int, bool]:
        """What distinguishes plans: rows of a tile, where scores are kept, keys at a time, and
        whether groups of warps multiply."""
        return self.rows, self.way, self.keys, self.warps.are_groups

    @property
    def rows(self) -> int:
        return self.warps.down * (GROUP_ROWS if self.warps.are_groups else TILE_SIDE)

    @property
    def threads_of_row(self) -> int:
        """How many threads share the work for a row."""
        return 2 * self.warps.over if self.is_shared else OWNERS

    @property
    def tiles(self) -> tuple[Tile, Tile]:
        unit = PITCH if self.warps.are_groups else self.warps.over * TILE_SIDE
        columns = _rounded_up(_extent(self.found, 1), unit)
        return Tile(self.rows, self.keys), Tile(self.rows, columns)


def find_attention(s: Schedule, _block: str, target: Target) -> Attention | None:
    """The blocks of a function that computes attention, if it does."""
    own = [b.name for b in s.blocks() if has_own_loops(s, b.name)]
    products = [name for name in own if _is_product(s, name, target)]
    if len(products) != 2:
        return None
    first, second = products
    trial = s.copy()
    between = _between(trial, first, second)
    reductions = [n for n in between if only_reduces(trial.block_of(n))]
    if len(reductions) != 2 or not all(_is_plain(trial, n) for n in (*between, first, second)):
        return None
    shares = _writer_of(trial, _operand(trial, second))
    if shares is None or shares not in between or shares in reductions:
        return None
    _inline_on_the_way(trial, between, shares)
    return _taken_apart(trial, first, second, (*reductions, shares))


def _taken_apart(s: Schedule, first: str, second: str, ends: tuple[str, ...]) -> Attention | None:
    left = [n for n in _between(s, first, second) if n not in ends]
    powers = [n for n in left if _reads_reduced(s, n)]
    early = [n for n in left if n not in powers]
    pair = product_of(s.block_of(first)), product_of(s.block_of(second))
    if pair[0] is None or pair[1] is None or len(early) > 1 or len(powers) > 1:
        return None
    found = pair[0], pair[1]
    if not _agree(s, ends[-1], *found):
        return None
    if early and [c.name for c in s.consumers(first)] != early:
        return None
    (*reductions, shares) = ends
    home, power = (names[0] if names else None for names in (early, powers))
    after = following(s, second)
    return Attention(s, first, second, home, tuple(reductions), power, shares, after, found)


def _is_product(s: Schedule, name: str, target: Target) -> bool:
    """Whether a block is a product of known extents that tensor instructions can compute."""
    p = product_of(s.block_of(name)) if only_reduces(s.block_of(name)) else None
    if p is None or len(p.reduced) != 1:
        return False
    is_known = all(isinstance(it.extent, Const) for it in s.block_of(name).iters)
    lie_freely = p.factors is not None and p.factors.lie_freely
    return is_known and lie_freely and has_instruction(p, target)


def _between(s: Schedule, first: str, second: str) -> list[str]:
    """The blocks that lead from the result of the first product to an operand of the second."""
    made = {stores_of(s.block_of(first))[0].buffer}
    order = [b.name for b in s.blocks()]
    names: list[str] = []
    for name in order[: order.index(second)]:
        block = s.block_of(name)
        if name != first and any(r.buffer in made for r in block.reads):
            names.append(name)
            made.update(w.buffer for w in block.writes)
    return names


def _is_plain(s: Schedule, name: str) -> bool:
    """Whether a block has its own loops, and writes one buffer, intermediate or without readers."""
    block = s.block_of(name)
    stores = stores_of(block)
    is_known = is_injective(block) or only_reduces(block)
    return (
        len(stores) == 1
        and is_known
        and has_own_loops(s, name)
        and (is_intermediate(s, stores[0].buffer) or not s.consumers(name))
    )


def _operand(s: Schedule, name: str) -> Buffer:
    found = product_of(s.block_of(name))
    assert found is not None
    return found.contraction.a.buffer


def _writer_of(s: Schedule, buffer: Buffer) -> str | None:
    names = [b.name for b in s.blocks() if s.block_of(b).writes[0].buffer is buffer]
    return names[0] if len(names) == 1 else None


def _inline_on_the_way(s: Schedule, between: list[str], shares: str) -> None:
    """Inline elementwise blocks, except operands of reductions and products."""
    for block in s.blocks():
        name = block.name
        if not is_injective(s.block_of(name)) or not s.consumers(name) or name == shares:
            continue
        feeds_sum = any(only_reduces(s.block_of(c)) for c in s.consumers(name))
        is_kept = name in between and feeds_sum
        if not is_kept and not _is_operand(s, name) and s.can("compute_inline", name):
            s.compute_inline(name)


def _reads_reduced(s: Schedule, name: str) -> bool:
    """Whether a block reads results of a reduction that is not a product."""
    producers = [s.block_of(p) for p in s.producers(name)]
    return any(only_reduces(b) and product_of(b) is None for b in producers)


def _is_operand(s: Schedule, name: str) -> bool:
    """Whether a product reads a block's result: it is copied to shared memory there."""
    return any(product_of(s.block_of(c)) is not None for c in s.consumers(name))


def _agree(s: Schedule, shares: str, a: Product, b: Product) -> bool:
    """Whether rows and keys are the same dimensions, with the same extents, in both products."""
    places = {index: k for k, index in enumerate(a.contraction.out.indices)}
    read = {i: k for k, i in enumerate(b.contraction.a.indices) if isinstance(i, Var)}
    same = places.get(a.row.var) == read.get(b.row.var)
    same &= places.get(a.column.var) == read.get(b.reduced[0].var)
    extents = (a.row.extent, a.column.extent) == (b.row.extent, b.reduced[0].extent)
    rank = stores_of(s.block_of(shares))[0].buffer.ndim == a.contraction.out.buffer.ndim
    return same and extents and rank


def _extent(found: Attention, product: int) -> int:
    return extent_of(found.products[product].column) or 0


def _rounded_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


# ---- decisions ----------------------------------------------------------------------------------


def plan_attention(found: Attention, target: Target, choices: Choices) -> AttentionPlan | None:
    """The tallest tiles of which there are enough for the device. Scores are kept in registers, for
    a chunk of keys, or for all where these are few and not a multiple of a chunk; else in shared
    memory."""
    assert target.gpu is not None
    keys, columns = (-(-_extent(found, k) // TILE_SIDE) for k in range(2))
    plans = [_plan(found, Warps(down, _over(columns, keys, down))) for down in _DOWN]
    own = [_in_registers(found, down) for down in _DOWN[:-1]] if _has_few_keys(found) else []
    online = _online(found, target.gpu)
    is_whole = _extent(found, 0) % _CHUNKS[-1] == 0
    own = [*online, *own] if is_whole else [*own, *online]
    even = [p for p in (*own, *plans) if 2 * _padded(p) <= 3 * _padded(plans[-1])]
    fitting = [p for p in even if _shared_bytes(p) <= target.gpu.shared]
    enough = [p for p in fitting if _count(p) >= _BUSY * target.gpu.multiprocessors]
    best = enough or [p for p in fitting if p.is_shared][-1:]
    if not best:
        return None
    by_choice = {p.choice: p for p in (best[0], *fitting)}
    plan = by_choice[choices.choose("rows", list(by_choice))]
    tiles = _tiles_each(plan, target.gpu)
    early = tiles > 1 and _shared_bytes(plan) + _bytes_of_rows(plan) <= target.gpu.shared
    return plan._replace(tiles_each=tiles, begins_early=early)


def _tiles_each(plan: AttentionPlan, gpu: Gpu) -> int:
    """How many tiles a block computes: several where a multiprocessor has room for one block only,
    so that the next tile's operands are copied while a tile ends. All blocks have the same
    number."""
    is_alone = plan.warps == Warps(2, GROUP, are_groups=True) and _extent(plan.found, 1) > PITCH
    count = _count(plan)
    most = max((n for n in range(1, gpu.multiprocessors + 1) if count % n == 0), default=1)
    return count // most if is_alone and most >= _BUSY * gpu.multiprocessors else 1


def _has_few_keys(found: Attention) -> bool:
    return found.powers is not None and _extent(found, 0) <= _MOST_OWN_KEYS


def _in_registers(found: Attention, down: int) -> AttentionPlan:
    """Each warp has all keys of its rows, copied all at once."""
    keys = _rounded_up(_extent(found, 0), TILE_SIDE)
    return AttentionPlan(found, Warps(down, 1), keys, keys, 1, "registers")


def _online(found: Attention, gpu: Gpu) -> list[AttentionPlan]:
    """Each warp loops over the keys of its rows in chunks, where a running maximum is possible."""
    if not _can_run(found):
        return []
    one, two = (Warps(down, GROUP, are_groups=True) for down in (1, 2))
    large, small = _CHUNKS
    groups = [(one, large), (one, small), (two, small), (two, large)]
    if _extent(found, 1) > PITCH:
        # Wide results leave registers for one block only, which should have many rows.
        groups.reverse()
    shapes = [*(groups if _suits_groups(found, gpu) else ())]
    shapes += [(Warps(down, 1), small) for down in _DOWN[:-1]]
    # Chunk sizes that divide the keys come first.
    shapes.sort(key=lambda shape: _extent(found, 0) % shape[1] != 0 and shape[1] == large)
    return [
        AttentionPlan(found, warps, keys, keys, _CHUNK_STAGES, "online")
        for warps, keys in shapes
        if keys < 2 * _extent(found, 0) or keys == small
    ]


def _suits_groups(found: Attention, gpu: Gpu) -> bool:
    """Whether groups of warps can multiply: results fit their threads' registers, and rows of
    operands are whole vectors."""
    depth, columns = extent_of(found.products[0].reduced[0]) or 1, _extent(found, 1)
    are_wide = depth % NEIGHBOURS == columns % NEIGHBOURS == 0
    return gpu.has_group_products and columns <= GROUP_COLUMNS[-1] // 2 and are_wide


def _can_run(found: Attention) -> bool:
    """Whether scores are only used in powers relative to their maximum, and these in sums."""
    if found.powers is None:
        return False
    s = found.prepared.copy()
    maximum = stores_of(s.block_of(found.reductions[0]))[0].buffer
    (store,) = stores_of(s.block_of(found.powers))
    if found.after is None:
        s.cache_write(found.second, 0, "local")
    return power_of(store.value, maximum) is not None and bool(s.can("factor_out", found.shares))


def _over(columns: int, keys: int, down: int) -> int:
    """The number of warps that share the columns of the result evenly, each with keys to do."""
    most = min(_MOST_WARPS // down, columns, keys)
    return max(n for n in range(1, most + 1) if columns % n == 0)


def _plan(found: Attention, warps: Warps) -> AttentionPlan:
    keys, side = _extent(found, 0), warps.over * TILE_SIDE
    tile = min(_rounded_up(keys, side), max(side, _KEYS // side * side))
    steps = min(_rounded_up(keys, TILE_SIDE), _STEPS)
    return AttentionPlan(found, warps, tile, steps, _STAGES)


def _padded(plan: AttentionPlan) -> int:
    return _rounded_up(extent_of(plan.found.products[0].row) or 0, plan.rows)


def _count(plan: AttentionPlan) -> int:
    heads = prod(extent_of(it) or 1 for it in plan.found.products[0].others)
    return heads * _padded(plan) // plan.rows


def _shared_bytes(plan: AttentionPlan) -> int:
    """Bytes for scores, left operands of the second product, and copies of operands."""
    size = plan.found.products[0].contraction.a.buffer.dtype.itemsize
    keys, columns = _extent(plan.found, 0), plan.tiles[1].columns
    depth = _rounded_up(extent_of(plan.found.products[0].reduced[0]) or 0, TILE_SIDE)
    scores = shares = 0
    if plan.is_shared:
        scores = plan.rows * (_rounded_up(keys, 32) + 32) * _F32.itemsize
        steps = _rounded_up(keys, plan.steps) // plan.steps
        shares = plan.rows * steps * (plan.steps + NEIGHBOURS)
    ahead = [min(plan.stages, -(-keys // n)) for n in (plan.keys, plan.steps)]
    copied = ahead[0] * plan.keys * (depth + NEIGHBOURS)
    copied += ahead[1] * plan.steps * (columns + NEIGHBOURS)
    parts = 2 * plan.rows * (plan.threads_of_row + 1) * _F32.itemsize
    return scores + parts + size * (shares + copied) + _bytes_of_rows(plan)


def _bytes_of_rows(plan: AttentionPlan) -> int:
    """Bytes for the rows of a tile, which are copied once."""
    first = plan.found.products[0]
    depth = _rounded_up(extent_of(first.reduced[0]) or 0, TILE_SIDE)
    return plan.rows * (depth + NEIGHBOURS) * first.contraction.a.buffer.dtype.itemsize
