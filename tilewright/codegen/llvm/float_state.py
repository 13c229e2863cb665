"""The floating-point state of a thread: how it rounds, what traps, what happens to denormals.

Compiled code runs in a state of its own, whatever its caller's is: it rounds to nearest, as the
vector maths relies on, nothing traps, and denormals are flushed or kept. The functions here are
called where nothing else is computed, since LLVM does not know that arithmetic depends on them.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tilewright.codegen.llvm.types import LLType, LLValue, i32, i64, llvm, pointer, void
from tilewright.support.denormals import Denormals


class _Register(NamedTuple):
    """A control register; `plain` rounds to nearest and traps nothing."""

    plain: int
    #: The bits that make it treat denormals as zeros, in operands and in results.
    flush: int
    #: The bits that say what is done, not what has happened.
    control: int


_MXCSR: Final = _Register(plain=0x1F80, flush=0x8040, control=0xFFC0)
#: FZ alone: FZ16 would flush results in float16, where denormals cost nothing.
_FPCR: Final = _Register(plain=0, flush=1 << 24, control=-1)
_REGISTERS: Final = {"x86_64": _MXCSR, "amd64": _MXCSR, "aarch64": _FPCR, "arm64": _FPCR}

_FLUSHED: Final = '"denormal-fp-math"="preserve-sign,preserve-sign"'


def has_state(arch: str) -> bool:
    """Whether code for this architecture can say what happens to denormals."""
    return arch in _REGISTERS


def state_for(arch: str, denormals: Denormals) -> LLValue:
    """The state in which compiled code runs."""
    register = _REGISTERS[arch]
    word = register.plain | (register.flush if denormals == "flush" else 0)
    return llvm.Constant(i64, word)


def declare_float_state(module: Any, denormals: Denormals) -> None:
    """Tell LLVM in which state the functions of `module` run.

    It would otherwise fold by IEEE 754: `x == 0` and the like into tests of x's bits.
    """
    if denormals == "keep":
        return
    for function in module.functions:
        if not function.is_declaration:
            # llvmlite lets its own list of attributes pass only, which has none with a value.
            set[str].add(function.attributes, _FLUSHED)


def control_of(builder: Any, arch: str, state: LLValue) -> LLValue:
    """The state without what has happened so far."""
    return builder.and_(state, llvm.Constant(i64, _REGISTERS[arch].control))


def get_state(builder: Any, arch: str, slot: LLValue) -> LLValue:
    """This thread's state, as 64 bits; `slot` is room for them."""
    if _REGISTERS[arch] is _FPCR:
        return builder.call(_intrinsic(builder, "llvm.aarch64.get.fpcr", i64, []), [])
    builder.call(_intrinsic(builder, "llvm.x86.sse.stmxcsr", void, [pointer]), [slot])
    return builder.zext(builder.load(slot, typ=i32), i64)


def set_state(builder: Any, arch: str, slot: LLValue, state: LLValue) -> None:
    """Give this thread a state; `slot` is room for it."""
    if _REGISTERS[arch] is _FPCR:
        builder.call(_intrinsic(builder, "llvm.aarch64.set.fpcr", void, [i64]), [state])
        return
    builder.store(builder.trunc(state, i32), slot)
    builder.call(_intrinsic(builder, "llvm.x86.sse.ldmxcsr", void, [pointer]), [slot])


def _intrinsic(builder: Any, name: str, result: LLType, params: list[LLType]) -> Any:
    module = builder.module
    found = module.globals.get(name)
    return found or llvm.Function(module, llvm.FunctionType(result, params), name)
