"""The memory layout of the pool, and its workers."""

from __future__ import annotations

from tilewright.codegen.llvm.float_state import control_of, get_state, has_state, set_state
from tilewright.codegen.llvm.functions import (
    I1,
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
from tilewright.codegen.llvm.libc import SET_BYTES
from tilewright.codegen.llvm.threadpool.waiting import LINE, Parker

# void (*fn)(void *ctx, i64 begin, i64 end); llvmlite calls through typed pointers only.
REGION = ir.FunctionType(VOID, [PTR, I64, I64]).as_pointer()


class Pool:
    """The head of a pool; the mailboxes of all threads follow, then the list of processors."""

    THREADS = Field(0, I64)  # including the caller
    PID = Field(8, I64)  # of the process that started the workers; 0: none has
    PID_PAGE = Field(16, PTR)
    SPIN = Field(24, I64)
    CPUS = Field(32, PTR)
    NUM_CPUS = Field(40, I64)
    LOCK = Field(LINE, I64)  # pid of the process running a region, or 0
    FN = Field(2 * LINE, REGION)
    CTX = Field(2 * LINE + 8, PTR)
    N = Field(2 * LINE + 16, I64)
    PARTS = Field(2 * LINE + 24, I64)
    FLOATS = Field(2 * LINE + 32, I64)  # the floating-point state of the caller
    PIECES = Field(2 * LINE + 40, I64)  # of every part
    REGION = Field(2 * LINE + 48, I64)  # the number of regions so far
    PARKER = Field(3 * LINE)
    SIZE = 3 * LINE + Parker.SIZE


class Mailbox:
    """A part of a region, and the state shared by the caller and its worker. The first mailbox is
    for the caller's own part. Each side mostly writes its own cache line."""

    GO = Field(0, I64)  # the number of the last region with this part; `END`: stop
    POOL = Field(8, PTR)
    INDEX = Field(16, I64)
    THREAD = Field(24, I64)
    LEFT = Field(32, I64)  # region number times `TURNS`, plus the pieces not taken yet
    TOTAL = Field(40, I64)  # pieces of all regions so far
    DONE = Field(LINE, I64)  # pieces run so far
    SEEN = Field(LINE + 16, I64)  # the last `GO` that the worker has seen
    PARKER = Field(2 * LINE)
    SIZE = 2 * LINE + Parker.SIZE


#: Most pieces of a part: the first half of it, a quarter, an eighth and the rest.
PIECES = 4
#: The unit of the region number in `LEFT`, greater than the number of pieces.
TURNS = 8
#: The `GO` that ends a worker.
END = I64(-1)
#: How many of the following parts a worker checks for remaining pieces: lines read by many workers
#: are expensive for those who write them.
_HELPED = 8


def mailbox(f: Body, pool: Value, index: Value) -> Value:
    """The mailbox of part `index`; the caller's is the first."""
    return f.at(pool, Field(Pool.SIZE), index, Mailbox.SIZE)


def emit_workers(library: Library) -> None:
    """Adds tw_run_part and tw_start to `library`."""
    for emit in (_adopt_float_state, _run_piece, _take, _run_part, _work, _pin, _start_worker):
        emit(library)
    _start(library)


def _run_piece(library: Library) -> None:
    """Runs a piece of part `index` of the pool's region; in small parts, pieces may be empty."""
    f = library.define("tw_run_piece", VOID, [PTR, I64, I64])
    pool, index, piece = f.args
    n, parts = f.get(pool, Pool.N), f.get(pool, Pool.PARTS)
    size, rest = f.b.udiv(n, parts), f.b.urem(n, parts)

    def bound(k: Value) -> Value:
        return f.b.add(f.b.mul(k, size), f.smaller(k, rest))

    begin, end = bound(index), bound(f.b.add(index, I64(1)))
    length, after = f.b.sub(end, begin), f.b.add(piece, I64(1))
    first = f.b.sub(end, f.b.lshr(length, piece))
    is_last = f.b.icmp_signed("==", after, f.get(pool, Pool.PIECES))
    last = f.b.select(is_last, end, f.b.sub(end, f.b.lshr(length, after)))
    with f.when(f.b.icmp_signed("<", first, last)):
        f.b.call(f.get(pool, Pool.FN), [f.get(pool, Pool.CTX), first, last])
    f.ret()


def _take(library: Library) -> None:
    """Takes the next piece of a part: returns how many were left before, or 0 if none.

    A thread that has taken a piece of a region knows that the region is not over, and may read the
    pool's fields that the caller wrote for it.
    """
    f = library.define("tw_take", I64, [PTR, I64])
    box, region = f.args
    with f.loop_while(lambda: I1(True)):
        state = f.get_atomic(box, Mailbox.LEFT, "acquire")
        left = f.b.sub(state, f.b.mul(region, I64(TURNS)))
        is_over = f.b.icmp_unsigned(">=", left, I64(TURNS))
        with f.when(f.b.or_(is_over, f.b.icmp_signed("==", left, I64(0)))):
            f.ret(I64(0))
        with f.when(f.exchange(box, Mailbox.LEFT, state, f.b.sub(state, I64(1)))):
            f.ret(left)
    f.ret(I64(0))


def _run_part(library: Library) -> None:
    """Runs the remaining pieces of part `index` of region `region`."""
    f = library.define("tw_run_part", VOID, [PTR, I64, I64])
    pool, index, region = f.args
    box = mailbox(f, pool, index)
    done = f.scratch(8)
    with f.loop_while(lambda: I1(True)):
        left = f.call("tw_take", box, region)
        with f.when(f.b.icmp_signed("==", left, I64(0))):
            count = f.get(done, Field(0, I64))
            with f.when(f.b.icmp_signed("!=", count, I64(0))):
                f.add_atomic(count, box, Mailbox.DONE)
                f.call("tw_unpark", f.at(pool, Pool.PARKER))
            f.ret()
        f.call("tw_adopt_floats", pool)
        f.call("tw_run_piece", pool, index, f.b.sub(f.get(pool, Pool.PIECES), left))
        f.put(f.b.add(f.get(done, Field(0, I64)), I64(1)), done, Field(0, I64))
    f.ret()


def _adopt_float_state(library: Library) -> None:
    """Sets a worker's floating-point state to the caller's for this region.

    It is not restored: every region brings its own, and between regions a worker computes nothing.
    """
    f = library.define("tw_adopt_floats", VOID, [PTR])
    (pool,) = f.args
    if has_state(library.architecture):
        slot, wanted = f.scratch(8), f.get(pool, Pool.FLOATS)
        mine = control_of(f.b, library.architecture, get_state(f.b, library.architecture, slot))
        # Writing the register is slower than reading it.
        with f.when(f.b.icmp_signed("!=", mine, wanted)):
            set_state(f.b, library.architecture, slot, wanted)
    f.ret()


def _work(library: Library) -> None:
    """The loop of a worker: wait for a region, run its part, then remaining pieces of others."""
    f = library.define("tw_work", PTR, [PTR])
    (box,) = f.args
    pool, index = f.get(box, Mailbox.POOL), f.get(box, Mailbox.INDEX)
    with f.loop_while(lambda: I1(True)):
        seen = f.get(box, Mailbox.SEEN)
        spin = f.get_atomic(pool, Pool.SPIN, "monotonic")
        f.call("tw_wait", f.at(box, Mailbox.GO), seen, f.at(box, Mailbox.PARKER), spin)
        # A late worker may see a region that is over, which has no pieces left to take.
        region = f.get_atomic(box, Mailbox.GO, "acquire")
        f.put(region, box, Mailbox.SEEN)
        with f.when(f.b.icmp_signed("==", region, END)):
            f.ret(PTR(None))
        threads = f.get_atomic(pool, Pool.THREADS, "monotonic")
        end = f.b.add(index, f.smaller(threads, I64(1 + _HELPED)))
        with f.loop_from(index, end) as (place, _):
            f.call("tw_run_part", pool, f.b.urem(place, threads), region)
    f.ret(PTR(None))


def _pin(library: Library) -> None:
    """Pins worker `index` to its processor, where there is a list and the system allows it."""
    f = library.define("tw_pin", VOID, [PTR, I64, I64])
    pool, index, thread = f.args
    if not library.platform.ties_threads:
        f.ret()
        return
    mask = f.scratch(SET_BYTES)
    f.call("pthread_setname_np", thread, library.text("tw_thread_name", "tilewright"))
    count = f.get(pool, Pool.NUM_CPUS)
    with f.when(f.b.icmp_signed("==", count, I64(0))):
        f.ret()
    place = f.at(f.get(pool, Pool.CPUS), Field(0), f.b.urem(index, count), 4)
    cpu = f.b.zext(f.get(place, Field(0, I32)), I64)
    with f.when(f.b.icmp_unsigned("<", cpu, I64(8 * SET_BYTES))):
        word = f.at(mask, Field(0), f.b.lshr(cpu, I64(6)), 8)
        f.put(f.b.shl(I64(1), f.b.and_(cpu, I64(63))), word, Field(0, I64))
        f.call("pthread_setaffinity_np", thread, I64(SET_BYTES), mask)
    f.ret()


def _start(library: Library) -> None:
    """Starts the workers, or fewer if the system refuses some; the caller holds the lock.

    A forked child has inherited mailboxes of its parent, perhaps of a running region.
    """
    f = library.define("tw_start", VOID, [PTR, I64])
    pool, pid = f.args
    before = _without_signals(f)
    f.call("tw_init_parker", f.at(pool, Pool.PARKER))
    f.call("memset", mailbox(f, pool, I64(0)), I32(0), I64(Mailbox.SIZE))
    with f.loop_from(I64(1), f.get(pool, Pool.THREADS)) as (index, done):
        failed = f.call("tw_start_worker", pool, index)
        with f.when(f.b.icmp_signed("!=", failed, I32(0))):
            f.put_atomic(index, pool, Pool.THREADS, "monotonic")
            f.b.branch(done)
    if before is not None:
        f.call("pthread_sigmask", I32(library.platform.sig_setmask), before, PTR(None))
    f.put(pid, pool, Pool.PID)
    f.ret()


def _without_signals(f: Body) -> Value | None:
    """Blocks all signals, which workers inherit: a handler, such as Python's for Ctrl-C, must run
    in the program's threads. Returns the caller's previous mask; None without signals.
    """
    platform = f.library.platform
    if not platform.is_posix:
        return None
    every, before = f.scratch(SET_BYTES), f.scratch(SET_BYTES)
    f.call("sigfillset", every)
    f.call("pthread_sigmask", I32(platform.sig_setmask), every, before)
    return before


def _start_worker(library: Library) -> None:
    f = library.define("tw_start_worker", I32, [PTR, I64])
    pool, index = f.args
    box = mailbox(f, pool, index)
    f.call("memset", box, I32(0), I64(Mailbox.SIZE))
    f.put(pool, box, Mailbox.POOL)
    f.put(index, box, Mailbox.INDEX)
    f.call("tw_init_parker", f.at(box, Mailbox.PARKER))
    thread, work = f.at(box, Mailbox.THREAD), library.function("tw_work")
    failed = f.call("pthread_create", thread, PTR(None), work, box)
    with f.when(f.b.icmp_signed("==", failed, I32(0))):
        f.call("tw_pin", pool, index, f.get(box, Mailbox.THREAD))
    f.ret(failed)
