"""What this machine can do at most, measured: the roof over every kernel.

Peaks out of data sheets hold for clocks and memory that nobody has; these are reached by code of
our own in the same process, a moment before or after what they are compared with.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from tilewright.compile import build
from tilewright.module import Module
from tilewright.target import Target
from tilewright.tensor import te

#: A product whose operands stay in the second-level cache.
_SIZE: Final = 192
#: Bytes that no cache holds.
_LARGE: Final = 64 << 20


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
    near = target.caches.l2 * cores
    return Roof(_product(threads, cores), _copy(_LARGE, threads), _copy(near // 4, threads), near)


def _product(threads: int | None, cores: int) -> float:
    """A batch of products, one for each core, of single precision."""
    shape = (cores, _SIZE, _SIZE)
    a, b = te.placeholder(shape, name="a"), te.placeholder(shape, name="b")
    k = te.reduce_axis(_SIZE, name="k")
    c = te.compute(shape, lambda *i: te.sum(a[i[0], i[1], k] * b[i[0], k, i[2]], axis=k), name="c")
    module = build(te.function([a, b], [c], name="product"), threads=threads)
    return 2 * cores * _SIZE**3 / _seconds(module, shape, 3)


def _copy(size: int, threads: int | None) -> float:
    shape = (size // 4,)
    a = te.placeholder(shape, name="a")
    twice = te.compute(shape, lambda *i: a[i] * 2.0, name="twice")
    module = build(te.function([a], [twice], name="copy"), threads=threads)
    return 2 * size / _seconds(module, shape, 2)


def _seconds(module: Module, shape: tuple[int, ...], arrays: int) -> float:
    made = [np.ones(shape, np.float32) for _ in range(arrays)]
    return module.time(*made, repeat=8, min_repeat_ms=5.0, warmup=2).min
