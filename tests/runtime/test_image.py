"""Linking object code: where things lie, what addresses become, what is left to LLVM."""

from __future__ import annotations

import ctypes
import struct

import llvmlite.binding as llvm
import pytest

from tilewright.codegen.llvm.machine import emit_object, target_machine
from tilewright.runtime.image import Image, image_of
from tilewright.runtime.jit import LoadedCode
from tilewright.support.errors import InternalError, UserError

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
BASE, OUTSIDE, PAGE = 0x300000000000, 0x7F1234567890, 4096
TEXT = """
declare i64 @outside(i64)
declare i64 @beside(i64)
@elsewhere = external global i64
@written = global i64 7
@pointer = global ptr @written
@table = constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
define i64 @first(i64 %x) {
  %a = call i64 @outside(i64 %x)
  %b = call i64 @beside(i64 %a)
  %c = load i64, ptr @elsewhere
  %at = getelementptr [4 x i64], ptr @table, i64 0, i64 %c
  %d = load i64, ptr %at
  %e = add i64 %b, %d
  ret i64 %e
}
"""
BESIDE = """
define i64 @beside(i64 %x) {
  %y = add i64 %x, 5
  ret i64 %y
}
"""


def compiled(text: str, triple: str) -> bytes:
    return emit_object(f'target triple = "{triple}"\n{text}', target_machine(triple, "", ""))


def image(triple: str) -> Image:
    made = image_of([compiled(TEXT, triple), compiled(BESIDE, triple)], PAGE)
    assert made is not None
    return made


@pytest.mark.parametrize("triple", [X86, ARM])
def test_code_constants_and_data_have_pages_of_their_own(triple: str) -> None:
    made = image(triple)
    assert [(p.is_code, p.is_written) for p in made.parts] == [
        (True, False),
        (False, False),
        (False, True),
    ]
    ends = [0, *(p.end for p in made.parts)]
    assert [p.begin for p in made.parts] == ends[:-1]
    assert made.size == ends[-1] and made.size % PAGE == 0
    assert made.symbols["first"] < ends[1] <= made.symbols["table"] < ends[2]
    assert ends[2] <= made.symbols["written"] < ends[3]


@pytest.mark.parametrize("triple", [X86, ARM])
def test_addresses_are_written(triple: str) -> None:
    made = image(triple)
    placed = made.placed(BASE, {"outside": OUTSIDE, "elsewhere": OUTSIDE + 8})
    (pointer,) = struct.unpack_from("<Q", placed, made.symbols["pointer"])
    assert pointer == BASE + made.symbols["written"]
    assert struct.unpack_from("<4q", placed, made.symbols["table"]) == (10, 20, 30, 40)
    for address in (OUTSIDE, OUTSIDE + 8):
        # Too far for an instruction: it is written down once, after the jump to it.
        assert placed.count(struct.pack("<Q", address)) == 1


def test_calls_on_arm_go_where_they_should() -> None:
    made = image(ARM)
    placed = made.placed(BASE, {"outside": OUTSIDE, "elsewhere": OUTSIDE + 8})
    words = struct.unpack_from(f"<{made.parts[0].end // 4}I", placed)
    calls = {
        4 * k + 4 * ((w & 0x3FFFFFF) - ((w & 0x2000000) << 1))
        for k, w in enumerate(words)
        if w >> 26 == 0b100101
    }
    jump = placed.index(struct.pack("<Q", OUTSIDE)) - 8
    assert calls == {made.symbols["beside"], jump}


def test_what_is_unknown_is_left_to_llvm() -> None:
    shared = compiled("@own = thread_local global i64 1", llvm.get_process_triple())
    assert image_of([shared], PAGE) is None
    assert image_of([compiled(BESIDE, "riscv64-unknown-linux-gnu")], PAGE) is None
    assert image_of([], PAGE) is None


def test_damaged_objects_are_refused() -> None:
    with pytest.raises(UserError, match="cannot load object code: it is damaged"):
        image_of([compiled(BESIDE, X86)[:-200]], PAGE)


def test_names_that_may_be_missing_are_zero() -> None:
    weak = """
@there = extern_weak global i64
define i64 @is_there() {
  %a = ptrtoint ptr @there to i64
  ret i64 %a
}
"""
    code = LoadedCode([compiled(weak, llvm.get_process_triple())])
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(code.address("is_there"))() == 0


@pytest.mark.parametrize("triple", [X86, ARM])
def test_out_of_reach_is_an_error(triple: str) -> None:
    direct = "@elsewhere = external dso_local global i64\n" + BESIDE.replace(
        "%y = add i64 %x, 5", "%v = load i64, ptr @elsewhere\n  %y = add i64 %x, %v"
    )
    made = image_of([compiled(direct, triple)], PAGE)
    assert made is not None
    with pytest.raises(InternalError, match="out of reach"):
        made.placed(BASE, {"elsewhere": OUTSIDE})
