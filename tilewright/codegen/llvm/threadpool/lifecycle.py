"""Creating, changing and destroying a pool: the C interface besides `tw_pool_run`."""

from __future__ import annotations

from tilewright.codegen.llvm.functions import I8, I32, I64, PTR, VOID, Field, Library
from tilewright.codegen.llvm.threadpool.waiting import LINE
from tilewright.codegen.llvm.threadpool.workers import END, Mailbox, Pool, mailbox

#: Nanoseconds that a waiting thread spins before it sleeps: some ten times the cost of a wake-up,
#: and longer than the serial gaps between the regions of one inference.
DEFAULT_SPIN = 50_000


def emit_lifecycle(library: Library) -> None:
    """Adds tw_pool_create, _stop, _destroy, _threads and _set_spin to `library`."""
    for emit in (_pool_create, _pool_stop, _pool_destroy, _pool_threads, _pool_set_spin):
        emit(library)


def _pool_create(library: Library) -> None:
    """void *tw_pool_create(i32 num_threads, const i32 *cpus, i32 num_cpus)

    `num_threads` includes the calling thread. Worker k is pinned to `cpus[k % num_cpus]`, or to
    none if `cpus` is null; the caller is never pinned. Returns null where there is no memory.
    """
    f = library.define("tw_pool_create", PTR, [I32, PTR, I32], exported=True)
    threads, cpus, num_cpus = f.args
    threads = f.b.select(f.b.icmp_signed("<", threads, I32(1)), I32(1), threads)
    has_cpus = f.b.and_(f.b.not_(f.is_null(cpus)), f.b.icmp_signed(">", num_cpus, I32(0)))
    num_cpus = f.b.zext(f.b.select(has_cpus, num_cpus, I32(0)), I64)
    threads = f.b.zext(threads, I64)
    head = f.b.add(I64(Pool.SIZE), f.b.mul(threads, I64(Mailbox.SIZE)))
    cpu_bytes = f.b.mul(num_cpus, I64(4))
    place = f.scratch(8)
    failed = f.call("posix_memalign", place, I64(LINE), f.b.add(head, cpu_bytes))
    with f.when(f.b.icmp_signed("!=", failed, I32(0))):
        f.ret(PTR(None))
    pool = f.get(place, Field(0, PTR))
    f.call("memset", pool, I32(0), head)
    list_at = f.b.gep(pool, [head], inbounds=True, source_etype=I8)
    with f.when(has_cpus):
        f.call("memcpy", list_at, cpus, cpu_bytes)
    f.put(threads, pool, Pool.THREADS)
    f.put(num_cpus, pool, Pool.NUM_CPUS)
    f.put(list_at, pool, Pool.CPUS)
    f.put(I64(DEFAULT_SPIN), pool, Pool.SPIN)
    f.put(f.call("tw_pid_page"), pool, Pool.PID_PAGE)
    f.ret(pool)


def _pool_stop(library: Library) -> None:
    """void tw_pool_stop(void *pool): ends the workers; the pool remains, with one thread.

    Waits for the running region to end, so it must not be called from inside one.
    """
    f = library.define("tw_pool_stop", VOID, [PTR], exported=True)
    (pool,) = f.args
    with f.when(f.is_null(pool)):
        f.ret()
    pid = f.call("tw_pid", f.get(pool, Pool.PID_PAGE))
    with f.loop_while(lambda: f.b.not_(f.call("tw_try_lock", pool, pid))):
        f.call("sched_yield")
    threads = f.get_atomic(pool, Pool.THREADS, "monotonic")
    f.put_atomic(I64(1), pool, Pool.THREADS, "monotonic")
    with f.when(f.b.icmp_signed("==", f.get(pool, Pool.PID), pid)):
        f.call("tw_tell", pool, threads, END)
        with f.loop_from(I64(1), threads) as (index, _):
            thread = f.get(mailbox(f, pool, index), Mailbox.THREAD)
            f.call("pthread_join", thread, PTR(None))
    f.put_atomic(I64(0), pool, Pool.LOCK, "release")
    f.ret()


def _pool_destroy(library: Library) -> None:
    """void tw_pool_destroy(void *pool): ends the workers and frees the pool; null is allowed."""
    f = library.define("tw_pool_destroy", VOID, [PTR], exported=True)
    (pool,) = f.args
    with f.when(f.is_null(pool)):
        f.ret()
    f.call("tw_pool_stop", pool)
    f.call("tw_drop_pid_page", f.get(pool, Pool.PID_PAGE))
    f.call("free", pool)
    f.ret()


def _pool_threads(library: Library) -> None:
    """i32 tw_pool_threads(void *pool): how many threads run a region, the caller included."""
    f = library.define("tw_pool_threads", I32, [PTR], exported=True)
    (pool,) = f.args
    with f.when(f.is_null(pool)):
        f.ret(I32(1))
    f.ret(f.b.trunc(f.get_atomic(pool, Pool.THREADS, "monotonic"), I32))


def _pool_set_spin(library: Library) -> None:
    """void tw_pool_set_spin(void *pool, i64 nanoseconds): how long to spin before sleeping."""
    f = library.define("tw_pool_set_spin", VOID, [PTR, I64], exported=True)
    pool, spin = f.args
    with f.when(f.b.not_(f.is_null(pool))):
        f.put_atomic(spin, pool, Pool.SPIN, "monotonic")
    f.ret()
