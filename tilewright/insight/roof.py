"""What this machine can do at most, measured: the roof over every kernel.

Peaks out of data sheets hold for clocks and memory that nobody has; these are reached by code of
our own, on one thread by its processor time, so that a busy machine does not lower the roof. What
cores do not share is multiplied by their number.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from tilewright.compile import build
from tilewright.kernels.module import Module
from tilewright.target import Target
from tilewright.tensor import te

#: A product whose operands stay in the second-level cache.
_SIZE: Final = 192
#: Bytes that no cache holds.
_LARGE: Final = 64 << 20
_SAMPLES: Final = 8
#: What a sample takes at least, in seconds.
_SAMPLE: Final = 2e-3


@dataclass(frozen=True)
class Roof:
    """Operations per second, bytes per second from memory and from the caches."""

    flops: float
    memory: float
    cached: float
    #: What fits the caches near the cores.
    cache_bytes: int

    def floor(self, flops: float, bytes_: float) -> float:
        """The least seconds for so much work on so many bytes."""
        bandwidth = self.cached if bytes_ <= self.cache_bytes else self.memory
        return max(flops / self.flops, bytes_ / bandwidth)


@cache
def measure_roof(threads: int | None = None) -> Roof:
    """The roof of this machine for so many threads; it takes about half a second."""
    target = Target.of("llvm")
    cores = threads or target.cores
    near = _copy_rate(target.caches.l2 // 4)
    far = _copy_rate(_LARGE)
    if cores > 1:
        # Memory is shared: only all cores together tell.
        far = max(far, _together(_LARGE, cores))
    return Roof(_product_rate() * cores, far, near * cores, target.caches.l2 * cores)


def _product_rate() -> float:
    """The operations per second of a product of matrices in single precision."""
    shape = (_SIZE, _SIZE)
    a, b = te.placeholder(shape, name="a"), te.placeholder(shape, name="b")
    k = te.reduce_axis(_SIZE, name="k")
    c = te.compute(shape, lambda *i: te.sum(a[i[0], k] * b[k, i[1]], axis=k), name="c")
    module = build(te.function([a, b], [c], name="product"), threads=1)
    return 2 * _SIZE**3 / _seconds(module, shape, 3)


def _copy_rate(size: int) -> float:
    """The bytes per second of reading so many and writing as many."""
    return 2 * size / _seconds(_doubling(size, 1), (size // 4,), 2)


def _together(size: int, threads: int) -> float:
    arrays = [np.ones(size // 4, np.float32) for _ in range(2)]
    timing = _doubling(size, threads).time(*arrays, repeat=_SAMPLES, min_repeat_ms=2.0)
    return 2 * size / timing.min


def _doubling(size: int, threads: int) -> Module:
    shape = (size // 4,)
    a = te.placeholder(shape, name="a")
    twice = te.compute(shape, lambda *i: a[i] * 2.0, name="twice")
    return build(te.function([a], [twice], name="double"), threads=threads)


def _seconds(module: Module, shape: tuple[int, ...], count: int) -> float:
    """The least processor time of a call on so many arrays."""
    run = module.native.prepared(*(np.ones(shape, np.float32) for _ in range(count)))
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
