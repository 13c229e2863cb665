"""POSIX functions of libc and pthreads, implemented on Windows' own functions.

Generated code calls POSIX functions by name. In a module for Windows, each that is called is
defined with internal linkage, so that a program may also link a pthreads library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tilewright.codegen.llvm.types import LLType, LLValue, i32, i64, pointer, void
from tilewright.codegen.llvm.types import llvm as ir

if TYPE_CHECKING:
    from tilewright.codegen.llvm.functions import Body, Library

#: Result and parameter types of the functions of kernel32 and of the C runtime.
_WINDOWS_FUNCTIONS: Final[dict[str, tuple[LLType, list[LLType]]]] = {
    "AcquireSRWLockExclusive": (void, [pointer]),
    "CloseHandle": (i32, [i64]),
    "CreateThread": (i64, [pointer, i64, pointer, pointer, i32, pointer]),
    "GetActiveProcessorCount": (i32, [i32]),
    "GetCurrentProcessId": (i32, []),
    "QueryPerformanceCounter": (i32, [pointer]),
    "QueryPerformanceFrequency": (i32, [pointer]),
    "ReleaseSRWLockExclusive": (void, [pointer]),
    "SleepConditionVariableSRW": (i32, [pointer, pointer, i32, i32]),
    "SwitchToThread": (i32, []),
    "WaitForSingleObject": (i32, [i64, i32]),
    "WakeConditionVariable": (void, [pointer]),
    "__stdio_common_vsprintf": (i32, [i64, pointer, i64, pointer, pointer, pointer]),
    "_aligned_free": (void, [pointer]),
    "_aligned_malloc": (pointer, [i64, i64]),
}
_FOREVER: Final = -1
_ALL_GROUPS: Final = 0xFFFF
_BILLION: Final = 1_000_000_000
_NO_MEMORY: Final = 12
_NO_THREAD: Final = 11
#: Return the length of the whole text, as C99 requires.
_STANDARD_SNPRINTF: Final = 2


def _call(f: Body, name: str, *args: LLValue) -> LLValue:
    returns, parameters = _WINDOWS_FUNCTIONS[name]
    return f.b.call(f.library.declare(name, returns, parameters), args)


def _nothing(f: Body) -> None:
    """A zero-initialized lock or condition is ready for use."""
    f.ret(i32(0))


def _lock(f: Body) -> None:
    _call(f, "AcquireSRWLockExclusive", f.args[0])
    f.ret(i32(0))


def _unlock(f: Body) -> None:
    _call(f, "ReleaseSRWLockExclusive", f.args[0])
    f.ret(i32(0))


def _wait(f: Body) -> None:
    condition, mutex = f.args
    _call(f, "SleepConditionVariableSRW", condition, mutex, i32(_FOREVER), i32(0))
    f.ret(i32(0))


def _signal(f: Body) -> None:
    _call(f, "WakeConditionVariable", f.args[0])
    f.ret(i32(0))


def _create(f: Body) -> None:
    """The thread id is the handle. The thread's result is never read."""
    place, _, start, context = f.args
    none = pointer(None)
    handle = _call(f, "CreateThread", none, i64(0), start, context, i32(0), none)
    f.b.store(handle, place)
    failed = f.b.icmp_unsigned("==", handle, i64(0))
    f.ret(f.b.select(failed, i32(_NO_THREAD), i32(0)))


def _join(f: Body) -> None:
    _call(f, "WaitForSingleObject", f.args[0], i32(_FOREVER))
    _call(f, "CloseHandle", f.args[0])
    f.ret(i32(0))


def _yield(f: Body) -> None:
    _call(f, "SwitchToThread")
    f.ret(i32(0))


def _process(f: Body) -> None:
    f.ret(_call(f, "GetCurrentProcessId"))


def _clock(f: Body) -> None:
    """Seconds and nanoseconds, split by whole seconds first, so that no product overflows."""
    time, slots = f.args[1], f.scratch(16)
    ticks, frequency = (f.b.gep(slots, [i64(k)], source_etype=i64) for k in range(2))
    _call(f, "QueryPerformanceCounter", ticks)
    _call(f, "QueryPerformanceFrequency", frequency)
    now, each = f.b.load(ticks, typ=i64), f.b.load(frequency, typ=i64)
    rest = f.b.mul(f.b.urem(now, each), i64(_BILLION))
    for k, value in enumerate((f.b.udiv(now, each), f.b.udiv(rest, each))):
        f.b.store(value, f.b.gep(time, [i64(k)], source_etype=i64))
    f.ret(i32(0))


def _take_aligned(f: Body) -> None:
    place, alignment, size = f.args
    block = _call(f, "_aligned_malloc", size, alignment)
    f.b.store(block, place)
    f.ret(f.b.select(f.is_null(block), i32(_NO_MEMORY), i32(0)))


def _free_aligned(f: Body) -> None:
    _call(f, "_aligned_free", f.args[0])
    f.ret()


def _print(f: Body) -> None:
    """The C runtime only has a variant for argument lists."""
    buffer, room, text = f.args[:3]
    rest = f.scratch(8)
    for name in ("llvm.va_start.p0", "llvm.va_end.p0"):
        f.library.declare(name, void, [pointer])
    f.b.call(f.library.module.globals["llvm.va_start.p0"], [rest])
    values, options = f.b.load(rest, typ=pointer), i64(_STANDARD_SNPRINTF)
    name = "__stdio_common_vsprintf"
    length = _call(f, name, options, buffer, room, text, pointer(None), values)
    f.b.call(f.library.module.globals["llvm.va_end.p0"], [rest])
    f.ret(length)


_BODIES: Final[dict[str, Callable[[Body], None]]] = {
    "clock_gettime": _clock,
    "free": _free_aligned,
    "getpid": _process,
    "posix_memalign": _take_aligned,
    "pthread_cond_init": _nothing,
    "pthread_cond_signal": _signal,
    "pthread_cond_wait": _wait,
    "pthread_create": _create,
    "pthread_join": _join,
    "pthread_mutex_init": _nothing,
    "pthread_mutex_lock": _lock,
    "pthread_mutex_unlock": _unlock,
    "sched_yield": _yield,
}


def is_written(name: str) -> bool:
    """Whether a POSIX function is implemented here."""
    return name in _BODIES


def write(f: Body, name: str) -> None:
    """The body of a POSIX function."""
    _BODIES[name](f)


def write_snprintf(library: Library) -> None:
    """`snprintf`, which is only an inline function of headers there."""
    kind = ir.FunctionType(i32, [pointer, i64, pointer], var_arg=True)
    _print(library.define_as("snprintf", kind))


def count_processors(f: Body) -> LLValue:
    return _call(f, "GetActiveProcessorCount", i32(_ALL_GROUPS))
