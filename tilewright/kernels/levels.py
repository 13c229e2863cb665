"""A kernel on every level: loops as defined, as scheduled, LLVM IR, assembly."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import Function
from tilewright.support.denormals import Denormals
from tilewright.target import Target


@dataclass(frozen=True)
class Levels:
    """One kernel as it goes down the pipeline; each level is text."""

    name: str
    loops: str
    scheduled: str
    llvm: str
    asm: str


def kernel_levels(function: Function, target: Target, denormals: Denormals = "flush") -> Levels:
    """All levels of a kernel, by the steps that `kernels.compile_function` takes."""
    from tilewright.codegen import emit_assembly, generate, optimize, parse, target_machine
    from tilewright.kernels.compiled import default_schedule
    from tilewright.lower import lower, split_constant_work

    scheduled = default_schedule(function, target)
    split = split_constant_work(scheduled)
    lowered = lower(split.function if split else scheduled, target, denormals=denormals)
    kernel = generate(lowered, target, denormals=denormals)
    machine = target_machine(target.triple, target.llvm_cpu, target.llvm_features)
    module = parse(kernel.llvm)
    optimize(module, machine)
    llvm, asm = str(module), emit_assembly(module, machine)
    return Levels(function.name, str(function), str(scheduled), llvm, asm)
