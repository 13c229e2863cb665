"""Target machines, the pass pipeline, and object code for all targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.llvm import backend
from tilewright.codegen.llvm.backend import LlvmCode
from tilewright.codegen.llvm.machine import (
    emit_assembly,
    emit_object,
    optimize,
    parse,
    target_machine,
)
from tilewright.graph import Builder
from tilewright.support.errors import InternalError, UserError

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"

# An accumulator in memory, its address computed anew each time, and a loop.
LOOP = """
target triple = "{triple}"
define float @dot(ptr noalias %a, ptr noalias %b, i64 %n) {{
entry:
  %acc = alloca float
  store float 0.0, ptr %acc
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %body]
  %go = icmp slt i64 %i, %n
  br i1 %go, label %body, label %done
body:
  %scaled = mul i64 %i, 1
  %pa = getelementptr float, ptr %a, i64 %scaled
  %pb = getelementptr float, ptr %b, i64 %scaled
  %x = load float, ptr %pa
  %y = load float, ptr %pb
  %old = load float, ptr %acc
  %xy = fmul contract float %x, %y
  %new = fadd contract float %old, %xy
  store float %new, ptr %acc
  %next = add i64 %i, 1
  br label %head
done:
  %result = load float, ptr %acc
  ret float %result
}}
define internal float @inlined(float %x) alwaysinline {{
  %y = fadd float %x, 1.0
  ret float %y
}}
define float @outer(float %x) {{
  %y = call float @inlined(float %x)
  ret float %y
}}
"""


def test_machines_are_made_once() -> None:
    machine = target_machine(X86, "skylake-avx512", "")
    assert target_machine(X86, "skylake-avx512", "") is machine
    assert target_machine(X86, "skylake-avx512", "-avx512f") is not machine
    assert target_machine(X86, "skylake-avx512", "", opt=1) is not machine


@pytest.mark.parametrize("triple", [X86, ARM])
def test_pipeline_cleans_up_and_does_not_transform_loops(triple: str) -> None:
    module = parse(LOOP.format(triple=triple))
    optimize(module, target_machine(triple, "", ""))
    text = str(module)
    assert "alloca" not in text, "accumulators live in registers"
    assert "@inlined" not in text, "alwaysinline functions are inlined and gone"
    assert text.count("fmul") == 1, "no unrolling"
    assert " x float>" not in text, "no vectorizing"


def test_features_reach_the_code() -> None:
    text = LOOP.format(triple=X86)
    assert "vfmadd" in emit_assembly(text, target_machine(X86, "haswell", ""))
    assert "vfmadd" not in emit_assembly(text, target_machine(X86, "haswell", "-fma"))


@pytest.mark.parametrize(
    ("triple", "magic"),
    [(X86, b"\x7fELF"), (ARM, b"\x7fELF"), ("arm64-apple-macosx12.0", b"\xcf\xfa\xed\xfe")],
)
def test_object_code(triple: str, magic: bytes) -> None:
    assert emit_object(LOOP.format(triple=triple), target_machine(triple, "", "")).startswith(magic)


def test_unknown_triples_are_refused() -> None:
    with pytest.raises(UserError, match="target triple 'pdp11-dec-unix'"):
        target_machine("pdp11-dec-unix", "", "")


def test_bad_ir_is_our_fault() -> None:
    with pytest.raises(InternalError, match=r"generated LLVM IR(.|\n)*please report it"):
        parse("define i32 @f() { ret i64 0 }")


def test_long_programs_are_optimized_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    module = parse(LOOP.format(triple=X86))
    optimize(module, target_machine(X86, "", ""), briefly=True)
    assert "alloca" not in str(module) and "mul i64" in str(module)
    monkeypatch.setattr(backend, "_LONG", 0)
    b = Builder()
    x = b.input("x", "f32", ("n", 3))
    b.output(b.softmax(b.concat(x, x, axis=0), axis=0))
    (result,) = tw.compile(b.build()).run([np.zeros((2, 3), np.float32)])
    np.testing.assert_allclose(result, np.full((4, 3), 0.25))


def test_a_host_program_is_optimized_once(monkeypatch: pytest.MonkeyPatch) -> None:
    programs: list[Any] = []
    own: Any = LlvmCode._optimized

    def optimized(self: Any, text: str) -> Any:
        programs.extend([self] if self._is_host else [])
        return own(self, text)

    monkeypatch.setattr(LlvmCode, "_optimized", optimized)
    b = Builder()
    b.output(b.relu(b.input("x", "f32", ("n",))))
    tw.compile(b.build())
    assert len(programs) == 1
