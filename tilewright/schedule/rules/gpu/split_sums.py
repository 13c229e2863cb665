"""Products with few tiles and long sums: parts of the sums in parallel, joined by a second launch.

for m: for n: for k: C[m, n] += A[m, k] * B[k, n]
-->
for p: for m: for n: for k: P[p, m, n] += A[m, p * length + k] * B[p * length + k, n]
for m: for n: for p: C[m, n] += P[p, m, n]

The first is a batched product, for the rule for products; the second an ordinary sum, with which
the elementwise epilogue is fused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log, prod, sqrt
from typing import Final, NamedTuple

from tilewright.ir import TILE_SIDE, DType, Iter, Var, const
from tilewright.schedule.rules.analysis import extent_of
from tilewright.schedule.rules.gpu.product_plan import SHORT, Product, match_product
from tilewright.schedule.rules.gpu.tensor_tiles import estimate, estimate_by_groups
from tilewright.schedule.rules.gpu.warp_tiles import has_instruction
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Gpu, Target

_F32: Final = DType.of("float32")
#: The side of the tiles that are counted. Few rows have tiles of as many results.
_TILE: Final = 64
#: The fewest steps of a part; and where rows are few, so that the parts are products by a large
#: matrix as well.
_LEAST: Final = 64
_LEAST_OF_FEW: Final = SHORT + _LEAST
#: Parts are multiples of these if possible: the depths of tiles in shared memory.
_STEPS: Final = (64, 32)
#: The length of sums from which a second launch pays even where every multiprocessor has a tile.
_LONG: Final = 4096
#: Tiles that each multiprocessor should have.
_EACH: Final = 2
#: Groups of warps are chosen while their estimate is at most this multiple of that of warps: they
#: write fewer partial sums, and parts by warps take longer than estimated.
_NEAR: Final = 1.05
#: Bytes of partial sums whose writing and reading takes as long as an iteration of a tile.
_BYTES_OF_STEP: Final = 2_000_000


class LongProduct(NamedTuple):
    """A product, the number of its tiles and results, and the length of its sum."""

    product: Product
    tiles: int
    results: int
    length: int


def _match(s: Schedule, name: str, target: Target) -> LongProduct | None:
    found = match_product(s, name, target)
    # For windows of images, splitting the first variable of the sum is slower.
    counted = None if found is None or len(found.reduced) > 1 else _counted(found, target)
    if counted is None or target.gpu is None:
        return None
    each = 1 if counted.length >= _LONG else _EACH
    is_small = each * counted.tiles <= target.gpu.multiprocessors
    return counted if is_small and _parts(counted, target) > 1 else None


def _counted(found: Product, target: Target) -> LongProduct | None:
    sides = [extent_of(it) for it in (found.row, found.column)]
    others, length = [extent_of(it) for it in found.others], extent_of(found.reduced[0])
    if length is None or None in (*sides, *others):
        return None
    batch, (rows, columns) = prod(e or 0 for e in others), (side or 0 for side in sides)
    down = TILE_SIDE if _has_few_rows(found, target) else _TILE
    tiles = batch * -(-rows // down) * -(-columns // (_TILE * _TILE // down))
    return LongProduct(found, tiles, batch * rows * columns, length)


def _has_few_rows(found: Product, target: Target) -> bool:
    """Whether all rows fit one tile of an instruction: reading the matrix is most of the work."""
    return (extent_of(found.row) or _TILE) <= TILE_SIDE and has_instruction(found, target)


def _parts(found: LongProduct, target: Target) -> int:
    """The number of equally long parts: at most what keeps the device busy, and about what balances
    the cost of the partial sums."""
    gpu = target.gpu
    assert gpu is not None
    wanted = _EACH * gpu.multiprocessors // max(1, found.tiles)
    by_few = _has_few_rows(found.product, target)
    most = min(wanted, found.length // (_LEAST_OF_FEW if by_few else _LEAST))
    even = [n for n in range(1, most + 1) if found.length % n == 0]
    lengths = [[n for n in even if n > 1 and found.length // n % steps == 0] for steps in _STEPS]
    candidates = next(filter(None, lengths), even)
    if by_few:
        return min([1, *candidates], key=lambda n: _seconds(found, n, gpu, _estimated))
    if has_instruction(found.product, target) and estimate(found.product, gpu).by_groups:
        return _parts_of_groups(found, [1, *candidates], gpu)
    # The n for which n partial sums take as long to write and read as the steps of a part.
    best = sqrt(found.length / _STEPS[0] * _BYTES_OF_STEP / _moved(found))
    return min(candidates, key=lambda n: abs(log(n / best)), default=1)


def _parts_of_groups(found: LongProduct, candidates: Sequence[int], gpu: Gpu) -> int:
    """The number of parts for groups of warps, unless warps are clearly faster."""
    by_groups = {n: _seconds(found, n, gpu, estimate_by_groups) for n in candidates}
    by_any = {n: _seconds(found, n, gpu, _estimated) for n in candidates}
    times = by_groups if min(by_groups.values()) <= _NEAR * min(by_any.values()) else by_any
    return min(candidates, key=lambda n: times[n])


def _estimated(found: Product, gpu: Gpu) -> float:
    return estimate(found, gpu).seconds


def _seconds(
    found: LongProduct, parts: int, gpu: Gpu, estimated: Callable[[Product, Gpu], float]
) -> float:
    """Estimated seconds of both launches, or of the only one with a single part."""
    (along,) = found.product.reduced
    part = along._replace(extent=const(found.length // parts))
    batch = Iter(Var("part", along.var.dtype), const(parts), "spatial")
    cut = found.product._replace(others=(*found.product.others, batch), reduced=(part,))
    joined = gpu.launch_time * 1e-9 + parts * _moved(found) / gpu.bandwidth if parts > 1 else 0.0
    return estimated(cut, gpu) + joined


def _moved(found: LongProduct) -> int:
    """Bytes of the partial sums of one part, written and read again."""
    return 2 * _F32.itemsize * max(1, found.results)


def _plan(found: LongProduct, target: Target, choices: Choices) -> int:
    own = _parts(found, target)
    others = [n for n in (2 * own, own // 2) if n > 1 and found.length % n == 0]
    return choices.choose("parts", [own, *others])


def _schedule(s: Schedule, name: str, parts: int, _target: Target) -> None:
    block = s.block_of(name)
    loops = zip(block.iters, s.loops(name), strict=True)
    first = next(loop for it, loop in loops if it.kind == "reduce")
    part, _ = s.split(first, parts, None)
    s.rfactor(part, 0)


SPLIT_SUMS = Rule("split_sums", _match, _plan, _schedule)
