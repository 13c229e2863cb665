"""Which of LLVM's pipelines fits loops that come vectorized and unrolled.

A matrix-multiply micro-kernel of about 1,800 instructions, as a naive generator writes it (the
accumulators in memory, every address computed in full), goes through several pipelines. Shown are
the time of the passes, of emitting object code and of loading it, and how fast the result runs.

    python benchmarks/llvm_pipeline.py
"""

from __future__ import annotations

import ctypes
import itertools
import time
from collections.abc import Callable
from typing import Any

import llvmlite.binding
import llvmlite.ir
import numpy as np

from tilewright.codegen.llvm.machine import emit_object, optimize, parse, target_machine
from tilewright.runtime.jit import LoadedCode

ROWS, VECTORS, LANES, UNROLL = 6, 4, 4, 4
DEPTH, PANELS, REPEATS = 64, 8, 200

ir: Any = llvmlite.ir
llvm: Any = llvmlite.binding
F32, I64, PTR = ir.FloatType(), ir.IntType(64), ir.PointerType()
VECTOR = ir.VectorType(F32, LANES)
ZERO = ir.Constant(VECTOR, None)


class Kernel:
    """C[panel] = sum over k of A[k] × B[panel, k], written without any thought."""

    def __init__(self, triple: str) -> None:
        self.module = ir.Module("kernel")
        self.module.triple = triple
        self.fma = ir.Function(
            self.module, ir.FunctionType(VECTOR, [VECTOR] * 3), f"llvm.fma.v{LANES}f32"
        )
        kind = ir.FunctionType(ir.VoidType(), [PTR, PTR, PTR, I64, I64])
        function = ir.Function(self.module, kind, "kernel")
        self.a, self.b, self.c, self.depth, panels = function.args
        for argument in (self.a, self.b, self.c):
            argument.add_attribute("noalias")
        self.build = ir.IRBuilder(function.append_basic_block())
        self.sums = [self._slot() for _ in range(ROWS * VECTORS)]
        self._loop(panels, self._panel)
        self.build.ret_void()

    def _slot(self) -> Any:
        slot = self.build.alloca(VECTOR)
        slot.type = PTR
        return slot

    def _loop(self, stop: Any, body: Callable[[Any], None]) -> None:
        build, before = self.build, self.build.block
        head, inside, done = (build.append_basic_block(n) for n in ("head", "body", "done"))
        build.branch(head)
        build.position_at_end(head)
        index = build.phi(I64)
        index.add_incoming(I64(0), before)
        build.cbranch(build.icmp_signed("<", index, stop), inside, done)
        build.position_at_end(inside)
        body(index)
        index.add_incoming(build.add(index, I64(1)), build.block)
        build.branch(head)
        build.position_at_end(done)

    def _element(self, base: Any, row: Any, width: int, column: int) -> Any:
        offset = self.build.add(self.build.mul(row, I64(width)), I64(column))
        return self.build.gep(base, [offset], inbounds=True, source_etype=F32)

    def _panel(self, panel: Any) -> None:
        build = self.build
        for slot in self.sums:
            build.store(ZERO, slot)
        self._loop(self.depth, lambda k: self._steps(panel, k))
        for i, slot in enumerate(self.sums):
            row, column = divmod(i, VECTORS)
            at = build.add(I64(row), build.mul(panel, I64(ROWS)))
            target = self._element(self.c, at, VECTORS * LANES, column * LANES)
            build.store(build.load(slot, typ=VECTOR), target, align=4)

    def _steps(self, panel: Any, k: Any) -> None:
        build = self.build
        for step in range(UNROLL):
            for i, slot in enumerate(self.sums):
                row, column = divmod(i, VECTORS)
                here = build.add(build.mul(k, I64(UNROLL)), I64(step))
                depth = build.mul(self.depth, I64(UNROLL))
                b_row = build.add(build.mul(panel, depth), here)
                a = build.load(self._element(self.a, here, ROWS, row), typ=F32)
                b_at = self._element(self.b, b_row, VECTORS * LANES, column * LANES)
                b = build.load(b_at, typ=VECTOR, align=4)
                product = build.call(self.fma, [self._spread(a), b, build.load(slot, typ=VECTOR)])
                build.store(product, slot)

    def _spread(self, scalar: Any) -> Any:
        index = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
        first = self.build.insert_element(ZERO, scalar, ir.IntType(32)(0))
        return self.build.shuffle_vector(first, ZERO, index)


def _options(level: int) -> Any:
    options = llvm.create_pipeline_tuning_options(level)
    options.loop_unrolling = options.loop_interleaving = False
    options.loop_vectorization = options.slp_vectorization = False
    return options


def _function_level(level: int) -> Callable[[Any, Any], None]:
    def run(module: Any, machine: Any) -> None:
        builder = llvm.create_pass_builder(machine, _options(level))
        passes = builder.getFunctionPassManager()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)

    return run


def _module_level(level: int) -> Callable[[Any, Any], None]:
    def run(module: Any, machine: Any) -> None:
        builder = llvm.create_pass_builder(machine, _options(level))
        builder.getModulePassManager().run(module, builder)

    return run


def _listed(*names: str) -> Callable[[Any, Any], None]:
    def run(module: Any, machine: Any) -> None:
        passes = llvm.create_new_module_pass_manager()
        for name in names:
            getattr(passes, f"add_{name}_pass")()
        passes.run(module, llvm.create_pass_builder(machine, _options(2)))

    return run


_HAND = ("sroa", "simplify_cfg", "instruction_combine", "loop_rotate", "new_gvn")
PIPELINES: dict[str, Callable[[Any, Any], None]] = {
    "no passes": lambda module, machine: None,
    "tilewright": optimize,
    "function -O2": _function_level(2),
    "by hand, with NewGVN": _listed(*_HAND, "dead_store_elimination", "instruction_combine"),
    "module -O2": _module_level(2),
    "module -O3": _module_level(3),
}


def _gflops(code: LoadedCode) -> float:
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64)
    kernel = kind(code.address("kernel"))
    steps = DEPTH * UNROLL
    a = np.ones(steps * ROWS, np.float32)
    b = np.ones(PANELS * steps * VECTORS * LANES, np.float32)
    c = np.zeros(PANELS * ROWS * VECTORS * LANES, np.float32)
    best = float("inf")
    for _ in range(REPEATS):
        start = time.perf_counter()
        kernel(a.ctypes.data, b.ctypes.data, c.ctypes.data, DEPTH, PANELS)
        best = min(best, time.perf_counter() - start)
    assert (c == steps).all()
    return 2 * steps * c.size / best / 1e9


def main() -> None:
    triple = llvm.get_process_triple()
    machine = target_machine(triple, llvm.get_host_cpu_name(), "")
    text = str(Kernel(triple).module)
    print(f"{sum(line.startswith('  ') for line in text.splitlines())} instructions")
    print(f"{'pipeline':22}{'passes':>10}{'emit':>10}{'load':>10}{'speed':>16}")
    for name, pipeline in PIPELINES.items():
        module = parse(text)
        times = [time.perf_counter()]
        pipeline(module, machine)
        times.append(time.perf_counter())
        objects = emit_object(module, machine)
        times.append(time.perf_counter())
        code = LoadedCode([objects])
        times.append(time.perf_counter())
        spent = "".join(f"{1e3 * (b - a):7.1f} ms" for a, b in itertools.pairwise(times))
        print(f"{name:22}{spent}{_gflops(code):9.1f} GFLOP/s")


if __name__ == "__main__":
    main()
