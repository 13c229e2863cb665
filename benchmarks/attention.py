"""Attention as one kernel beside the same by separate kernels: time, floor and memory.

    python benchmarks/attention.py [--rounds 40]

One thread, CPU time, the least over rounds that take turns. The floor is that of the two products
at the rate of a large product on this machine, with nothing for the softmax.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.graph import Builder, Module, PassContext

#: Batches, tokens, heads, and elements of a head.
SIZES = ((1, 128, 12, 64), (1, 197, 12, 64), (64, 49, 3, 32), (1, 512, 12, 64))


def attention(batch: int, tokens: int, heads: int, depth: int) -> Module:
    """softmax(q @ k.T * scale + mask) @ v on the rows that projections make."""
    b = Builder()
    shape, width = [batch, tokens, heads, depth], heads * depth
    q, k, v = (
        b.transpose(b.reshape(b.input(n, "f32", (batch, tokens, width)), shape=shape), axes=axes)
        for n, axes in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3]))
    )
    mask = b.input("mask", "f32", (1, 1, tokens, tokens))
    shares = b.softmax(b.matmul(q, k) * np.float32(depth**-0.5) + mask)
    y = b.transpose(b.matmul(shares, v), axes=[0, 2, 1, 3])
    b.output(b.reshape(y, shape=[batch, tokens, width]))
    return b.build()


def compiled(module: Module, *disabled: str) -> Any:
    with PassContext(opt_level=3, disabled_passes=set(disabled)):
        return tw.compile(module, threads=1)


def least(runs: list[Callable[[], object]], rounds: int) -> list[float]:
    best = [float("inf")] * len(runs)
    for _ in range(rounds):
        for k, run in enumerate(runs):
            start = time.thread_time()
            run()
            best[k] = min(best[k], time.thread_time() - start)
    return best


def rate_of_products(n: int = 384) -> float:
    b = Builder()
    b.output(b.matmul(b.input("x", "f32", (n, n)), np.ones((n, n), "f4")))
    model, x = compiled(b.build()), np.ones((n, n), "f4")
    return 2 * n**3 / least([lambda: model.run([x])], 20)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    rate, rng = rate_of_products(), np.random.default_rng(0)
    print(f"{'':24}{'one':>9}{'separate':>10}{'floor':>8} ms{'one':>9}{'separate':>10} KiB")
    for batch, tokens, heads, depth in SIZES:
        module = attention(batch, tokens, heads, depth)
        models = [compiled(module), compiled(module, "fuse_attention")]
        rows = (batch, tokens, heads * depth)
        arrays = [rng.standard_normal(rows).astype("f4") for _ in "qkv"]
        arrays.append(rng.standard_normal((1, 1, tokens, tokens)).astype("f4"))
        one, separate = least([partial(m.run, arrays) for m in models], rounds)
        floor = 4 * batch * heads * tokens**2 * depth / rate
        memory = [(m.arena_bytes or 0) / 1024 for m in models]
        times = f"{1e3 * one:9.3f}{1e3 * separate:10.3f}{1e3 * floor:8.3f}   "
        name = f"{batch} × {tokens}, {heads} heads of {depth}"
        print(f"{name:24}{times}{memory[0]:9.0f}{memory[1]:10.0f}")


if __name__ == "__main__":
    main()
