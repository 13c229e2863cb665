"""The roofline of this machine, measured: upper bounds for every kernel.

Peaks in data sheets assume clocks and bandwidths that real machines do not reach. These are
measured with our own code, on one thread by its processor time, so that a busy machine does not
lower the roof. Resources that cores do not share are multiplied by their number.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.compile import build
from tilewright.kernels.module import Module
from tilewright.schedule import Schedule
from tilewright.target import Target
from tilewright.tensor import te

#: Tiles of sums, computed one after the other; vectors per row of a tile, and pairs of registers
#: left for operands.
_TILES: Final = 64
_VECTORS: Final = 2
_FREE: Final = 2
#: Bytes of the factors of GPU tensor instructions, by precision.
_FACTOR_BYTES: Final = {
    "tf32": 4,
    "float16": 2,
    "bf16": 2,
    "int8-dynamic": 1,
    "int8": 1,
    "float8": 1,
}
#: More bytes than any cache holds.
_LARGE: Final = 64 << 20
_SAMPLES: Final = 8
#: Minimum seconds of a sample.
_SAMPLE: Final = 2e-3


class Level(NamedTuple):
    """A level of memory: its capacity, and its bytes per second for reads and writes together."""

    capacity: float
    rate: float


@dataclass(frozen=True)
class Roof:
    """Upper bounds for a number of threads: operations per second, bytes per second by level."""

    flops: float
    #: From the nearest level to memory, whose capacity is infinite.
    levels: tuple[Level, ...]
    #: Seconds to fork the threads and to join them.
    fork_join: float = 0.0

    @property
    def memory(self) -> float:
        return self.levels[-1].rate

    @property
    def cached(self) -> float:
        """The bytes per second of the private caches."""
        return self.levels[0].rate

    def rate(self, held: float) -> float:
        """The bytes per second of the level that holds this many bytes."""
        return next(level.rate for level in self.levels if held <= level.capacity)

    def floor(self, flops: float, bytes_: float) -> float:
        """The minimum seconds for this much work on this many bytes."""
        return max(flops / self.flops, bytes_ / self.rate(bytes_))


def roof_of(target: Target, precision: str, threads: int | None = None) -> Roof:
    """The roof of the machine for a target: of a GPU by its data sheet, of this machine by
    measurement. `precision` is that of a model's products."""
    gpu = target.gpu
    if gpu is None:
        return measure_roof(threads)
    word = precision.partition(" ")[0]
    itemsize = _FACTOR_BYTES.get(word)
    flops = gpu.flops if itemsize is None else gpu.tensor_flops_of(itemsize)
    return Roof(flops, (Level(math.inf, gpu.bandwidth),))


@cache
def measure_roof(threads: int | None = None) -> Roof:
    """The roof of this machine for a number of threads; takes about a second."""
    target = Target.of("llvm")
    cores = threads or target.cores
    # Values between kernels are hardly ever in a nearer level than L2.
    own = target.caches.l2 or target.caches.l1d
    levels = [Level(own * cores, _copy_rate(own // 4) * cores)]
    # The bandwidth of shared levels requires all cores at work.
    if target.caches.l3:
        levels.append(Level(target.caches.l3, _shared_rate(target.caches.l3 // 4, cores)))
    far = _shared_rate(max(_LARGE, 2 * target.caches.l3), cores)
    levels.append(Level(math.inf, far))
    return Roof(_product_rate() * cores, tuple(levels), _fork_join(cores))


def _shared_rate(size: int, cores: int) -> float:
    alone = _copy_rate(size)
    return alone if cores == 1 else max(alone, _together(size, cores))


def _fork_join(cores: int) -> float:
    """The minimum seconds of a loop with one element per thread, in excess of one thread's."""
    if cores == 1:
        return 0.0
    a = te.placeholder((cores,), name="a")
    each = te.compute((cores,), lambda *i: a[i] * 2.0, name="each")
    schedule = Schedule(te.function([a], [each], name="each"))
    schedule.parallel(schedule.loops("each")[0])
    arrays = [np.ones(cores, np.float32) for _ in range(2)]
    times = [
        build(schedule, threads=t).time(*arrays, repeat=_SAMPLES, min_repeat_ms=2.0).min
        for t in (1, cores)
    ]
    return max(0.0, times[1] - times[0])


def _product_rate() -> float:
    """The operations per second of products with sums in registers and operands in L1."""
    target = Target.of("llvm")
    lanes = target.lanes("float32")
    rows, columns = target.vector_registers // _VECTORS - _FREE, _VECTORS * lanes
    depth = target.caches.l1d // 2 // (4 * (rows + columns))
    shapes = [(depth, rows), (depth, columns), (_TILES, rows, columns)]
    a, b = te.placeholder(shapes[0], name="a"), te.placeholder(shapes[1], name="b")
    k = te.reduce_axis(depth, name="k")
    c = te.compute(shapes[2], lambda *at: te.sum(a[k, at[1]] * b[k, at[2]], axis=k), name="c")
    s = Schedule(te.function([a, b], [c], name="tiles"))
    copy = s.cache_write("c", 0, "local")
    tile, i, j, along = s.loops("c")
    vectors, lane = s.split(j, None, lanes)
    s.reorder(tile, along, i, vectors, lane)
    s.vectorize(lane)
    for loop in (i, vectors):
        s.unroll(loop)
    s.vectorize(s.split(s.reverse_compute_at(copy, tile)[-1], None, lanes)[1])
    arrays = [np.ones(shape, np.float32) for shape in shapes]
    return 2 * _TILES * rows * columns * depth / _seconds(build(s, threads=1), arrays)


def _copy_rate(size: int) -> float:
    """The bytes per second of reading `size` bytes and writing as many."""
    arrays = [np.ones(size // 4, np.float32) for _ in range(2)]
    return 2 * size / _seconds(_doubling(size, 1), arrays)


def _together(size: int, threads: int) -> float:
    arrays = [np.ones(size // 4, np.float32) for _ in range(2)]
    timing = _doubling(size, threads).time(*arrays, repeat=_SAMPLES, min_repeat_ms=2.0)
    return 2 * size / timing.min


def _doubling(size: int, threads: int) -> Module:
    shape = (size // 4,)
    a = te.placeholder(shape, name="a")
    twice = te.compute(shape, lambda *i: a[i] * 2.0, name="twice")
    return build(te.function([a], [twice], name="double"), threads=threads)


def _seconds(module: Module, arrays: Sequence[np.ndarray[Any, Any]]) -> float:
    """The minimum processor time of a call on these arrays."""
    run = module.native.prepared(*arrays)
    start = time.thread_time()
    run()
    calls = 1 + int(_SAMPLE / max(time.thread_time() - start, 1e-6))
    least = float("inf")
    for _ in range(_SAMPLES):
        start = time.thread_time()
        for _ in range(calls):
            run()
        least = min(least, (time.thread_time() - start) / calls)
    return least
