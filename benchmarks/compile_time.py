"""How long compiling takes: importing the package, single kernels, graphs of growing length.

python benchmarks/compile_time.py [--nodes 100 1000 10000] [--models FILE.onnx …]

With models, nothing but these is timed: each in a process of its own with an empty cache, and in
another one after that; processor seconds are those of all processes, workers among them.

Nothing is taken from the kernel cache unless the row says so. A graph's passes must grow in step
with its length: the last column is the time per node, which should stay about the same.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright import ops, te
from tilewright.graph import Builder, Module, PassContext, PassTimer


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--models", type=Path, nargs="+", default=[])
    args = parser.parse_args()
    if args.models:
        report_models(args.models)
        return
    os.environ["TILEWRIGHT_CACHE"] = "0"
    report_import()
    report_kernels()
    report_networks()
    report_chains(args.nodes)


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


# ---- import -------------------------------------------------------------------------------------


def report_import() -> None:
    print(f"import tilewright beside numpy: {1e3 * _import_seconds('tilewright'):.0f} ms")
    print(
        f"all of its rooms: {1e3 * _import_seconds('tilewright.compile, tilewright.graph'):.0f} ms"
    )


def _import_seconds(names: str) -> float:
    clock = "time.perf_counter()"
    program = f"import numpy, time; t = {clock}; import {names}; print({clock} - t)"
    runs = [
        float(
            subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
        )
        for _ in range(7)
    ]
    return statistics.median(runs)


# ---- kernels ------------------------------------------------------------------------------------


def matmul(size: int) -> tw.Function:
    a, b = te.placeholder((size, size), name="A"), te.placeholder((size, size), name="B")
    return te.function([a, b], [ops.matmul(a, b)], name="matmul")


def convolution(channels: int, side: int) -> tw.Function:
    x = te.placeholder((1, channels, side, side), name="X")
    w = te.placeholder((channels, channels, 3, 3), name="W")
    y = ops.conv(x, w, pads=[1] * 4)
    relu = te.compute(y.shape, lambda *i: te.maximum(y[i], 0.0), name="relu")
    return te.function([x, w], [relu], name="conv")


def report_kernels() -> None:
    rows = {
        "matmul 512": lambda: matmul(512),
        "conv 3×3, 64 channels of 56×56, relu": lambda: convolution(64, 56),
    }
    # The first build loads LLVM.
    tw.build(matmul(8)).native  # noqa: B018
    print(f"\n{'kernel':40}{'seconds':>10}")
    for name, define in rows.items():
        taken = statistics.median(seconds(lambda d=define: tw.build(d()).native) for _ in range(3))
        print(f"{name:40}{taken:10.2f}")


# ---- networks -----------------------------------------------------------------------------------


def residual_network(blocks: int) -> Module:
    """Convolutions in blocks of two with shortcuts; the width doubles in the middle."""
    rng = np.random.default_rng(0)
    b = Builder()
    x = b.input("x", "f32", (1, 32, 56, 56))

    def conv(x: object, cin: int, cout: int, stride: int = 1) -> object:
        w = rng.standard_normal((cout, cin, 3, 3)).astype(np.float32)
        bias = rng.standard_normal((cout, 1, 1)).astype(np.float32)
        return b.conv(x, w, strides=[stride] * 2, pads=[1] * 4) + bias

    width = 32
    for k in range(blocks):
        if k == blocks // 2:
            x, width = b.relu(conv(x, width, 2 * width, 2)), 2 * width
        x = b.relu(conv(b.relu(conv(x, width, width)), width, width) + x)
    b.output(x)
    return b.build()


def report_networks() -> None:
    print(f"\n{'network':40}{'cold s':>10}{'warm s':>10}{'kernels':>10}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TILEWRIGHT_CACHE"], os.environ["TILEWRIGHT_CACHE_DIR"] = "1", folder
        for blocks in (2, 8, 32):
            module = residual_network(blocks)
            start = time.perf_counter()
            model = tw.build(module)
            cold = time.perf_counter() - start
            warm = seconds(lambda m=module: tw.compile(m))
            row = f"{blocks} residual blocks"
            print(f"{row:40}{cold:10.2f}{warm:10.2f}{len(model.kernels):10}", flush=True)
        os.environ["TILEWRIGHT_CACHE"] = "0"


# ---- models -------------------------------------------------------------------------------------


def report_models(files: list[Path]) -> None:
    heads = ("cold cpu s", "cold s", "warm cpu s", "warm s")
    print(f"{'model':32}" + "".join(f"{head:>12}" for head in heads))
    for file in files:
        with tempfile.TemporaryDirectory() as folder:
            taken = [*_compiled_elsewhere(file, folder), *_compiled_elsewhere(file, folder)]
        print(f"{file.stem:32}" + "".join(f"{t:12.2f}" for t in taken), flush=True)


def _compiled_elsewhere(file: Path, cache: str) -> tuple[float, float]:
    """Processor seconds, and seconds, of a process that compiles a model."""
    program = f"import tilewright as tw; tw.compile({str(file)!r})"
    settings = {**os.environ, "TILEWRIGHT_CACHE": "1", "TILEWRIGHT_CACHE_DIR": cache}
    before = _cpu_of_children()
    wall = seconds(
        lambda: subprocess.run([sys.executable, "-c", program], env=settings, check=True)
    )
    return _cpu_of_children() - before, wall


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


# ---- chains -------------------------------------------------------------------------------------


def chain(nodes: int) -> Module:
    """A chain of elementwise operators with a product here and there."""
    rng = np.random.default_rng(0)
    b = Builder()
    x = y = b.input("x", "f32", (16, 16))
    w = rng.standard_normal((16, 16)).astype(np.float32) / np.float32(4)
    steps: list[Callable[[object], object]] = [
        lambda v: b.tanh(v),
        lambda v: v + x,  # type: ignore[operator]
        lambda v: b.mul(v, np.float32(0.77)),
        lambda v: b.matmul(v, w),
        lambda v: b.sigmoid(v),
    ]
    for k in range(nodes):
        y = steps[k % len(steps)](y)
    b.output(y)
    return b.build()


def report_chains(lengths: list[int]) -> None:
    print(f"\n{'chain of nodes':>16}{'passes s':>10}{'all s':>10}{'peak MB':>10}{'µs a node':>12}")
    tw.compile(chain(10))
    timers: dict[int, PassTimer] = {}
    for nodes in lengths:
        timer = timers[nodes] = PassTimer()
        module = chain(nodes)
        with PassContext(instruments=[timer]):
            taken = seconds(lambda m=module: tw.compile(m))
        passes = sum(timer.seconds.values())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{nodes:16}{passes:10.2f}{taken:10.2f}{peak:10.0f}{1e6 * passes / nodes:12.0f}")
    report_passes(timers)


def report_passes(timers: dict[int, PassTimer]) -> None:
    """Microseconds a node of every pass: a row that grows is a pass that is not linear."""
    print(f"\n{'µs a node':28}" + "".join(f"{nodes:>10}" for nodes in timers))
    for name in dict.fromkeys(n for timer in timers.values() for n in timer.seconds):
        times = [1e6 * t.seconds.get(name, 0.0) / nodes for nodes, t in timers.items()]
        print(f"{name:28}" + "".join(f"{time:10.0f}" for time in times))


if __name__ == "__main__":
    main()
