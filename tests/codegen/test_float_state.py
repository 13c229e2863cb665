"""Entries of kernels set the floating-point state and put the caller's back, where they can."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from tilewright import te
from tilewright.codegen.llvm.machine import emit_assembly, target_machine
from tilewright.codegen.llvm.threadpool import threadpool_module
from tilewright.support.denormals import DENORMALS, Denormals


def exponentials() -> Any:
    x = te.placeholder((8,), "float32", name="x")
    return te.function([x], [te.compute((8,), lambda i: te.exp(x[i]), name="y")], name="f")


def function_of(asm: str, name: str) -> str:
    """The instructions of one function."""
    text = asm[asm.index(f"\n{name}:") :]
    return text[: text.index("\t.size\t")]


#: How the register is read and written, and what it is set to.
REGISTERS = {
    "x86_64": ("stmxcsr", "ldmxcsr", {"flush": str(0x9FC0), "keep": str(0x1F80)}),
    "aarch64": ("FPCR", "FPCR", {"flush": "#16777216", "keep": "xzr"}),
}


@pytest.mark.parametrize("denormals", DENORMALS.values())
@pytest.mark.parametrize("arch", REGISTERS)
def test_entries_set_the_state_and_kernels_do_not(arch: str, denormals: Denormals) -> None:
    target = f"llvm -mtriple={arch}-unknown-linux-gnu"
    asm = tw.build(exponentials(), target, denormals=denormals).asm
    reads, writes, words = REGISTERS[arch]
    entry, kernel = function_of(asm, "f.entry"), function_of(asm, "f")
    found = [line for line in entry.splitlines() if reads in line or writes in line]
    # Read, set, and after the call put back.
    assert len(found) == 3
    assert words[denormals] in entry
    assert entry.index(reads) < entry.index("\tf") < entry.rindex(writes)
    assert reads not in kernel and writes not in kernel


@pytest.mark.parametrize("arch", REGISTERS)
def test_regions_carry_the_state_to_workers(arch: str) -> None:
    triple = f"{arch}-unknown-linux-gnu"
    text = emit_assembly(str(threadpool_module(triple)), target_machine(triple, "", ""))
    reads, writes, _ = REGISTERS[arch]
    assert reads in function_of(text, "tw_pool_run")
    assert writes in function_of(text, "tw_adopt_floats")


def test_where_the_machine_cannot_the_functions_flush() -> None:
    built = [tw.build(exponentials(), "llvm -mtriple=riscv64-unknown-linux-gnu", denormals=mode)
             for mode in DENORMALS.values()]  # fmt: skip
    flush, keep = (str(module.ir("expand_math")) for module in built)
    assert " if abs(" in flush and " if " not in keep
