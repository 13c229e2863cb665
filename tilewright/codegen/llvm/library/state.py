"""The state of a library between runs: its threads, a spare workspace, the last error's text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.codegen.llvm.functions import (
    I8,
    I32,
    I64,
    PTR,
    VOID,
    Body,
    Field,
    Library,
    Value,
    ir,
)
from tilewright.codegen.llvm.libc import SET_BYTES, System
from tilewright.codegen.llvm.windows import count_processors
from tilewright.support.memory import ALIGNMENT

ERROR_BYTES: Final = 512
#: macOS's _SC_NPROCESSORS_ONLN.
_PROCESSORS_ONLINE: Final = 58
#: Bytes of a word, and the largest allocation with 32-bit addresses.
_WORD: Final = 8
_MOST: Final = (1 << 31) - 1 - ALIGNMENT
#: The header of a workspace: its size.
_SIZE = Field(0, I64)

POOL, SPARE, ERROR = "tw_pool", "tw_spare", "tw_error"
_AMX: Final = "tw_amx"
_ANSWER = Field(0, I32)
#: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA), as numbers.
_REQUEST_AMX: Final = (158, 0x1023, 18)


def emit_state(library: Library) -> None:
    """Adds the library's variables, and internal functions on them."""
    _variable(library, SPARE, PTR)
    error = _variable(library, ERROR, ir.ArrayType(I8, ERROR_BYTES))
    error.storage_class = "thread_local"
    for emit in _WITH_THREADS if library.has_threads else _WITHOUT_THREADS:
        emit(library)
    for emit in (_take_workspace, _return_workspace):
        emit(library)


def _declare_pool(library: Library) -> None:
    _variable(library, POOL, PTR)
    library.declare("tw_pool_create", PTR, [I32, PTR, I32])
    library.declare("tw_pool_destroy", VOID, [PTR])
    library.declare("tw_pool_set_spin", VOID, [PTR, I64])
    library.declare("llvm.ctpop.i64", I64, [I64])


def variable(library: Library, name: str) -> Value:
    return library.module.globals[name]


def _variable(library: Library, name: str, kind: Value) -> Value:
    made = ir.GlobalVariable(library.module, kind, name)
    made.linkage, made.initializer = "internal", ir.Constant(kind, None)
    made.type = PTR
    return made


def swap(f: Body, name: str, value: Value) -> Value:
    """Atomically store `value` in a variable; returns its previous value."""
    address = f.b.ptrtoint(value, f.library.size)
    before = f.b.atomic_rmw("xchg", variable(f.library, name), address, "acq_rel")
    return f.b.inttoptr(before, PTR)


def emit_request_amx(library: Library) -> None:
    """Whether this process may use AMX: asks Linux until permission is granted, once."""
    asked = _variable(library, _AMX, I32)
    syscall = ir.Function(library.module, ir.FunctionType(I64, [I64], var_arg=True), "syscall")
    f = library.define("tw_may_use_amx", I32, [])
    with f.when(f.b.icmp_signed("!=", f.get_atomic(asked, _ANSWER, "acquire"), I32(0))):
        f.ret(I32(1))
    refused = f.b.icmp_signed("!=", f.b.call(syscall, [I64(a) for a in _REQUEST_AMX]), I64(0))
    answer = f.b.select(refused, I32(0), I32(1))
    f.put_atomic(answer, asked, _ANSWER, "release")
    f.ret(answer)


def _processors(library: Library) -> None:
    """The number of processors this process may use; at least one."""
    f = library.define("tw_processors", I32, [])
    count = _COUNTS[library.platform.system](f)
    f.ret(f.b.select(f.b.icmp_signed("<", count, I32(1)), I32(1), count))


def _count_allowed(f: Body) -> Value:
    mask = f.scratch(SET_BYTES)
    f.call("sched_getaffinity", I32(0), I64(SET_BYTES), mask)
    total: Value = I64(0)
    for k in range(SET_BYTES // 8):
        total = f.b.add(total, f.call("llvm.ctpop.i64", f.get(mask, Field(8 * k, I64))))
    return f.b.trunc(total, I32)


def _count_online(f: Body) -> Value:
    return f.b.trunc(f.call("sysconf", I32(_PROCESSORS_ONLINE)), I32)


_COUNTS: Final[dict[System, Callable[[Body], Value]]] = {
    "linux": _count_allowed,
    "android": _count_allowed,
    "darwin": _count_online,
    "windows": count_processors,
}


def _make_pool(library: Library) -> None:
    """A pool of this many threads, else one per processor; with more threads, they do not spin."""
    f = library.define("tw_make_pool", PTR, [I32])
    (asked,) = f.args
    processors = f.call("tw_processors")
    threads = f.b.select(f.b.icmp_signed("<", asked, I32(1)), processors, asked)
    pool = f.call("tw_pool_create", threads, PTR(None), I32(0))
    with f.when(f.b.icmp_signed(">", threads, processors)):
        f.call("tw_pool_set_spin", pool, I64(0))
    f.ret(pool)


def _the_pool(library: Library) -> None:
    """The library's pool, created by the first call; null (one thread) if memory is short."""
    f = library.define("tw_the_pool", PTR, [])
    place = variable(library, POOL)
    found = f.b.load_atomic(place, "acquire", 8, typ=PTR)
    with f.when(f.b.not_(f.is_null(found))):
        f.ret(found)
    made = f.call("tw_make_pool", I32(0))
    numbers = [f.b.ptrtoint(p, I64) for p in (PTR(None), made)]
    pair = f.b.cmpxchg(place, *numbers, "acq_rel", "acquire")
    with f.when(f.b.extract_value(pair, 1)):
        f.ret(made)
    # Another thread has created it first.
    f.call("tw_pool_destroy", made)
    f.ret(f.b.load_atomic(place, "acquire", 8, typ=PTR))


def _no_pool(library: Library) -> None:
    """One thread: the caller's."""
    f = library.define("tw_the_pool", PTR, [])
    f.ret(PTR(None))


_WITH_THREADS: Final = (_declare_pool, _processors, _make_pool, _the_pool)
_WITHOUT_THREADS: Final = (_no_pool,)


def _take_workspace(library: Library) -> None:
    """Memory of at least this size: the spare workspace if large enough; null for none."""
    f = library.define("tw_take_workspace", PTR, [I64])
    (size,) = f.args
    if library.pointer_bytes < _WORD:
        with f.when(f.b.icmp_signed(">", size, I64(_MOST))):
            f.ret(PTR(None))
    spare = swap(f, SPARE, PTR(None))
    with f.when(f.b.not_(f.is_null(spare))):
        with f.when(f.b.icmp_signed(">=", f.get(spare, _SIZE), size)):
            f.ret(spare)
        f.call("free", spare)
    place = f.scratch(8)
    total = f.b.add(size, I64(ALIGNMENT))
    failed = f.call("posix_memalign", place, I64(ALIGNMENT), total)
    with f.when(f.b.icmp_signed("!=", failed, I32(0))):
        f.ret(PTR(None))
    block = f.get(place, Field(0, PTR))
    f.put(size, block, _SIZE)
    f.ret(block)


def _return_workspace(library: Library) -> None:
    f = library.define("tw_return_workspace", VOID, [PTR])
    f.call("free", swap(f, SPARE, f.args[0]))
    f.ret()


def workspace_of(f: Body, block: Value) -> Value:
    """The address of the workspace in its block."""
    return f.at(block, Field(ALIGNMENT))
