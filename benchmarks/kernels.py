"""Kernels without tuning, beside torch (MKL or OpenBLAS, oneDNN) and NumPy, in one run.

    python benchmarks/kernels.py [--threads 1,2] [--only WORD] [--rounds N]

Every kernel is the default schedule of a plain compute definition. The answers are compared first;
times are medians of interleaved rounds. `ratio` is torch's time over ours: above 1 we are faster.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nn
from interleaved import interleaved

import tilewright as tw
from tilewright import ops, te
from tilewright.runtime import aligned_empty
from tilewright.schedule import packed_columns

Array = np.ndarray[Any, Any]

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


@dataclass
class Case:
    """One kernel: ours, and the same in torch and NumPy."""

    name: str
    function: tw.Function
    inputs: list[Array]
    output: Array
    torch: Callable[[], torch.Tensor]
    numpy: Callable[[], Array] | None
    work: float  # floating-point operations, or bytes where `unit` is GB/s
    unit: str
    wanted: float
    #: How the output looks in torch's layout.
    view: Callable[[Array], Array] = lambda a: a
    tolerance: float = 2e-5


def random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


# ---- matmul -------------------------------------------------------------------------------------


def matmul(m: int, n: int, k: int) -> Case:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    f = te.function([a, b], [ops.matmul(a, b, name="C")], name="matmul")
    x, y, out = random(m, k), random(k, n), np.empty((m, n), np.float32)
    tx, ty, to = torch.from_numpy(x), torch.from_numpy(y), torch.empty(m, n)
    return Case(
        f"matmul {m}x{k}x{n}",
        f,
        [x, y],
        out,
        lambda: torch.mm(tx, ty, out=to),
        lambda: np.matmul(x, y),
        2 * m * n * k,
        "GFLOP/s",
        1.0,
    )


def packed_matmul(m: int, n: int, k: int) -> Case:
    """The right operand in blocks of as many columns as a register tile has."""
    width = packed_columns(tw.Target.of("llvm"), "float32", n)
    blocks = -(-n // width)
    a, b = te.placeholder((m, k), name="A"), te.placeholder((blocks, k, width), name="B")
    r = te.reduce_axis(k, name="k")
    c = te.compute(
        (m, blocks, width), lambda i, jo, ji: te.sum(a[i, r] * b[jo, r, ji], axis=r), name="C"
    )
    f = te.function([a, b], [c], name="packed_matmul")
    x, y = random(m, k), random(k, n)
    padded = np.zeros((k, blocks * width), np.float32)
    padded[:, :n] = y
    packed = np.ascontiguousarray(padded.reshape(k, blocks, width).transpose(1, 0, 2))
    out = np.empty((m, blocks, width), np.float32)
    tx, ty, to = torch.from_numpy(x), torch.from_numpy(y), torch.empty(m, n)
    return Case(
        f"matmul {m}x{k}x{n}, B packed",
        f,
        [x, packed],
        out,
        lambda: torch.mm(tx, ty, out=to),
        None,
        2 * m * n * k,
        "GFLOP/s",
        1.1,
        lambda o: o.reshape(m, -1)[:, :n],
    )


def int8_matmul(n: int) -> Case:
    a, b = te.placeholder((n, n), "int8", name="A"), te.placeholder((n, n), "int8", name="B")
    f = te.function([a, b], [ops.matmul(a, b, dtype="int32", name="C")], name="int8_matmul")
    chance = np.random.default_rng(n)
    x, y = (chance.integers(-128, 128, (n, n)).astype(np.int8) for _ in range(2))
    tx, ty = torch.from_numpy(x), torch.from_numpy(y)
    return Case(
        f"int8 matmul {n}",
        f,
        [x, y],
        np.empty((n, n), np.int32),
        lambda: torch._int_mm(tx, ty),
        None,
        2 * n**3,
        "GOP/s",
        1.0,
        tolerance=0.0,
    )


def bf16_matmul(n: int) -> Case:
    a, b = (
        te.placeholder((n, n), "bfloat16", name="A"),
        te.placeholder((n, n), "bfloat16", name="B"),
    )
    f = te.function([a, b], [ops.matmul(a, b, dtype="float32", name="C")], name="bf16_matmul")
    small = tw.DType.of("bfloat16").numpy
    x, y = random(n, n).astype(small), np.ascontiguousarray(random(n, n)[::-1].astype(small))
    tx, ty = (torch.from_numpy(v.view(np.int16)).view(torch.bfloat16) for v in (x, y))
    return Case(
        f"bf16 matmul {n}",
        f,
        [x, y],
        np.empty((n, n), np.float32),
        lambda: torch.mm(tx, ty),
        None,
        2 * n**3,
        "GFLOP/s",
        1.0,
        # torch rounds its results to bfloat16.
        tolerance=1e-2,
    )


def small_types() -> Iterator[Case]:
    """Products of small types; torch's are thousands of times slower where it has no kernel."""
    here = tw.Target.of("llvm")
    yield int8_matmul(1024 if here.has("avx512vnni") or here.has("avxvnni") else 256)
    if any(map(here.has, ("amx-bf16", "avx512bf16", "bf16"))):
        yield bf16_matmul(1024)


