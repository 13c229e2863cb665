"""The Python side of thread pools.

The pool itself is generated native code. This package does not depend on the code generator:
whoever loads compiled code passes the pool's object code to `install`, once per process. Pools are
shared: requests for the same number of threads on the same processors return the same pool, which
ends with its last reference. Compiled code takes `Pool.address`, and calls the pool's functions
at the addresses in `symbols()`.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from collections.abc import Iterable, Sequence
from ctypes import c_int32, c_int64, c_void_p
from numbers import Integral
from typing import Any, cast

from tilewright.runtime.jit import LoadedCode
from tilewright.support.config import config
from tilewright.support.errors import InternalError, UserError

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "tw_pool_create": (c_void_p, c_int32, c_void_p, c_int32),
    "tw_pool_destroy": (None, c_void_p),
    "tw_pool_stop": (None, c_void_p),
    "tw_pool_threads": (c_int32, c_void_p),
    "tw_pool_set_spin": (None, c_void_p, c_int64),
    "tw_pool_run": (None, c_void_p, c_void_p, c_void_p, c_int64),
}
#: The functions that the pool's object code defines.
POOL_FUNCTIONS = tuple(_SIGNATURES)


class _Native:
    """The pool's code and its functions."""

    def __init__(self, object_code: bytes) -> None:
        code = LoadedCode([object_code])
        self.code = code
        self.addresses = {name: code.address(name) for name in _SIGNATURES}
        functions = {
            name: ctypes.CFUNCTYPE(*_SIGNATURES[name])(address)
            for name, address in self.addresses.items()
        }
        self.create: Any = functions["tw_pool_create"]
        self.destroy: Any = functions["tw_pool_destroy"]
        self.stop: Any = functions["tw_pool_stop"]
        self.threads: Any = functions["tw_pool_threads"]
        self.set_spin: Any = functions["tw_pool_set_spin"]


class Pool:
    """A pool of threads, from `pool_for`."""

    def __init__(self, native: _Native, num_threads: int, affinity: tuple[int, ...]) -> None:
        cpus = (c_int32 * len(affinity))(*affinity)
        #: The pool argument of native code.
        self.address: int = native.create(num_threads, cpus if affinity else None, len(affinity))
        if not self.address:
            raise UserError(f"cannot create a pool of {num_threads} threads: out of memory")
        self.affinity = affinity
        self._native = native
        if num_threads > len(available_cpus()):
            # A spinning thread would keep the processor from the thread it waits for.
            self.set_spin(0)
        finalizer = weakref.finalize(self, native.destroy, self.address)
        # At exit pools are stopped but not freed: a daemon thread may be using one.
        finalizer.atexit = False

    @property
    def num_threads(self) -> int:
        """Threads that run a region, the calling one included; fewer if the system refused some."""
        return self._native.threads(self.address)

    def set_spin(self, nanoseconds: int) -> None:
        """Set how long a waiting thread spins before it sleeps."""
        self._native.set_spin(self.address, nanoseconds)

    def stop(self) -> None:
        """Ends the worker threads; the pool remains, with the calling thread alone."""
        self._native.stop(self.address)


class _Registry:
    """The process's pool code and its live pools."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.native: _Native | None = None
        self.pools: weakref.WeakValueDictionary[tuple[int, tuple[int, ...]], Pool] = (
            weakref.WeakValueDictionary()
        )

    def renew_lock(self) -> None:
        self.lock = threading.Lock()

    def stop_all(self) -> None:
        for pool in list(self.pools.values()):
            pool.stop()


_registry = _Registry()
atexit.register(_registry.stop_all)
if hasattr(os, "register_at_fork"):
    # Another thread of the parent may have held the lock during the fork.
    os.register_at_fork(after_in_child=_registry.renew_lock)


def install(object_code: bytes) -> None:
    """Loads the pool's object code; the first call counts, later ones do nothing."""
    with _registry.lock:
        if _registry.native is None:
            _registry.native = _Native(object_code)


def is_installed() -> bool:
    return _registry.native is not None


def symbols() -> dict[str, int]:
    """The addresses of the pool's functions, for code that calls them."""
    return dict(_installed().addresses)


def pool_for(num_threads: int | None = None, affinity: Sequence[int] | None = None) -> Pool:
    """The pool of `num_threads` whose workers are pinned to the processors in `affinity`.

    Without a number: one thread for each processor of `affinity`, else the value of the environment
    variable TILEWRIGHT_NUM_THREADS, else one for each processor this process may use. Worker k is
    pinned to `affinity[k % len(affinity)]`, on systems that support it (Linux); the calling thread,
    which runs part 0, is not pinned.
    """
    cpus = _checked_affinity(() if affinity is None else affinity)
    count = _thread_count(num_threads, cpus)
    with _registry.lock:
        pool = _registry.pools.get((count, cpus))
        if pool is None:
            pool = _registry.pools[count, cpus] = Pool(_installed(), count, cpus)
        return pool


def available_cpus() -> list[int]:
    """The processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _installed() -> _Native:
    if _registry.native is None:
        raise InternalError(
            "cannot make a thread pool", reason="its code was not installed before its first use"
        )
    return _registry.native


def _thread_count(asked: int | None, cpus: tuple[int, ...]) -> int:
    if asked is None:
        asked = len(cpus) or config().num_threads or len(available_cpus())
    if not isinstance(asked, Integral) or not 1 <= asked <= 4096:
        raise UserError(
            f"cannot make a pool of {asked!r} threads", remedy="ask for a number from 1 to 4096"
        )
    return int(asked)


def _checked_affinity(affinity: Any) -> tuple[int, ...]:
    if not isinstance(affinity, Iterable) or isinstance(affinity, str | bytes):
        raise UserError(
            f"cannot tie threads to processors {affinity!r}", remedy="give a list of their numbers"
        )
    cpus, allowed = tuple(cast("Iterable[Any]", affinity)), available_cpus()
    foreign = [cpu for cpu in cpus if not isinstance(cpu, Integral) or cpu not in allowed]
    if foreign:
        raise UserError(
            f"cannot tie threads to processors {foreign}",
            reason="this process may not use them",
            remedy=f"choose from {allowed}",
        )
    return tuple(map(int, cpus))
