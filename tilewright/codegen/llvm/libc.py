"""What generated code asks of the operating system: libc and pthreads, as each one spells them."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.llvm.types import LLType, i32, i64, pointer, void
from tilewright.support.errors import UserError


@dataclass(frozen=True, slots=True)
class Platform:
    """Where operating systems differ for us."""

    clock_monotonic: int
    sig_setmask: int
    #: pthread_setaffinity_np, pthread_setname_np(thread, name) and MADV_WIPEONFORK exist.
    is_linux: bool


_LINUX = Platform(clock_monotonic=1, sig_setmask=2, is_linux=True)
_DARWIN = Platform(clock_monotonic=6, sig_setmask=3, is_linux=False)

#: Large enough for `sigset_t` and for `cpu_set_t` (1,024 processors) everywhere.
SET_BYTES = 128
#: Large enough for `pthread_mutex_t` and `pthread_cond_t` of glibc, musl and macOS.
SYNC_BYTES = 64

#: Results and operands of the functions that are called.
C_FUNCTIONS: dict[str, tuple[LLType, list[LLType]]] = {
    "clock_gettime": (i32, [i32, pointer]),
    "free": (void, [pointer]),
    "getpid": (i32, []),
    "madvise": (i32, [pointer, i64, i32]),
    "memcpy": (pointer, [pointer, pointer, i64]),
    "memset": (pointer, [pointer, i32, i64]),
    "mmap": (pointer, [pointer, i64, i32, i32, i32, i64]),
    "munmap": (i32, [pointer, i64]),
    "posix_memalign": (i32, [pointer, i64, i64]),
    "pthread_cond_init": (i32, [pointer, pointer]),
    "pthread_cond_signal": (i32, [pointer]),
    "pthread_cond_wait": (i32, [pointer, pointer]),
    "pthread_create": (i32, [pointer, pointer, pointer, pointer]),
    "pthread_join": (i32, [i64, pointer]),
    "pthread_mutex_init": (i32, [pointer, pointer]),
    "pthread_mutex_lock": (i32, [pointer]),
    "pthread_mutex_unlock": (i32, [pointer]),
    "pthread_setaffinity_np": (i32, [i64, i64, pointer]),
    "pthread_setname_np": (i32, [i64, pointer]),
    "pthread_sigmask": (i32, [i32, pointer, pointer]),
    "sched_yield": (i32, []),
    "sigfillset": (i32, [pointer]),
}


def platform_of(triple: str) -> Platform:
    if "linux" in triple:
        return _LINUX
    if "darwin" in triple or "macos" in triple:
        return _DARWIN
    raise UserError(
        f"cannot build the thread pool for {triple}",
        reason="it needs pthreads, as Linux and macOS have them",
        remedy="compile for one thread",
    )