# ---- convolutions -------------------------------------------------------------------------------


def conv(c: int, o: int, size: int, kernel: int, stride: int = 1, block: int = 16) -> Case:
    """Blocked channels and packed weights against channels-last with weights torch has packed."""
    inner = min(block, c) if c % block else block
    pad = kernel // 2
    data = te.placeholder((1, c // inner, size, size, inner), name="X")
    weight = te.placeholder((o // block, c // inner, kernel, kernel, inner, block), name="W")
    y = ops.conv_blocked(data, weight, strides=[stride] * 2, pads=[pad] * 4, name="Y")
    f = te.function([data, weight], [y], name="conv2d")
    x, w = random(1, c, size, size), random(o, c, kernel, kernel) / kernel
    xb = _blocked(x, inner)
    wb = w.reshape(o // block, block, c // inner, inner, kernel, kernel)
    wb = np.ascontiguousarray(wb.transpose(0, 2, 4, 5, 3, 1))
    out_size = (size + 2 * pad - kernel) // stride + 1
    out = np.empty((1, o // block, out_size, out_size, block), np.float32)
    name = f"conv {kernel}x{kernel} {c}->{o} at {size}" + (
        f" stride {stride}" if stride > 1 else ""
    )
    work = 2.0 * o * c * kernel * kernel * out_size**2
    return Case(
        name,
        f,
        [xb, wb],
        out,
        _torch_conv(x, w, stride, pad, 1),
        None,
        work,
        "GFLOP/s",
        1.1,
        _unblocked,
    )


def depthwise(c: int, size: int, stride: int = 1, block: int = 16) -> Case:
    data = te.placeholder((1, c // block, size, size, block), name="X")
    weight = te.placeholder((c // block, 3, 3, block), name="W")
    y = ops.depthwise_blocked(data, weight, strides=[stride] * 2, pads=[1] * 4, name="Y")
    f = te.function([data, weight], [y], name="depthwise")
    x, w = random(1, c, size, size), random(c, 1, 3, 3)
    wb = np.ascontiguousarray(w.reshape(c // block, block, 3, 3).transpose(0, 2, 3, 1))
    out_size = (size - 1) // stride + 1
    out = np.empty((1, c // block, out_size, out_size, block), np.float32)
    return Case(
        f"depthwise 3x3 {c} at {size}",
        f,
        [_blocked(x, block), wb],
        out,
        _torch_conv(x, w, stride, 1, c),
        None,
        2.0 * 9 * c * out_size**2,
        "GFLOP/s",
        1.1,
        _unblocked,
    )


def _blocked(x: Array, block: int) -> Array:
    n, c, h, w = x.shape
    return np.ascontiguousarray(x.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2))


def _unblocked(y: Array) -> Array:
    n, o, h, w, b = y.shape
    return y.transpose(0, 1, 4, 2, 3).reshape(n, o * b, h, w)


def _torch_conv(x: Array, w: Array, stride: int, pad: int, groups: int) -> Callable[[], Any]:
    """The faster of torch's ways: plain channels-last, or oneDNN with weights packed beforehand."""
    tx = torch.from_numpy(x).contiguous(memory_format=torch.channels_last)
    tw_ = torch.from_numpy(w).contiguous(memory_format=torch.channels_last)
    sides = [pad, pad], [stride, stride], [1, 1]

    def plain() -> Any:
        return nn.conv2d(tx, tw_, None, stride, pad, 1, groups)

    ways = {"plain": plain}
    try:
        packed = torch._C._nn.mkldnn_reorder_conv2d_weight(
            tw_.to_mkldnn(), *sides, groups, list(tx.shape)
        )

        def prepacked() -> Any:
            return torch.ops.mkldnn._convolution_pointwise(
                tx, packed, None, *sides, groups, "none", [], ""
            )

        if torch.allclose(prepacked(), plain(), atol=1e-2):
            ways["packed"] = prepacked
    except (RuntimeError, AttributeError):
        pass  # this build of torch has no oneDNN
    chosen: list[Callable[[], Any]] = []

    def faster() -> Any:
        # Chosen when it is first run: who asks for our kernels alone need not wait for it.
        if not chosen:
            times = interleaved(ways, rounds=5, slice_ms=3)
            chosen.append(ways[min(ways, key=lambda k: times[k].median)])
        return chosen[0]()

    return faster


# ---- memory-bound kernels -----------------------------------------------------------------------


def rowwise(name: str, rows: int, columns: int) -> Case:
    x = te.placeholder((rows, columns), name="X")
    a = random(rows, columns)
    ta = torch.from_numpy(a)
    gamma, beta = random(columns), random(columns)
    g, b = te.placeholder((columns,), name="G"), te.placeholder((columns,), name="B")
    tg, tb = torch.from_numpy(gamma), torch.from_numpy(beta)
    ours: dict[str, Callable[[], te.Tensor]] = {
        "softmax": lambda: ops.softmax(x, axis=-1),
        "layer norm": lambda: ops.layer_norm(x, g, b),
        "gelu": lambda: ops.gelu(x),
        "sum rows": lambda: ops.sum(x, axes=(1,)),
        "sum columns": lambda: ops.sum(x, axes=(0,)),
        "transpose": lambda: ops.transpose(x, axes=(1, 0)),
    }
    theirs: dict[str, Callable[[], Any]] = {
        "softmax": lambda: torch.softmax(ta, -1),
        "layer norm": lambda: nn.layer_norm(ta, (columns,), tg, tb),
        "gelu": lambda: nn.gelu(ta),
        "sum rows": lambda: ta.sum(1),
        "sum columns": lambda: ta.sum(0),
        "transpose": lambda: ta.t().contiguous(),
    }
    normalizes = name == "layer norm"
    y, ref = ours[name](), theirs[name]
    inputs, extra = ([x, g, b], [gamma, beta]) if normalizes else ([x], [])
    f = te.function(inputs, [y], name=name.replace(" ", "_"))
    # Aligned, as models have their results: lines of the cache can be written as a whole.
    out = aligned_empty([int(d.value) for d in y.shape], np.dtype(np.float32))
    return Case(
        f"{name} {rows}x{columns}",
        f,
        [a, *extra],
        out,
        ref,
        None,
        a.nbytes + out.nbytes,
        "GB/s",
        1.3,
        tolerance=1e-4,
    )


def cases() -> Iterator[Case]:
    for n in (256, 512, 1024, 2048):
        yield matmul(n, n, n)
    yield matmul(1000, 333, 777)
    yield matmul(1, 4096, 4096)
    yield matmul(128, 3072, 768)
    for n in (256, 512, 1024, 2048):
        yield packed_matmul(n, n, n)
    yield packed_matmul(128, 3072, 768)
    yield from small_types()
    yield conv(256, 64, 56, 1)
    yield conv(64, 256, 56, 1)
    yield conv(64, 64, 56, 3)
    yield conv(512, 512, 7, 3)
    yield conv(128, 128, 56, 3, stride=2)
    yield conv(3, 64, 224, 7, stride=2)
    yield depthwise(32, 112)
    yield depthwise(576, 14)
    for name in ("softmax", "layer norm", "gelu", "sum rows", "sum columns", "transpose"):
        yield rowwise(name, 256, 256)
        yield rowwise(name, 4096, 4096)


def copy_bandwidth(nbytes: int) -> Callable[[], object]:
    # Zeros that were never written would all be read from one page.
    source = np.ones(nbytes // 8, np.float32)
    target = np.ones_like(source)
    return lambda: np.copyto(target, source)


def run(case: Case, threads: int, rounds: int) -> None:
    torch.set_num_threads(threads)
    target = tw.Target.of(f"llvm -num-cores={threads}")
    module = tw.build(case.function, target, threads=threads)
    args = [*case.inputs, case.output]
    module(*args)
    expected = case.torch().to(torch.float64).numpy()
    error = np.abs(case.view(case.output) - expected).max() / max(1e-9, np.abs(expected).max())
    assert error <= case.tolerance, f"{case.name}: relative error {error:.1e}"
    runs: dict[str, Callable[[], object]] = {
        "ours": module.native.prepared(*args),
        "torch": case.torch,
    }
    if case.numpy is not None:
        runs["numpy"] = case.numpy
    if case.unit == "GB/s":
        runs["copy"] = copy_bandwidth(int(case.work))
    times = {name: t.median for name, t in interleaved(runs, rounds).items()}
    rates = "  ".join(f"{n} {case.work / t / 1e9:8.1f}" for n, t in times.items())
    ratio = times["torch"] / times["ours"]
    mark = "ok" if ratio >= case.wanted else f"wanted {case.wanted}"
    print(f"{case.name:32} {threads}T  ratio {ratio:5.2f}  {rates} {case.unit}  {mark}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    counts = options.threads.split(",")
    if counts == [os.environ.get(_BLAS_THREADS)]:
        run_all(int(counts[0]), options.only, options.rounds)
        return
    rest = ["--only", options.only, "--rounds", str(options.rounds)]
    for count in counts:
        # NumPy's threads are told their number before it is imported, and to sleep at once when
        # they are done: they would hold a core that others are measured on.
        quiet = {_BLAS_THREADS: count, "OPENBLAS_THREAD_TIMEOUT": "4"}
        command = [sys.executable, __file__, "--threads", count, *rest]
        subprocess.run(command, env={**os.environ, **quiet}, check=True)


def run_all(threads: int, only: str, rounds: int) -> None:
    with processors(threads):
        print(f"# {tw.Target.of('llvm')}", flush=True)
        for case in cases():
            if only in case.name:
                run(case, threads, rounds)


@contextmanager
def processors(count: int) -> Iterator[None]:
    """As many as there are threads: some of torch's kernels start more than they are told."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(allowed)[:count])
    yield
    os.sched_setaffinity(0, allowed)


if __name__ == "__main__":
    main()
