"""The pool's code, and small native regions to run on it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int64, c_void_p
from dataclasses import dataclass

import llvmlite.binding as llvm
import pytest

from tilewright.codegen.llvm.machine import emit_object, target_machine
from tilewright.codegen.llvm.threadpool import threadpool_object
from tilewright.runtime import threads
from tilewright.runtime.jit import LoadedCode

#: `total` adds the numbers of its part to *ctx; `mark` counts the visits of each index in ctx[i];
#: `who` writes to ctx[begin] which thread runs the part.
REGIONS = """
target triple = "{triple}"
declare i64 @pthread_self()
define void @who(ptr %ctx, i64 %begin, i64 %end) {{
  %at = getelementptr i64, ptr %ctx, i64 %begin
  %self = call i64 @pthread_self()
  store i64 %self, ptr %at
  ret void
}}
define void @total(ptr %ctx, i64 %begin, i64 %end) {{
entry:
  %any = icmp slt i64 %begin, %end
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %sum = phi i64 [0, %entry], [%more, %loop]
  %more = add i64 %sum, %i
  %next = add i64 %i, 1
  %again = icmp slt i64 %next, %end
  br i1 %again, label %loop, label %add
add:
  %before = atomicrmw add ptr %ctx, i64 %more monotonic
  ret void
done:
  ret void
}}
define void @mark(ptr %ctx, i64 %begin, i64 %end) {{
entry:
  %any = icmp slt i64 %begin, %end
  br i1 %any, label %loop, label %done
loop:
  %i = phi i64 [%begin, %entry], [%next, %loop]
  %at = getelementptr i64, ptr %ctx, i64 %i
  %old = load i64, ptr %at
  %new = add i64 %old, 1
  store i64 %new, ptr %at
  %next = add i64 %i, 1
  %again = icmp slt i64 %next, %end
  br i1 %again, label %loop, label %done
done:
  ret void
}}
"""

Run = Callable[[int, int, "int | None", int], None]
#: A region written in Python; for tests, since it takes the interpreter's lock.
Region = ctypes.CFUNCTYPE(None, c_void_p, c_int64, c_int64)


@dataclass
class Native:
    """tw_pool_run(pool, fn, ctx, n) and the addresses of the regions above."""

    run: Run
    total: int
    mark: int
    who: int
    code: LoadedCode

    def run_python(
        self, pool: threads.Pool | None, region: Callable[[object, int, int], None], n: int
    ) -> None:
        callback = Region(region)
        address = ctypes.cast(callback, c_void_p).value or 0
        self.run(pool.address if pool else 0, address, None, n)


@pytest.fixture(scope="session")
def native() -> Native:
    triple = llvm.get_process_triple()
    threads.install(threadpool_object(triple))
    machine = target_machine(triple, "", "")
    code = LoadedCode([emit_object(REGIONS.format(triple=triple), machine)])
    kind = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_void_p, c_int64)
    run = kind(threads.symbols()["tw_pool_run"])
    total, mark, who = map(code.address, ("total", "mark", "who"))
    return Native(run, total, mark, who, code)
