"""Loading object code: addresses, imports, refusals, and memory that is given back."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from tilewright.codegen.llvm.machine import emit_object, target_machine
from tilewright.runtime.jit import LoadedCode
from tilewright.support.errors import InternalError, UserError

TRIPLE = llvm.get_process_triple()
FOREIGN = "x86_64-unknown-linux-gnu" if "aarch64" in TRIPLE else "aarch64-unknown-linux-gnu"
Function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


def compiled(text: str, triple: str = TRIPLE) -> bytes:
    return emit_object(f'target triple = "{triple}"\n{text}', target_machine(triple, "", ""))


ADD = """
define i64 @add_{k}(i64 %x) {{
  %y = add i64 %x, {k}
  ret i64 %y
}}
"""
# libc far away, a constant table, and data that is written: all kinds of relocations.
MIXED = """
declare i64 @labs(i64)
declare ptr @malloc(i64)
declare void @free(ptr)
@table = internal constant [4 x i64] [i64 10, i64 20, i64 30, i64 40]
@calls = global i64 0
define i64 @mixed(i64 %x) {
  %p = call ptr @malloc(i64 100)
  call void @free(ptr %p)
  %a = call i64 @labs(i64 %x)
  %at = getelementptr [4 x i64], ptr @table, i64 0, i64 %a
  %v = load i64, ptr %at
  %n = load i64, ptr @calls
  %m = add i64 %n, 1
  store i64 %m, ptr @calls
  %r = add i64 %v, %m
  ret i64 %r
}
"""
CALLS_OUT = """
declare i64 @outside(i64)
declare i64 @far_away(i64)
define i64 @call_out(i64 %x) {
  %a = call i64 @outside(i64 %x)
  %b = call i64 @far_away(i64 %a)
  ret i64 %b
}
"""


def test_functions_are_callable() -> None:
    code = LoadedCode([compiled(ADD.format(k=1)), compiled(ADD.format(k=2))])
    assert Function(code.address("add_1"))(40) == 41
    assert Function(code.address("add_2"))(40) == 42


def test_libc_and_data_are_reached() -> None:
    code = LoadedCode([compiled(MIXED)])
    mixed = Function(code.address("mixed"))
    assert [mixed(-2), mixed(-2), mixed(0)] == [31, 32, 13]
    assert ctypes.c_int64.from_address(code.address("calls")).value == 3


def test_given_symbols_are_linked() -> None:
    double = Function(lambda x: 2 * x)
    inner = LoadedCode([compiled(ADD.format(k=7))])
    given = {
        "outside": ctypes.cast(double, ctypes.c_void_p).value or 0,
        "far_away": inner.address("add_7"),
    }
    code = LoadedCode([compiled(CALLS_OUT)], given)
    assert Function(code.address("call_out"))(10) == 27


def test_objects_call_each_other() -> None:
    callee = compiled(ADD.format(k=1).replace("add_1", "outside"))
    other = compiled(ADD.format(k=2).replace("add_2", "far_away"))
    code = LoadedCode([compiled(CALLS_OUT), callee, other])
    assert Function(code.address("call_out"))(10) == 13


def test_undefined_symbols_are_all_named(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="undefined symbols far_away, outside: neither"):
        LoadedCode([compiled(CALLS_OUT)])
    assert capfd.readouterr() == ("", "")


def test_unknown_names_get_suggestions() -> None:
    code = LoadedCode([compiled(ADD.format(k=1))])
    with pytest.raises(InternalError, match=r"cannot look up add_l.*did you mean add_1"):
        code.address("add_l")


def test_two_definitions_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    one = compiled(ADD.format(k=1))
    with pytest.raises(InternalError, match=r"cannot link object code.*add_1"):
        LoadedCode([one, one])
    assert capfd.readouterr() == ("", "")


def test_code_of_another_machine_is_refused() -> None:
    with pytest.raises(UserError, match=r"cannot load object code for .*: this process runs on"):
        LoadedCode([compiled(ADD.format(k=1), FOREIGN)])


def test_closed_code_has_no_addresses() -> None:
    code = LoadedCode([compiled(ADD.format(k=1))])
    code.close()
    code.close()
    with pytest.raises(InternalError, match="was unloaded"):
        code.address("add_1")


def test_code_outlives_a_collection() -> None:
    code = LoadedCode([compiled(ADD.format(k=5))])
    function = Function(code.address("add_5"))
    gc.collect()
    for k in range(20):
        LoadedCode([compiled(ADD.format(k=k))])
    assert function(1) == 6


def test_threads_load_at_once() -> None:
    objects = [compiled(ADD.format(k=k)) for k in range(4)]
    results: list[bool] = []

    def work(k: int) -> None:
        for _ in range(50):
            code = LoadedCode([objects[k]])
            results.append(Function(code.address(f"add_{k}"))(1) == k + 1)

    workers = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=60)
    assert results == [True] * 200


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_thousand_loads_leave_memory_flat() -> None:
    """In a process of its own, whose memory nothing else changes."""
    # Each piece holds 64 KB that are really touched, so that a leak of any of it shows.
    big = compiled(MIXED + "@big = global [8192 x i64] zeroinitializer\n")
    script = f"""
import ctypes
from pathlib import Path
from tilewright.runtime.jit import LoadedCode
big = bytes.fromhex("{big.hex()}")
def load(times):
    for _ in range(times):
        code = LoadedCode([big])
        ctypes.memset(code.address("big"), 1, 65536)
        assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("mixed"))(0) == 11
def used():
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    return resident, len(Path("/proc/self/maps").read_text().splitlines())
load(200)
before = used()
load(1000)
print(*(a - b for a, b in zip(used(), before)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    size, maps = map(int, done.stdout.split())
    assert size < 1 << 20 and maps < 20


def test_exit_with_loaded_code_is_clean() -> None:
    script = f"""
import ctypes, threading
from tilewright.runtime.jit import LoadedCode
code = LoadedCode([bytes.fromhex("{compiled(ADD.format(k=1)).hex()}")])
add = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("add_1"))
def forever():
    while True: add(1)
threading.Thread(target=forever, daemon=True).start()
print(add(1))
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")
