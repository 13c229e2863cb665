"""What a parallel region costs: the time of an empty one, on 1, 2, … threads of the pool.

The loop over the regions is compiled as well, so that no Python call is in the figures.

    python benchmarks/threadpool.py
"""

from __future__ import annotations

import ctypes
import statistics
import time

import llvmlite.binding as llvm

from tilewright.codegen.llvm.machine import emit_object, target_machine
from tilewright.codegen.llvm.threadpool import threadpool_object
from tilewright.runtime import threads
from tilewright.runtime.jit import LoadedCode

REGIONS, SAMPLES = 1_000, 200

DRIVER = """
target triple = "{triple}"
declare void @tw_pool_run(ptr, ptr, ptr, i64)
define void @empty(ptr %ctx, i64 %begin, i64 %end) {{
  ret void
}}
define void @drive(ptr %pool, i64 %n, i64 %regions) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  call void @tw_pool_run(ptr %pool, ptr @empty, ptr null, i64 %n)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %regions
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


def main() -> None:
    triple = llvm.get_process_triple()
    start = time.perf_counter()
    pool_code = threadpool_object(triple)
    built = time.perf_counter()
    threads.install(pool_code)
    loaded = time.perf_counter()
    print(f"pool code: built in {1e3 * (built - start):.1f} ms, ", end="")
    print(f"loaded in {1e3 * (loaded - built):.1f} ms, {len(pool_code)} bytes")

    code = emit_object(DRIVER.format(triple=triple), target_machine(triple, "", ""))
    driver = LoadedCode([code], threads.symbols())
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    drive = kind(driver.address("drive"))
    for count in sorted({1, 2, len(threads.available_cpus())}):
        pool = threads.pool_for(count)
        print(f"{count} threads, spinning: {_microseconds(drive, pool.address, count):.3f} µs")
        pool.set_spin(0)
        asleep = _microseconds(drive, pool.address, count, regions=50)
        print(f"{count} threads, sleeping: {asleep:.3f} µs")


def _microseconds(drive: object, pool: int, n: int, regions: int = REGIONS) -> float:
    """The median time of an empty region."""
    assert callable(drive)
    samples: list[float] = []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        drive(pool, n, regions)
        samples.append((time.perf_counter() - start) / regions)
    return 1e6 * statistics.median(samples)


if __name__ == "__main__":
    main()
