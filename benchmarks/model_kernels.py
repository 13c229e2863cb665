"""Every kernel of a model by itself, beside the least time that the machine could take for it.

    python benchmarks/model_kernels.py MODEL.onnx [--level 3] [--peak GFLOP/S] [--bandwidth GB/S]

One thread, CPU time. `floor` is the longer of arithmetic at the peak and of touching everything
once at the bandwidth; both are measured unless given. `lost` is what the kernel takes beyond its
floor in one run of the model: the rows are sorted by it.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.compile import compile_fused, graph_passes
from tilewright.frontends import from_onnx
from tilewright.graph import (
    Binding,
    Function,
    KernelTable,
    Module,
    PassContext,
    Value,
    kernel_bindings,
    run_passes,
)
from tilewright.ir import Block, Const, walk


@dataclass
class Row:
    name: str
    calls: int
    seconds: float
    flops: float
    bytes: float
    floor: float

    @property
    def lost(self) -> float:
        return self.calls * (self.seconds - self.floor)


def cpu_seconds(run: Callable[[], object], least: float = 0.02) -> float:
    """The least CPU time of a call, over some repetitions."""
    run()
    best, spent = float("inf"), 0.0
    while spent < least:
        start = time.thread_time()
        run()
        took = time.thread_time() - start
        best, spent = min(best, took), spent + max(took, 1e-6)
    return best


def flops_of(function: Any) -> float:
    """Two for every step of a reduction, one for every other element."""
    total = 0.0
    for block in walk(function.body):
        if isinstance(block, Block):
            extents = [it.extent.value for it in block.iters if isinstance(it.extent, Const)]
            total += prod(extents) * (2 if block.init is not None else 1)
    return total


def bytes_of(values: list[Value]) -> float:
    return float(sum((v.tensor.size or 0) * v.dtype.itemsize for v in values))


def alone(binding: Binding, inputs: tuple[Value, ...]) -> Module:
    """A module with one kernel."""
    params = [v for v in inputs if not v.is_constant]
    names = [f"p{k}" for k in range(len(params))]
    for value, name in zip(params, names, strict=True):
        value.name = name
    return Module([Function("main", params, [binding], binding.outputs)])


def measured(binding: Binding, call: Any, target: tw.Target, calls: int, machine: Any) -> Row:
    model = compile_fused(alone(binding, call.inputs), target, 1)
    rng = np.random.default_rng(0)
    shapes = [v for v in call.inputs if not v.is_constant]
    arrays = [rng.random(v.tensor.static_shape).astype(v.dtype.numpy) for v in shapes]
    seconds = cpu_seconds(lambda: model.run(arrays))
    flops, size = flops_of(call.function), bytes_of([*call.inputs, *call.outputs])
    floor = max(flops / machine[0], size / machine[1])
    return Row(call.function.name, calls, seconds, flops, size, floor)


def rows_of(path: str, level: int, machine: tuple[float, float]) -> list[Row]:
    target, table = tw.Target.of("llvm"), KernelTable()
    with PassContext(opt_level=level):
        fused = run_passes(from_onnx(path), graph_passes(target))
    bindings = list(kernel_bindings(fused.main))
    calls = {b: table(b) for b in bindings}
    counts = Counter(c.function.name for c in calls.values())
    first = {c.function.name: b for b, c in reversed(calls.items())}
    return [measured(b, calls[b], target, counts[n], machine) for n, b in first.items()]


def machine_of(peak: float | None, bandwidth: float | None) -> tuple[float, float]:
    """Multiply-adds and bytes for each second of one thread: by a product, by a copy."""
    from tilewright import te
    from tilewright.tensor import ops

    n = 512
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    product = tw.build(te.function([a, b], [ops.matmul(a, b, name="C")], name="peak"), threads=1)
    x, y = np.ones((n, n), "f4"), np.ones((n, n), "f4")
    big, copy = np.ones(8 << 20, "f4"), np.empty(8 << 20, "f4")
    flops = 2 * n**3 / cpu_seconds(lambda: product(x, x, y), 0.2)
    rate = 2 * big.nbytes / cpu_seconds(lambda: np.copyto(copy, big), 0.1)
    return (peak * 1e9 if peak else flops), (bandwidth * 1e9 if bandwidth else rate)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model")
    parser.add_argument("--level", type=int, default=3)
    parser.add_argument("--peak", type=float)
    parser.add_argument("--bandwidth", type=float)
    parser.add_argument("--rows", type=int, default=30)
    args = parser.parse_args()
    machine = machine_of(args.peak, args.bandwidth)
    print(f"peak {machine[0] / 1e9:.1f} GFLOP/s, memory {machine[1] / 1e9:.1f} GB/s")
    rows = sorted(rows_of(args.model, args.level, machine), key=lambda r: -r.lost)
    print(f"{'kernel':64}{'calls':>6}{'ms':>9}{'GFLOP/s':>9}{'GB/s':>7}{'floor':>8}{'lost':>8}")
    for r in rows[: args.rows]:
        rates = f"{r.flops / r.seconds / 1e9:9.1f}{r.bytes / r.seconds / 1e9:7.1f}"
        times = f"{r.calls:6}{1e3 * r.seconds:9.3f}"
        print(f"{r.name[:62]:64}{times}{rates}{1e3 * r.floor:8.3f}{1e3 * r.lost:8.2f}")
    spent, floor = (sum(r.calls * s for r, s in zip(rows, t, strict=True)) for t in _totals(rows))
    print(f"{len(rows)} kernels: {1e3 * spent:.1f} ms in all, floor {1e3 * floor:.1f} ms")


def _totals(rows: list[Row]) -> tuple[list[float], list[float]]:
    return [r.seconds for r in rows], [r.floor for r in rows]


if __name__ == "__main__":
    main()
