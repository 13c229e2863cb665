"""The thread pool and compiled models under ThreadSanitizer: no access races with another.

Clang instruments LLVM IR as well as C, and a C compiler's run-time library watches. Helgrind and
DRD of valgrind would not do: they know the locks of pthreads, but not the order of atomics, by
which the pool's threads hand work to each other.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.emulated.emulator import FETCHED
from tilewright.codegen.llvm import backend, library
from tilewright.codegen.llvm.threadpool import threadpool_module
from tilewright.graph import Builder, TensorType
from tilewright.ir import Var

TRIPLE = tw.Target.of("llvm").triple
RACE = "WARNING: ThreadSanitizer: data race"

#: What Clang calls and older run-time libraries do not have.
SHIM = """
#include <string.h>
#define WEAK __attribute__((weak))
WEAK void *__tsan_memset(void *to, int value, size_t n) { return memset(to, value, n); }
WEAK void *__tsan_memcpy(void *to, const void *from, size_t n) { return memcpy(to, from, n); }
WEAK void *__tsan_memmove(void *to, const void *from, size_t n) { return memmove(to, from, n); }
"""

#: Pools with and without spinning, each run by three threads, and destroyed.
POOLS = """
#include <pthread.h>
#include <stdint.h>
void *tw_pool_create(int32_t, const int32_t *, int32_t);
void tw_pool_run(void *, void (*)(void *, int64_t, int64_t), void *, int64_t);
void tw_pool_set_spin(void *, int64_t);
void tw_pool_destroy(void *);
enum { SIZE = 100, RUNS = 300 };
static void *pool;
static void part(void *context, int64_t begin, int64_t end) {
  for (int *counts = context; begin < end; begin++) counts[begin]++;
}
static void *caller(void *wrong) {
  int counts[SIZE] = {0};
  for (int run = 0; run < RUNS; run++) tw_pool_run(pool, part, counts, SIZE);
  for (int k = 0; k < SIZE; k++) *(int *)wrong += counts[k] != RUNS;
  return 0;
}
int main(void) {
  int wrong[3] = {0};
  for (int spins = 0; spins < 2; spins++) {
    pthread_t threads[3];
    pool = tw_pool_create(4, 0, 0);
    if (!spins) tw_pool_set_spin(pool, 0);
    for (int k = 0; k < 3; k++) pthread_create(&threads[k], 0, caller, &wrong[k]);
    for (int k = 0; k < 3; k++) pthread_join(threads[k], 0);
    tw_pool_destroy(pool);
  }
  return wrong[0] + wrong[1] + wrong[2] != 0;
}
"""

#: A library whose threads are made by its first run; two threads run it, and it is freed twice.
MODELS = """
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
char tw_params[64];
int net_run(const void *const *, void *const *, const int64_t *);
void net_free(void);
void net_init(int32_t);
enum { ROWS = 64, INNER = 96, COLUMNS = 80 };
static float x[ROWS * INNER], w[INNER * COLUMNS], results[2][ROWS * COLUMNS];
static void *caller(void *result) {
  const void *inputs[] = {x, w};
  void *outputs[] = {result};
  int64_t rows = ROWS;
  for (int run = 0; run < 20; run++)
    if (net_run(inputs, outputs, &rows)) exit(2);
  return 0;
}
int main(void) {
  for (int k = 0; k < ROWS * INNER; k++) x[k] = k % 7;
  for (int k = 0; k < INNER * COLUMNS; k++) w[k] = k % 5;
  for (int round = 0; round < 2; round++) {
    pthread_t threads[2];
    if (round) net_init(3);
    for (int k = 0; k < 2; k++) pthread_create(&threads[k], 0, caller, results[k]);
    for (int k = 0; k < 2; k++) pthread_join(threads[k], 0);
    net_free();
  }
  return memcmp(results[0], results[1], sizeof results[0]) != 0;
}
"""


@cache
def _clang() -> tuple[tuple[str, ...], Mapping[str, str]]:
    """The command of a compiler of LLVM IR, and what it wants to be told."""
    if found := shutil.which("clang"):
        return (found,), {}
    zig = FETCHED / "ziglang" / "zig"
    caches = {f"ZIG_{k}_CACHE_DIR": str(FETCHED / "cache") for k in ("GLOBAL", "LOCAL")}
    return ((str(zig), "cc"), caches) if zig.exists() else ((), {})


@pytest.fixture(scope="module", autouse=True)
def _needs_a_sanitizer(tmp_path_factory: pytest.TempPathFactory) -> None:
    if not _clang()[0] or not shutil.which("cc"):
        pytest.skip("there is no Clang, or no C compiler: `make emulators` fetches one")
    folder = tmp_path_factory.mktemp("probe")
    (folder / "main.c").write_text("int main(void) { return 0; }\n")
    command = ["cc", "-fsanitize=thread", str(folder / "main.c"), "-o", str(folder / "main")]
    if subprocess.run(command, capture_output=True).returncode or _ran(folder / "main").returncode:
        pytest.skip("ThreadSanitizer does not work here")


def _ran(program: Path) -> Any:
    return subprocess.run([program], capture_output=True, text=True, timeout=200)


def _watched(folder: Path, main: str, *texts: str) -> Any:
    """What becomes of a program of these modules of LLVM IR, instrumented."""
    compiler, environment = _clang()
    objects = [str(folder / f"part{k}.o") for k in range(len(texts))]
    for text, made in zip(texts, objects, strict=True):
        source = Path(made).with_suffix(".ll")
        source.write_text(_instrumented(text))
        command = [*compiler, "-w", "-c", "-O1", "-fsanitize=thread", str(source), "-o", made]
        subprocess.run(command, check=True, env={**os.environ, **environment})
    (folder / "main.c").write_text(SHIM + main)
    program = folder / "main"
    link = ["cc", "-fsanitize=thread", "-g", str(folder / "main.c"), *objects, "-lpthread"]
    subprocess.run([*link, "-lm", "-o", str(program)], check=True)
    return _ran(program)


def _instrumented(text: str) -> str:
    """Functions that shall be instrumented say so."""
    return re.sub(r"^(define .*\))", r"\1 sanitize_thread", text, flags=re.M)


def test_the_pool_has_no_races(tmp_path: Path) -> None:
    done = _watched(tmp_path, POOLS, _pool())
    assert (done.returncode, done.stderr) == (0, "")


def test_weaker_atomics_would_be_found(tmp_path: Path) -> None:
    """Else the test above says nothing."""
    weaker = re.sub(r"\b(seq_cst|acquire|release|acq_rel)\b", "monotonic", _pool())
    assert RACE in _watched(tmp_path, POOLS, weaker).stderr


def _pool() -> str:
    return str(threadpool_module(TRIPLE))


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The LLVM IR of all that is compiled in a test."""
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    texts: list[str] = []
    optimized, emit_object = backend.LlvmCode._optimized, library.emit_object

    def recorded(code: Any, text: str) -> Any:
        texts.append(text)
        return optimized(code, text)

    def emitting(text: str, machine: Any) -> bytes:
        texts.append(text)
        return emit_object(text, machine)

    monkeypatch.setattr(backend.LlvmCode, "_optimized", recorded)
    monkeypatch.setattr(library, "emit_object", emitting)
    return texts


