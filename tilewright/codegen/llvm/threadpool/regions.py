"""Running a region on the pool."""

from __future__ import annotations

from tilewright.codegen.llvm.float_state import control_of, get_state, has_state
from tilewright.codegen.llvm.functions import I1, I64, PTR, VOID, Library, Value
from tilewright.codegen.llvm.threadpool.workers import (
    PIECES,
    REGION,
    TURNS,
    Mailbox,
    Pool,
    mailbox,
)


def emit_regions(library: Library) -> None:
    """Adds tw_try_lock, tw_tell and tw_pool_run to `library`."""
    for emit in (_try_lock, _enter, _cut, _tell, _collect, _pool_run):
        emit(library)


def _try_lock(library: Library) -> None:
    """Locks the pool for this process; false if a thread of this process holds it."""
    f = library.define("tw_try_lock", I1, [PTR, I64])
    pool, pid = f.args
    holder = f.get_atomic(pool, Pool.LOCK, "monotonic")
    with f.when(f.b.icmp_signed("==", holder, pid)):
        f.ret(I1(False))
    f.ret(f.exchange(pool, Pool.LOCK, holder, pid))


def _enter(library: Library) -> None:
    """The number of parts for a region of `n`; above 1, the lock is held and workers run."""
    f = library.define("tw_enter", I64, [PTR, I64])
    pool, n = f.args

    def parts() -> Value:
        return f.smaller(n, f.get_atomic(pool, Pool.THREADS, "monotonic"))

    with f.when(f.is_null(pool)):
        f.ret(I64(1))
    with f.when(f.b.icmp_signed("<=", parts(), I64(1))):
        f.ret(I64(1))
    pid = f.call("tw_pid", f.get(pool, Pool.PID_PAGE))
    with f.when(f.b.not_(f.call("tw_try_lock", pool, pid))):
        f.ret(I64(1))
    with f.when(f.b.icmp_signed("!=", f.get(pool, Pool.PID), pid)):
        f.call("tw_start", pool, pid)
    granted = parts()
    with f.when(f.b.icmp_signed("<=", granted, I64(1))):
        f.put_atomic(I64(0), pool, Pool.LOCK, "release")
    f.ret(granted)


def _cut(library: Library) -> None:
    """Publishes a region's parts and pieces, which all threads may take; returns its number."""
    f = library.define("tw_cut", I64, [PTR, I64, I64])
    pool, n, parts = f.args
    longest = f.b.udiv(f.b.add(n, f.b.sub(parts, I64(1))), parts)
    pieces = I64(1)
    for k in range(1, PIECES):
        is_enough = f.b.icmp_signed(">=", longest, I64(1 << k))
        pieces = f.b.add(pieces, f.b.zext(is_enough, I64))
    region = f.b.add(f.get(pool, Pool.REGION), I64(1))
    f.put(region, pool, Pool.REGION)
    f.put(n, pool, Pool.N)
    f.put(parts, pool, Pool.PARTS)
    f.put(pieces, pool, Pool.PIECES)
    left = f.b.add(f.b.mul(region, I64(TURNS)), pieces)
    with f.loop_from(I64(0), parts) as (index, _):
        box = mailbox(f, pool, index)
        f.put(f.b.add(f.get(box, Mailbox.TOTAL), pieces), box, Mailbox.TOTAL)
        f.put_atomic(left, box, Mailbox.LEFT, "release")
    f.ret(region)


def _tell(library: Library) -> None:
    """Notifies workers 1, 2, … of a region: all are notified before the first sleeper is woken."""
    f = library.define("tw_tell", VOID, [PTR, I64, I64])
    pool, parts, region = f.args
    with f.loop_from(I64(1), parts) as (index, _):
        f.put_atomic(region, mailbox(f, pool, index), Mailbox.GO, "seq_cst")
    with f.loop_from(I64(1), parts) as (index, _):
        f.call("tw_unpark", f.at(mailbox(f, pool, index), Mailbox.PARKER))
    f.ret()


def _collect(library: Library) -> None:
    """Waits until all pieces have been run."""
    f = library.define("tw_collect", VOID, [PTR, I64])
    pool, parts = f.args
    spin = f.get_atomic(pool, Pool.SPIN, "monotonic")
    with f.loop_from(I64(0), parts) as (index, _):
        box = mailbox(f, pool, index)
        total = f.get(box, Mailbox.TOTAL)

        def done(box: Value = box) -> Value:
            return f.get_atomic(box, Mailbox.DONE, "acquire")

        with f.loop_while(lambda total=total: f.b.icmp_signed("!=", done(), total)):
            seen = done()
            with f.when(f.b.icmp_signed("!=", seen, total)):
                f.call("tw_wait", f.at(box, Mailbox.DONE), seen, f.at(pool, Pool.PARKER), spin)
    f.ret()


def _pool_run(library: Library) -> None:
    """void tw_pool_run(void *pool, void (*fn)(void *ctx, i64 begin, i64 end), void *ctx, i64 n)

    Runs `fn` over [0, n) and returns when all of it is done. A null pool is a pool of one thread.
    """
    f = library.define("tw_pool_run", VOID, [PTR, REGION, PTR, I64], exported=True)
    pool, fn, ctx, n = f.args
    parts = f.call("tw_enter", pool, n)
    with f.when(f.b.icmp_signed("<=", parts, I64(1))):
        f.b.call(fn, [ctx, I64(0), n])
        f.ret()
    f.put(fn, pool, Pool.FN)
    f.put(ctx, pool, Pool.CTX)
    if has_state(library.architecture):
        mine = get_state(f.b, library.architecture, f.scratch(8))
        f.put(control_of(f.b, library.architecture, mine), pool, Pool.FLOATS)
    region = f.call("tw_cut", pool, n, parts)
    f.call("tw_tell", pool, parts, region)
    # Its own part, then the remaining pieces of workers that are slow or have not begun.
    with f.loop_from(I64(0), parts) as (index, _):
        f.call("tw_run_part", pool, index, region)
    f.call("tw_collect", pool, parts)
    f.put_atomic(I64(0), pool, Pool.LOCK, "release")
    f.ret()
