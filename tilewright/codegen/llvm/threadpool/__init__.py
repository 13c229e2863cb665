"""The thread pool, as generated code: LLVM IR on libc and pthreads, no Python at run time.

A pool runs one region at a time. A region `fn(ctx, begin, end)` over `[0, n)` is split into as many
contiguous parts as there are threads; the caller begins with part 0, worker k with part k. Parts
are split into pieces (a half, a quarter, an eighth and the rest), taken one after the other.
Each part has a mailbox: the caller writes the region's number to `go` and the number of pieces to
`left`; a thread that takes a piece decrements `left`, and adds the pieces it has run to `done`.
Both sides wait by spinning for a while and then sleeping on a `Parker`.

- Work stealing: a thread that has finished its own part takes pieces of others. A worker that
  sleeps, is preempted by other programs, or has a slower processor (a small core, or one shared
  with a neighbour's virtual machine) delays the region by at most a piece. The result of a piece
  does not depend on who runs it, and its bounds only on `n` and the number of threads.

- A pool that is busy (a nested region, or another thread of the program) runs the region in the
  calling thread. So nested parallelism is serial, and nothing waits for a lock.
- The lock holds the process id of its owner, and workers belong to the process that started them.
  After a fork both ids are foreign: the lock counts as free and the workers are started anew.
- Workers start at the first region. If the system refuses some threads, the pool works with those
  it has.
- Workers adopt the caller's floating-point state with every region, so that models that flush
  denormals and models that keep them share a pool.
- There is no thread-local storage, which a JIT could not easily link.

The C interface is in `lifecycle` and `regions`:

    void *tw_pool_create(i32 num_threads, const i32 *cpus, i32 num_cpus)
    void tw_pool_run(void *pool, void (*fn)(void *ctx, i64 begin, i64 end), void *ctx, i64 n)
    i32 tw_pool_threads(void *pool)
    void tw_pool_set_spin(void *pool, i64 nanoseconds)
    void tw_pool_stop(void *pool)
    void tw_pool_destroy(void *pool)
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tilewright.codegen.llvm.functions import Library
from tilewright.codegen.llvm.machine import emit_object, plain_machine
from tilewright.codegen.llvm.threadpool.forkguard import emit_fork_guard
from tilewright.codegen.llvm.threadpool.lifecycle import emit_lifecycle
from tilewright.codegen.llvm.threadpool.regions import emit_regions
from tilewright.codegen.llvm.threadpool.waiting import emit_waiting
from tilewright.codegen.llvm.threadpool.workers import emit_workers

__all__ = ["threadpool_module", "threadpool_object"]


def threadpool_module(triple: str) -> Any:
    """The pool's code for `triple`, as an `llvmlite.ir.Module`."""
    library = Library("tilewright.threadpool", triple)
    # Callees come before their callers.
    emit_waiting(library)
    emit_fork_guard(library)
    emit_workers(library)
    emit_regions(library)
    emit_lifecycle(library)
    return library.module


@cache
def threadpool_object(triple: str) -> bytes:
    """The pool's object code, for the baseline processor of the architecture.

    The module is written in the form that LLVM's passes would produce, so they are not run.
    """
    return emit_object(str(threadpool_module(triple)), plain_machine(triple))