def _network() -> Any:
    """A product and a softmax of inputs: nothing is constant, so that all is in the code."""
    b = Builder()
    x = b.input("x", TensorType("f32", (Var("n"), 96)))
    w = b.input("w", TensorType("f32", (96, 80)))
    b.output(b.softmax(b.matmul(x, w), axis=0))
    return b.build()


@pytest.mark.parametrize("apart", [True, False])
def test_models_have_no_races(emitted: list[str], tmp_path: Path, apart: bool) -> None:
    """But those that callers make, who let two runs write to one array.

    Vectors are of 16 bytes: ThreadSanitizer looks at no longer ones.
    """
    cpu = " -mcpu=x86-64" if TRIPLE.startswith("x86_64") else ""
    model = tw.compile(_network(), f"llvm{cpu} -num-cores=4")
    model.export_library(tmp_path / "net.o")
    assert sum("tw_pool_run" in text for text in emitted) >= 2
    # The host program is called as C's own entry is; it is emitted once more with its seal.
    named = {re.findall(r"^define .*@(\S+)\(", t, re.M)[-1]: t for t in emitted}
    texts = [text.replace('@"main', '@"host') for text in named.values()]
    done = _watched(tmp_path, MODELS if apart else _together(MODELS), *texts, _pool())
    if apart:
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert RACE in done.stderr


def _together(program: str) -> str:
    assert "caller, results[k]" in program
    return program.replace("caller, results[k]", "caller, results[0]")
