"""The floating-point state of a thread: rounding mode, traps, treatment of denormals.

Compiled code runs in a state of its own, whatever its caller's is: it rounds to nearest, as the
vector math functions require, nothing traps, and denormals are flushed or kept. The functions here
are only called between computations, since LLVM does not know that arithmetic depends on the state.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tilewright.codegen.llvm.types import LLType, LLValue, i32, i64, llvm, pointer, void
from tilewright.support.denormals import Denormals


class _Register(NamedTuple):
    """A control register; the value `plain` rounds to nearest without traps."""

    plain: int
    #: The bits that flush denormal operands and results to zero.
    flush: int
    #: The control bits, as opposed to the status flags.
    control: int


_MXCSR: Final = _Register(plain=0x1F80, flush=0x8040, control=0xFFC0)
#: FZ alone: FZ16 would flush float16 results, whose denormals cost nothing.
_FPCR: Final = _Register(plain=0, flush=1 << 24, control=-1)
_REGISTERS: Final = {"x86_64": _MXCSR, "amd64": _MXCSR, "aarch64": _FPCR, "arm64": _FPCR}

_FLUSHED: Final = '"denormal-fp-math"="preserve-sign,preserve-sign"'


def has_state(arch: str) -> bool:
    """Whether code for this architecture can control the treatment of denormals."""
    return arch in _REGISTERS


def state_for(arch: str, denormals: Denormals) -> LLValue:
    """The state that compiled code runs in."""
    register = _REGISTERS[arch]
    word = register.plain | (register.flush if denormals == "flush" else 0)
    return llvm.Constant(i64, word)


def declare_float_state(module: Any, denormals: Denormals) -> None:
    """Tell LLVM in which state the functions of `module` run.

    By default it assumes IEEE 754 when it folds, for instance `x == 0` to a test of x's bits.
    """
    if denormals == "keep":
        return
    for function in module.functions:
        if not function.is_declaration:
            # llvmlite only accepts attributes of its own list, which has none with a value.
            set[str].add(function.attributes, _FLUSHED)


def control_of(builder: Any, arch: str, state: LLValue) -> LLValue:
    """The state without status flags."""
    return builder.and_(state, llvm.Constant(i64, _REGISTERS[arch].control))


def get_state(builder: Any, arch: str, slot: LLValue) -> LLValue:
    """This thread's state, as 64 bits; `slot` is scratch memory for it."""
    if _REGISTERS[arch] is _FPCR:
        return builder.call(_intrinsic(builder, "llvm.aarch64.get.fpcr", i64, []), [])
    builder.call(_intrinsic(builder, "llvm.x86.sse.stmxcsr", void, [pointer]), [slot])
    return builder.zext(builder.load(slot, typ=i32), i64)


def set_state(builder: Any, arch: str, slot: LLValue, state: LLValue) -> None:
    """Set this thread's state; `slot` is scratch memory for it."""
    if _REGISTERS[arch] is _FPCR:
        builder.call(_intrinsic(builder, "llvm.aarch64.set.fpcr", void, [i64]), [state])
        return
    builder.store(builder.trunc(state, i32), slot)
    builder.call(_intrinsic(builder, "llvm.x86.sse.ldmxcsr", void, [pointer]), [slot])


def _intrinsic(builder: Any, name: str, result: LLType, params: list[LLType]) -> Any:
    module = builder.module
    found = module.globals.get(name)
    return found or llvm.Function(module, llvm.FunctionType(result, params), name)
