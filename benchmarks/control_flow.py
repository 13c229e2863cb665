"""Loops beside the same kernels called from a plain native loop: what a trip costs beyond them.

python benchmarks/control_flow.py [--trips 10000]

The peer is a function in machine code that calls the compiled body again and again: the same
kernels, with nothing around them but a counter. The last column should stay below 3.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.graph import Builder, Module
from tilewright.runtime import CompiledModel

Body = Callable[[Builder, Any], Any]
_RNG = np.random.default_rng(0)
_W = (_RNG.standard_normal((16, 16)) / 4).astype(np.float32)

#: Small bodies: from one element to a few kernels.
BODIES: dict[str, tuple[tuple[int, ...], Body]] = {
    "an addition of 1": ((1,), lambda b, s: s + np.float32(1)),
    "a map of 256": ((256,), lambda b, s: b.tanh(s * np.float32(0.9))),
    "a product of 16×16": ((16, 16), lambda b, s: b.tanh(b.matmul(s, _W))),
    "three products": (
        (16, 16),
        lambda b, s: b.tanh(b.matmul(b.matmul(b.relu(b.matmul(s, _W)), _W), _W)),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trips", type=int, default=10_000)
    trips = parser.parse_args().trips
    print(f"{'body':24}{'loop ns':>10}{'branch ns':>12}{'kernels ns':>12}{'loop':>8}{'branch':>8}")
    for name, (shape, body) in BODIES.items():
        report(name, shape, body, trips)


def report(name: str, shape: tuple[int, ...], body: Body, trips: int) -> None:
    x = _RNG.standard_normal(shape).astype(np.float32)
    once = tw.compile(single(shape, body), threads=1)
    whole = tw.compile(looped(shape, body), threads=1)
    chosen = tw.compile(branching(shape, body), threads=1)
    count = np.array(trips, np.int64)
    kernels = native_loop(once, x, trips)
    loop, branch, plain = cpu_seconds(
        [lambda: whole.run([x, count]), lambda: chosen.run([x, count]), kernels]
    )
    each = [1e9 * t / trips for t in (loop, branch, plain)]
    row = f"{name:24}{each[0]:10.0f}{each[1]:12.0f}{each[2]:12.0f}"
    print(f"{row}{loop / plain:8.2f}{branch / plain:8.2f}", flush=True)


def single(shape: tuple[int, ...], body: Body) -> Module:
    b = Builder()
    b.output(body(b, b.input("x", "f32", shape)))
    return b.build()


def looped(shape: tuple[int, ...], body: Body) -> Module:
    b = Builder()
    x, n = b.input("x", "f32", shape), b.input("n", "i64", ())
    b.output(b.loop(n, [x], lambda i, s: [body(b, s)]))
    return b.build()


def branching(shape: tuple[int, ...], body: Body) -> Module:
    """The body on one side of a branch that all trips take."""
    b = Builder()
    x, n = b.input("x", "f32", shape), b.input("n", "i64", ())

    def step(i: Any, s: Any) -> list[Any]:
        return [b.branch(i < n, lambda: body(b, s), lambda: b.neg(s))]

    b.output(b.loop(n, [x], step))
    return b.build()


def native_loop(model: CompiledModel, x: Any, trips: int) -> Callable[[], None]:
    """A function that calls the code of a model so many times, by a loop in machine code."""
    import llvmlite.binding as llvm

    text = """
    define void @again(ptr %code, ptr %words, i64 %trips) {
    start: br label %head
    head: %i = phi i64 [0, %start], [%next, %head]
      %error = call i32 %code(ptr %words)
      %next = add i64 %i, 1
      %more = icmp slt i64 %next, %trips
      br i1 %more, label %head, label %end
    end: ret void
    }"""
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
    engine.finalize_object()
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    run = kind(engine.get_function_address("again"))
    call = model._bind([x], ())
    code, words = ctypes.cast(model._entry, ctypes.c_void_p), call.words
    return lambda held=(engine, call): run(code, words, trips)


def cpu_seconds(runs: list[Callable[[], object]], rounds: int = 15) -> list[float]:
    """The median CPU time of each, in turn."""
    samples: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, taken in zip(runs, samples, strict=True):
            start = time.thread_time()
            run()
            taken.append(time.thread_time() - start)
    return [statistics.median(s) for s in samples]


if __name__ == "__main__":
    main()
