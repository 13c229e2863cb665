"""The functions of libc and pthreads that generated code calls, and their platform differences."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.codegen.llvm.types import LLType, i32, i64, pointer, void
from tilewright.support.errors import UserError
from tilewright.target import System, system_of


@dataclass(frozen=True, slots=True)
class Platform:
    """The operating-system differences that matter here."""

    system: System
    clock_monotonic: int = 1
    sig_setmask: int = 2

    @property
    def wipes_on_fork(self) -> bool:
        """Whether MADV_WIPEONFORK exists."""
        return self.system in ("linux", "android")

    @property
    def ties_threads(self) -> bool:
        """Whether pthread_setaffinity_np and pthread_setname_np(thread, name) exist."""
        return self.system == "linux"

    @property
    def is_posix(self) -> bool:
        """Whether the functions below exist; `windows.py` implements them for Windows."""
        return self.system != "windows"


_DARWIN = Platform("darwin", clock_monotonic=6, sig_setmask=3)

#: Large enough for `sigset_t` and for `cpu_set_t` (1,024 processors) everywhere.
SET_BYTES = 128
#: Large enough for `pthread_mutex_t` and `pthread_cond_t` of glibc, musl and macOS.
SYNC_BYTES = 64

#: Result and parameter types of the functions.
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
    "sched_getaffinity": (i32, [i32, i64, pointer]),
    "sched_yield": (i32, []),
    "sigfillset": (i32, [pointer]),
    "sysconf": (i64, [i32]),
}


#: Functions whose 64-bit parameters are of type size_t.
SIZED = frozenset(["memcpy", "memset", "posix_memalign"])


def platform_of(triple: str) -> Platform:
    system = system_of(triple)
    if system is None:
        raise UserError(
            f"cannot build the thread pool for {triple}",
            reason="it is written for Linux, Android, macOS and Windows",
            remedy="compile for one of these",
        )
    return _DARWIN if system == "darwin" else Platform(system)
