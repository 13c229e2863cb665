"""How threads of the pool wait: they spin for a while, then park (sleep) until they are woken.

Sleeping is a Dekker protocol, hence sequentially consistent: the sleeper sets `asleep`, then reads
the word once more; the waker changes the word, then reads `asleep`. So at least one of them sees
the other's write.
"""

from __future__ import annotations

from tilewright.codegen.llvm.functions import I1, I32, I64, PTR, VOID, Field, Library
from tilewright.codegen.llvm.libc import SYNC_BYTES

# Two lines of 64 bytes: x86 prefetches lines in pairs, and some AArch64 lines are 128 bytes long.
LINE = 128

# Loads of the word between two readings of the clock.
_TRIES = 64

_WORD = Field(0, I64)


class Parker:
    """The memory that one thread sleeps on until another one unparks it."""

    ASLEEP = Field(0, I32)
    MUTEX = Field(LINE)
    CONDITION = Field(LINE + SYNC_BYTES)
    SIZE = 2 * LINE


def emit_waiting(library: Library) -> None:
    """Adds tw_wait, tw_unpark and tw_init_parker to `library`."""
    for emit in (_now, _spin, _wait, _unpark, _init_parker):
        emit(library)


def _now(library: Library) -> None:
    """Nanoseconds of the monotonic clock."""
    f = library.define("tw_now", I64, [])
    time = f.scratch(16)
    f.call("clock_gettime", I32(library.platform.clock_monotonic), time)
    seconds, nanoseconds = f.get(time, Field(0, I64)), f.get(time, Field(8, I64))
    f.ret(f.b.add(f.b.mul(seconds, I64(1_000_000_000)), nanoseconds))


def _spin(library: Library) -> None:
    """Waits up to `limit` nanoseconds for `*word != old`; returns whether it became true."""
    f = library.define("tw_spin", I1, [PTR, I64, I64])
    word, old, limit = f.args
    entry, again = f.b.block, f.b.append_basic_block("again")
    f.b.branch(again)
    f.b.position_at_end(again)
    deadline = f.b.phi(I64)
    deadline.add_incoming(I64(0), entry)
    with f.loop_from(I64(0), I64(_TRIES)):
        with f.when(f.b.icmp_signed("!=", f.get_atomic(word, _WORD, "acquire"), old)):
            f.ret(I1(True))
        f.relax()
    # The clock is only read after the first loads have failed, so that a short wait is cheap.
    now = f.call("tw_now")
    is_first = f.b.icmp_signed("==", deadline, I64(0))
    end = f.b.select(is_first, f.b.add(now, limit), deadline)
    with f.when(f.b.icmp_signed(">=", now, end)):
        f.ret(I1(False))
    # The awaited thread may need this very processor: on a busy machine, or where the system has
    # put both on one, this is the difference between 3 and 100 µs per region.
    f.call("sched_yield")
    deadline.add_incoming(end, f.b.block)
    f.b.branch(again)


def _wait(library: Library) -> None:
    """Returns when `*word != old`: spins for `limit` nanoseconds, then sleeps on `parker`."""
    f = library.define("tw_wait", VOID, [PTR, I64, PTR, I64])
    word, old, parker, limit = f.args
    with f.when(f.call("tw_spin", word, old, limit)):
        f.ret()
    mutex, condition = f.at(parker, Parker.MUTEX), f.at(parker, Parker.CONDITION)
    f.call("pthread_mutex_lock", mutex)
    f.put_atomic(I32(1), parker, Parker.ASLEEP, "seq_cst")
    with f.loop_while(lambda: f.b.icmp_signed("==", f.get_atomic(word, _WORD, "seq_cst"), old)):
        f.call("pthread_cond_wait", condition, mutex)
    f.put_atomic(I32(0), parker, Parker.ASLEEP, "monotonic")
    f.call("pthread_mutex_unlock", mutex)
    f.ret()


def _unpark(library: Library) -> None:
    """Wakes the parked thread, after its word was changed; a single load if it is awake."""
    f = library.define("tw_unpark", VOID, [PTR])
    (parker,) = f.args
    asleep = f.get_atomic(parker, Parker.ASLEEP, "seq_cst")
    with f.when(f.b.icmp_signed("!=", asleep, I32(0))):
        # Holding the mutex means that the sleeper is inside pthread_cond_wait or past it.
        f.call("pthread_mutex_lock", f.at(parker, Parker.MUTEX))
        f.call("pthread_cond_signal", f.at(parker, Parker.CONDITION))
        f.call("pthread_mutex_unlock", f.at(parker, Parker.MUTEX))
    f.ret()


def _init_parker(library: Library) -> None:
    f = library.define("tw_init_parker", VOID, [PTR])
    (parker,) = f.args
    f.call("memset", parker, I32(0), I64(Parker.SIZE))
    f.call("pthread_mutex_init", f.at(parker, Parker.MUTEX), PTR(None))
    f.call("pthread_cond_init", f.at(parker, Parker.CONDITION), PTR(None))
    f.ret()
