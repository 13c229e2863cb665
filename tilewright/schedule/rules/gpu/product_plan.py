"""Products on GPUs: how they are recognised, and their tiles."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import Final, NamedTuple

from tilewright.ir import Block, Buffer, Const, Factors, Iter, Load, Var, all_exprs, find_factors
from tilewright.schedule.rules.analysis import (
    Contraction,
    as_contraction,
    extent_of,
    has_own_loops,
)
from tilewright.schedule.rules.gpu.grid import only_reduces
from tilewright.schedule.rules.gpu.results import following
from tilewright.schedule.rules.rule import Choices
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: Threads of a block in each direction.
SIDE: Final = 16
#: Contiguous elements that a thread takes at once.
LANES: Final = 4
#: The approximate number of steps of the sum whose operands are in shared memory together.
_DEPTH: Final = 16
#: The most of them, where windows need more.
_MOST_DEPTH: Final = 160
#: Products with fewer rows, columns or steps are left to other rules.
_LEAST: Final = 8
#: Few rows are multiplied by a large matrix like many: reading it takes longer than multiplying it
#: by rows of padding. From so many elements of the matrix on, the fewest such rows.
_LEAST_BY_LARGE: Final = ((1 << 25, 2), (1 << 19, 4))
#: Sums of at most so many steps are short, as attention's are.
SHORT: Final = 128
#: Bytes per element from which such a matrix is left to the rule `few_rows`.
_WIDE: Final = 4
#: The value assumed for an extent that is known only at run time.
_UNKNOWN: Final = 1024


class Tile(NamedTuple):
    """Rows and columns of a tile."""

    rows: int
    columns: int


#: The fraction of the multiprocessors that should have a tile.
_BUSY: Final = 0.75
#: From large to small: the largest of which there are enough is used.
_TILES: Final = (Tile(128, 128), Tile(64, 128), Tile(64, 64), Tile(32, 64), Tile(16, 64))


class Product(NamedTuple):
    """The variables that tiles are cut from, the other ones, and those of the sum."""

    contraction: Contraction
    row: Iter
    column: Iter
    others: tuple[Iter, ...]
    reduced: tuple[Iter, ...]

    @property
    def factors(self) -> Factors | None:
        """The types of the operands, if there are tensor instructions for them."""
        c = self.contraction
        return find_factors(*(access.buffer.dtype for access in (c.a, c.b, c.out)))


class Plan(NamedTuple):
    """The product with its tile and the steps of the sum computed at a time: the last `inner`
    variables whole, and `steps` of the one before them."""

    product: Product
    tile: Tile
    inner: int
    steps: int


def match_product(s: Schedule, name: str, _target: Target) -> Product | None:
    return product_of(s.block_of(name)) if has_own_loops(s, name) else None


def product_of(block: Block) -> Product | None:
    c = as_contraction(block) if only_reduces(block) else None
    if c is None or not c.rows or not c.columns or c.a.buffer is c.b.buffer:
        return None
    row, column = c.rows[-1], c.columns[-1]
    others = tuple(it for it in block.iters if it.kind == "spatial" and it not in (row, column))
    reduced = tuple(it for it in block.iters if it.kind == "reduce")
    found = Product(c, row, column, others, reduced)
    length = prod(extent_of(it) or _UNKNOWN for it in reduced)
    extents = [extent_of(it) or _UNKNOWN for it in (row, column)]
    is_large = min(*extents, length) >= _LEAST
    return found if is_large or is_by_large_matrix(found) else None


def is_by_large_matrix(p: Product) -> bool:
    """Whether rows, but not too few, are multiplied by a large matrix of a type for tensor
    instructions."""
    sizes = [extent_of(it) for it in (p.row, p.column, *p.reduced, *p.others)]
    is_narrow = p.factors is not None and p.factors.a.itemsize < _WIDE
    if not is_narrow or len(p.reduced) > 1 or None in sizes:
        return False
    rows, columns, length, *others = (size or 0 for size in sizes)
    elements = prod(others) * columns * length
    is_enough = any(elements >= large and rows >= least for large, least in _LEAST_BY_LARGE)
    return is_enough and rows <= columns and length > SHORT


def match_followed(s: Schedule, name: str, target: Target) -> Product | None:
    """A product whose results another block reads one by one."""
    found, home = match_product(s, name, target), following(s, name)
    if found is None or home is None:
        return None
    return found if _reads_plainly(s.block_of(home), found.contraction.out.buffer) else None


def plan_product(found: Product, target: Target, choices: Choices) -> Plan:
    assert target.gpu is not None
    rows, columns = (extent_of(it) or _UNKNOWN for it in (found.row, found.column))
    others = prod(extent_of(it) or 1 for it in found.others)

    def tiles(tile: Tile) -> int:
        return others * -(-rows // tile.rows) * -(-columns // tile.columns)

    fitting = [t for t in _TILES if tiles(t) >= _BUSY * target.gpu.multiprocessors]
    own = next((t for t in fitting if t.rows < 2 * rows and t.columns < 2 * columns), _TILES[-1])
    tile = choices.choose("tile", [own, *(t for t in _TILES if t != own)])
    inner, steps = _steps(found.reduced, tile)
    return Plan(found, tile, inner, choices.choose("steps", (steps, 2 * steps)))


def _steps(reduced: Sequence[Iter], tile: Tile) -> tuple[int, int]:
    """How many of the last variables of a sum are computed whole, and how many steps of the one
    before: such that all threads copy equally much, there is little padding, and a tile is about
    `_DEPTH` deep."""
    extents = [extent_of(it) for it in reduced]
    found: list[tuple[float, int, int, int]] = []
    together = 1
    for inner in range(len(extents)):
        length = extents[len(extents) - 1 - inner]
        even = _even(together, tile)
        steps = max(even, _DEPTH // together // even * even)
        padded = 1.0 if length is None else -(-length // steps) * steps / max(1, length)
        if together * steps <= _MOST_DEPTH or not found:
            found.append((padded, abs(together * steps - _DEPTH), inner, steps))
        if length is None:
            break
        together *= length
    _, _, inner, steps = min(found)
    return inner, steps


def _even(together: int, tile: Tile) -> int:
    """The least number of steps, each of `together`, with which all threads copy equally much."""
    threads = SIDE * SIDE
    return max(threads // gcd(threads, side * together) for side in tile)


def _reads_plainly(block: Block, buffer: Buffer) -> bool:
    loads = [e for e in all_exprs(block.body) if isinstance(e, Load) and e.buffer is buffer]
    return all(isinstance(i, Var | Const) for load in loads for i in load.indices)
