"""How generated code detects that it runs in a forked child, without a system call.

A pool keeps its process id on a page that Linux clears in children. Where the system cannot do
that, getpid() is called each time.
"""

from __future__ import annotations

from tilewright.codegen.llvm.functions import I32, I64, PTR, VOID, Body, Field, Library, Value

_KEPT = Field(0, I64)
_PAGE = 4096
_PROT_READ_WRITE, _MAP_PRIVATE_ANONYMOUS, _MADV_WIPEONFORK = 3, 0x22, 18


def emit_fork_guard(library: Library) -> None:
    """Adds tw_pid_page, tw_pid and tw_drop_pid_page to `library`."""
    for emit in (_pid_page, _pid, _drop_pid_page):
        emit(library)


def _pid_page(library: Library) -> None:
    """A page that reads as zeros in a forked child, or null where the system has none."""
    f = library.define("tw_pid_page", PTR, [])
    if not library.platform.wipes_on_fork:
        f.ret(PTR(None))
        return
    page = f.call(
        "mmap",
        *(PTR(None), I64(_PAGE), I32(_PROT_READ_WRITE), I32(_MAP_PRIVATE_ANONYMOUS)),
        *(I32(-1), I64(0)),
    )
    with f.when(f.b.icmp_signed("==", f.b.ptrtoint(page, I64), I64(-1))):
        f.ret(PTR(None))
    # Some emulators return 0 for any advice: distrust one that accepts nonsense.
    is_wiped = f.b.icmp_signed("==", _advise(f, page, _MADV_WIPEONFORK), I32(0))
    is_honest = f.b.icmp_signed("!=", _advise(f, page, -1), I32(0))
    with f.when(f.b.and_(is_wiped, is_honest)):
        f.ret(page)
    f.call("munmap", page, I64(_PAGE))
    f.ret(PTR(None))


def _advise(f: Body, page: Value, advice: int) -> Value:
    return f.call("madvise", page, I64(_PAGE), I32(advice))


def _pid(library: Library) -> None:
    """getpid() without the system call: the id is kept on the page that a fork wipes."""
    f = library.define("tw_pid", I64, [PTR])
    (page,) = f.args
    with f.when(f.is_null(page)):
        f.ret(f.b.zext(f.call("getpid"), I64))
    kept = f.get_atomic(page, _KEPT, "monotonic")
    with f.when(f.b.icmp_signed("!=", kept, I64(0))):
        f.ret(kept)
    pid = f.b.zext(f.call("getpid"), I64)
    f.put_atomic(pid, page, _KEPT, "monotonic")
    f.ret(pid)


def _drop_pid_page(library: Library) -> None:
    f = library.define("tw_drop_pid_page", VOID, [PTR])
    (page,) = f.args
    if library.platform.wipes_on_fork:
        with f.when(f.b.not_(f.is_null(page))):
            f.call("munmap", page, I64(_PAGE))
    f.ret()
