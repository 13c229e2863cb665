"""LLVM's target machines: from LLVM IR to object code or assembly.

Our loops are vectorized and unrolled by their schedules, so LLVM's own loop transformations find
nothing; what remains is cleaning up. Of the pipelines that llvmlite offers, LLVM's function
simplification at level 1 (SROA, early CSE, LICM, InstCombine, SCCP, dead code) is the fastest and
gives code as good as -O3's on such loops: `benchmarks/llvm_pipeline.py` shows it.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any, Literal

from tilewright.support.errors import InternalError, UserError
from tilewright.target import Target

Relocation = Literal["static", "pic", "dynamicnopic", "default"]
# Modules and machines of llvmlite, which is untyped.
ModuleRef = Any
TargetMachine = Any

_initializing = threading.Lock()


def machine_for(target: Target, opt: int = 3) -> TargetMachine:
    """The target machine for a target; firmware is linked to fixed addresses."""
    reloc = "static" if target.is_bare else "pic"
    return target_machine(
        target.triple, target.llvm_cpu, target.llvm_features, opt=opt, reloc=reloc
    )


def plain_machine(triple: str) -> TargetMachine:
    """The target machine for the baseline processor of an architecture."""
    return machine_for(Target.of(f"llvm -mtriple={triple}"))


def target_machine(
    triple: str,
    cpu: str,
    features: str,
    *,
    opt: int = 3,
    reloc: Relocation = "pic",
    jit: bool = False,
) -> TargetMachine:
    """The machine that compiles for `cpu` of `triple`; made once for each set of arguments.

    `features` is LLVM's list, such as `+avx512f,-sse4a`. Code is position-independent and small,
    fit for the JIT (which links through stubs) and for shared libraries alike; `jit` only tells
    LLVM which one it is for. Threads may share a machine: llvmlite lets one in at a time.
    """
    with _initializing:
        return _target_machine(triple, cpu, features, opt, reloc, jit)


@cache
def _target_machine(
    triple: str, cpu: str, features: str, opt: int, reloc: Relocation, jit: bool
) -> TargetMachine:
    return _target(triple).create_target_machine(
        cpu=cpu,
        features=features,
        opt=opt,
        reloc=reloc,
        codemodel="default",
        jit=jit,
        abiname=_abi(triple, features),
    )


def _abi(triple: str, features: str) -> str:
    """RISC-V's ABI name; without one, floats are not passed in registers."""
    arch, known = triple.partition("-")[0], features.split(",")
    base = {"riscv64": "lp64", "riscv32": "ilp32"}.get(arch, "")
    widest = next((f for f in ("d", "f") if f"+{f}" in known), "")
    return base and base + widest


def _target(triple: str) -> Any:
    llvm = _llvm()
    try:
        return llvm.Target.from_triple(triple)
    except RuntimeError as error:
        raise UserError(
            f"cannot compile for target triple {triple!r}",
            reason=str(error).strip(),
            remedy="use a triple such as x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu",
        ) from None


@cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


def parse(text: str) -> ModuleRef:
    """The verified module of a text in LLVM IR."""
    llvm = _llvm()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise InternalError("cannot read generated LLVM IR", reason=str(error)) from None
    return module


def optimize(module: ModuleRef, machine: TargetMachine, *, briefly: bool = False) -> None:
    """Cleans `module` up in place: no vectorization, no unrolling, only `alwaysinline` inlining.

    `briefly` only promotes memory to registers and simplifies the control flow.
    """
    inliner, thorough, brief = _passes(machine)
    simplify = brief if briefly else thorough
    # One per module: a builder registers its callbacks anew with every run.
    builder = _pass_builder(machine)
    inliner.run(module, builder)
    for function in module.functions:
        if not function.is_declaration:
            simplify.run(function, builder)


@cache
def _passes(machine: TargetMachine) -> tuple[Any, Any, Any]:
    """The passes on modules, and those on functions: the full and the brief set.

    Made once per machine: llvmlite never frees a pass manager, nor what its passes hold.
    """
    inliner = _llvm().create_new_module_pass_manager()
    inliner.add_always_inliner_pass()
    inliner.add_global_dead_code_eliminate_pass()
    brief = _llvm().create_new_function_pass_manager()
    brief.add_sroa_pass()
    brief.add_simplify_cfg_pass()
    return inliner, _pass_builder(machine).getFunctionPassManager(), brief


def _pass_builder(machine: TargetMachine) -> Any:
    options = _llvm().create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = False
    options.loop_unrolling = options.loop_interleaving = False
    return _llvm().create_pass_builder(machine, options)


def emit_object(module: ModuleRef | str, machine: TargetMachine) -> bytes:
    """Object code of `module`, given as LLVM IR text or as parsed."""
    return machine.emit_object(_parsed(module))


def emit_assembly(module: ModuleRef | str, machine: TargetMachine) -> str:
    """Assembly of `module`, given as LLVM IR text or as parsed."""
    return machine.emit_assembly(_parsed(module))


def _parsed(module: ModuleRef | str) -> ModuleRef:
    return parse(module) if isinstance(module, str) else module
