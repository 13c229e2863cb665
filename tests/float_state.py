"""The floating-point state of the calling thread, for tests: the register that holds it."""

from __future__ import annotations

import ctypes
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import pytest

from tilewright.codegen.llvm.machine import emit_object, target_machine
from tilewright.runtime.jit import LoadedCode
from tilewright.target import Target

ARCH: Final = Target.of("llvm").arch
pytestmark = pytest.mark.skipif(
    ARCH not in ("x86_64", "aarch64"), reason="this machine does not flush denormals"
)

#: What a thread starts with.
PLAIN: Final = {"x86_64": 0x1F80, "aarch64": 0}.get(ARCH, 0)
#: The bits that say what has happened: here those for denormal operands and for underflow.
HAPPENED: Final = {"x86_64": 0x3F, "aarch64": 0}.get(ARCH, 0)
MET_DENORMALS: Final = {"x86_64": 0x12}.get(ARCH, 0)
#: States that no library starts threads with: rounding down, flushing, and on x86-64 a trap for
#: divisions by zero and a flag that is up.
STATES: Final = {
    "x86_64": [0x1F80, 0x3F80, 0x9FC0, 0x1D81],
    "aarch64": [0, 2 << 22, 1 << 24],
}.get(ARCH, [0])

_CODE = {
    "x86_64": """
        declare void @llvm.x86.sse.stmxcsr(ptr)
        declare void @llvm.x86.sse.ldmxcsr(ptr)
        define i64 @get() {
          %slot = alloca i32
          call void @llvm.x86.sse.stmxcsr(ptr %slot)
          %word = load i32, ptr %slot
          %wide = zext i32 %word to i64
          ret i64 %wide
        }
        define void @set(i64 %state) {
          %slot = alloca i32
          %word = trunc i64 %state to i32
          store i32 %word, ptr %slot
          call void @llvm.x86.sse.ldmxcsr(ptr %slot)
          ret void
        }""",
    "aarch64": """
        declare i64 @llvm.aarch64.get.fpcr()
        declare void @llvm.aarch64.set.fpcr(i64)
        define i64 @get() {
          %word = call i64 @llvm.aarch64.get.fpcr()
          ret i64 %word
        }
        define void @set(i64 %state) {
          call void @llvm.aarch64.set.fpcr(i64 %state)
          ret void
        }""",
}


@cache
def _functions() -> tuple[Any, Any, LoadedCode]:
    triple = Target.of("llvm").triple
    text = f'target triple = "{triple}"\n{_CODE[ARCH]}'
    code = LoadedCode([emit_object(text, target_machine(triple, "", ""))])
    get = ctypes.CFUNCTYPE(ctypes.c_int64)(code.address("get"))
    set_ = ctypes.CFUNCTYPE(None, ctypes.c_int64)(code.address("set"))
    return get, set_, code


def get_state() -> int:
    return _functions()[0]()


@contextmanager
def state(word: int) -> Generator[None]:
    """Within, this thread has another state."""
    before = get_state()
    _functions()[1](word)
    try:
        yield
    finally:
        _functions()[1](before)
