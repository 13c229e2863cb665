"""Denormals are flushed where that is asked for, in all threads, and callers notice nothing."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests import float_state
from tests.float_state import HAPPENED, MET_DENORMALS, PLAIN, STATES, get_state
from tilewright import te
from tilewright.graph import Builder, Call, PassContext, evaluate, find_op
from tilewright.kernels.folding import fold_natively
from tilewright.support.denormals import DENORMALS, Denormals
from tilewright.support.errors import UserError

pytestmark = float_state.pytestmark
#: Half of it is denormal.
SMALL = 1.5e-38
X = np.full((64, 1024), SMALL, np.float32)


def halves(size: int, dtype: str = "float32") -> Any:
    x = te.placeholder((size,), dtype, name="x")
    return te.function([x], [te.compute((size,), lambda i: x[i] * 0.5, name="half")])


def picked() -> Any:
    """Rows of x / 2, by numbers that may not be there."""
    b = Builder()
    x, rows = b.input("x", "f32", (64, 1024)), b.input("rows", "i64", (4,))
    b.output(b.gather(x * np.float32(0.5), rows, axis=0))
    return b.build()


def rows(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


@pytest.fixture(scope="module")
def model() -> Any:
    return tw.compile(picked(), threads=2)


# ---- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "small"), [("float32", SMALL), ("float64", 3e-308)])
@pytest.mark.parametrize("caller", STATES)
def test_kernels_flush_or_keep_whatever_the_caller_does(
    dtype: str, small: float, caller: int
) -> None:
    x = np.full(1 << 21, small, dtype)
    want = {"flush": 0.0, "keep": x[0] * 0.5}
    assert 0 < want["keep"] < np.finfo(dtype).tiny
    modules = {
        mode: tw.build(halves(x.size, dtype), threads=2, denormals=mode)
        for mode in DENORMALS.values()
    }
    assert "tw_pool_run" in modules["flush"].llvm
    # By turns, on the same threads.
    for mode in [*DENORMALS] * 10:
        y = np.full_like(x, 7)
        with float_state.state(caller):
            modules[mode](x, y)
        assert (y == want[mode]).all(), mode


def test_models_flush_unless_told_to_keep(tmp_path: Path) -> None:
    inputs = [X, rows(0, 1, 2, 3)]
    want = {"flush": 0.0, "keep": X[0, 0] * np.float32(0.5)}
    with PassContext(denormals="keep"):
        by_context = tw.compile(picked())
    models = {
        "flush": [tw.compile(picked()), tw.build(picked())],
        "keep": [tw.compile(picked(), denormals="keep"), by_context],
    }
    for mode, made in models.items():
        made[0].save(tmp_path / "m.twm")
        for model in (*made, tw.load(tmp_path / "m.twm")):
            assert model.denormals == mode
            assert (model.run(inputs)[0] == want[mode]).all()
            model.profile(inputs, runs=1)


def test_modes_that_do_not_exist() -> None:
    for make in (
        lambda: PassContext(denormals="drop"),  # type: ignore[arg-type]
        lambda: tw.build(halves(8), denormals="drop"),  # type: ignore[arg-type]
        lambda: tw.compile(picked(), denormals="drop"),  # type: ignore[arg-type]
    ):
        with pytest.raises(UserError, match=r"by 'drop'\n  remedy: use flush or keep"):
            make()


@pytest.mark.parametrize("mode", DENORMALS)
def test_constants_are_folded_as_they_would_be_computed(mode: Denormals) -> None:
    b = Builder()
    b.output(b.constant(X) * np.float32(0.5))
    (binding,) = b.build().main.body
    with PassContext(denormals=mode):
        assert isinstance(binding.expr, Call)
        (folded,) = fold_natively(binding.expr, binding.outputs)
    b = Builder()
    b.output(b.input("x", "f32", X.shape) * np.float32(0.5))
    (computed,) = tw.compile(b.build(), denormals=mode).run([X])
    np.testing.assert_array_equal(folded, computed)
    assert (folded == 0).all() == (mode == "flush")


def test_constants_stay_as_they_are() -> None:
    b = Builder()
    tiny = np.full((3, 4), 1e-40, np.float32)
    b.output(b.transpose(b.constant(tiny), axes=[1, 0]), b.input("x", "f32", (1,)))
    got = tw.compile(b.build()).run([np.zeros(1, np.float32)])[0]
    np.testing.assert_array_equal(got, tiny.T)


def test_halves_keep_their_denormals() -> None:
    """They are normal numbers of float32, in which they are computed."""
    x = np.array([6e-8, 1e-7, 3e-6, 6.1e-5, 6.2e-5], np.float16)
    module = tw.build(halves(x.size, "float16"))
    y = np.empty_like(x)
    module(x, y)
    np.testing.assert_array_equal(y, x * np.float16(0.5))
    assert 0 < y[1] < np.finfo(np.float16).tiny


def test_the_least_power_of_two_in_a_byte_survives_a_conversion() -> None:
    """In float8_e8m0fnu, 0 stands for 2**-127, which is denormal in float32."""
    e8m0 = np.dtype(ml_dtypes.float8_e8m0fnu)
    x = te.placeholder((256,), "float8_e8m0fnu", name="x")
    wide = te.compute((256,), lambda i: te.cast(x[i], "float32"), name="wide")
    back = te.compute((256,), lambda i: te.cast(wide[i], "float8_e8m0fnu"), name="back")
    codes = np.arange(256, dtype=np.uint8)
    floats, bytes_ = np.empty(256, np.float32), np.empty(256, e8m0)
    tw.build(te.function([x], [wide, back]))(codes.view(e8m0), floats, bytes_)
    np.testing.assert_array_equal(bytes_.view(np.uint8), codes)


# ---- no denormals where masks make scores small --------------------------------------------------


def shifted_windows(windows: int = 4, heads: int = 3, rows: int = 96, depth: int = 32) -> Any:
    """softmax(q kᵀ + bias + mask) v: in a window, some rows must not see others.

    The rows fill whole tiles of every processor: lanes past the last row would hold whatever was in
    memory, which may be denormal.
    """
    rng = np.random.default_rng(3)
    b = Builder()
    shape = (windows, heads, rows, depth)
    q, k, v = (b.input(name, "f32", shape) for name in "qkv")
    bias = rng.standard_normal((1, heads, rows, rows)).astype(np.float32)
    groups = rng.integers(0, 3, (windows, rows))
    apart = groups[:, :, None] != groups[:, None, :]
    mask = np.where(apart, np.float32(-100), np.float32(0))[:, None]
    scores = b.matmul(q * np.float32(depth**-0.5), b.transpose(k, axes=[0, 1, 3, 2]))
    b.output(b.matmul(b.softmax(scores + bias + mask), v))
    inputs = [rng.standard_normal(shape).astype(np.float32) for _ in range(3)]
    return b.build(), inputs


@pytest.mark.skipif(not MET_DENORMALS, reason="the register does not tell of denormals")
def test_no_denormal_is_made_by_attention_in_shifted_windows() -> None:
    """The program runs where denormals are not flushed, and would be told of."""
    module, inputs = shifted_windows()
    met = {mode: _met_denormals(tw.compile(module, threads=1, denormals=mode), inputs)
           for mode in DENORMALS.values()}  # fmt: skip
    assert met == {"flush": False, "keep": True}
    (got,) = tw.compile(module).run(inputs)
    np.testing.assert_allclose(got, evaluate(module, inputs)[0], rtol=1e-4, atol=1e-5)


def _met_denormals(model: Any, inputs: list[Any]) -> bool:
    """Whether a model meets denormals if it runs without the entry that flushes them."""
    call = model._bind(inputs, ())
    scratch = call.scratch
    words = [model._pool.address, scratch.workspace, scratch.error_address]
    env = (ctypes.c_uint64 * len(words))(*words)
    arguments = [*call.words, ctypes.addressof(env)]
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * len(arguments))
    program = kind(model.address("main"))
    with float_state.state(PLAIN):
        code = program(*arguments)
        after = get_state()
    assert code == 0
    return bool(after & MET_DENORMALS)


# ---- the caller's state -------------------------------------------------------------------------


def _succeed(model: Any) -> None:
    model.run([X, rows(0, 1, 2, 3)])


def _fail(model: Any) -> None:
    with pytest.raises(UserError, match="stopped"):
        model.run([X, rows(0, 1, 2, 99)])


def _in_another_thread(what: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            what()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failures, failures


@pytest.mark.parametrize("act", [_succeed, _fail])
@pytest.mark.parametrize("caller", STATES)
@pytest.mark.parametrize("loaded", [False, True])
def test_the_callers_state_is_put_back(
    model: Any, act: Any, caller: int, loaded: bool, tmp_path: Path
) -> None:
    if loaded:
        model.save(tmp_path / "m.twm")
        model = tw.load(tmp_path / "m.twm", threads=2)

    def check() -> None:
        with float_state.state(caller):
            act(model)
            after = get_state()
        # Python itself may round something, and so put flags up.
        assert after & ~HAPPENED == caller & ~HAPPENED

    check()
    _in_another_thread(check)


def test_kernels_put_the_state_back_to_the_bit() -> None:
    module = tw.build(halves(X.size))
    run = module.native.prepared(X.ravel(), np.empty_like(X.ravel()))
    for caller in STATES:
        with float_state.state(caller):
            run()
            after = get_state()
        assert after == caller


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_leaves_the_state_as_it_was(model: Any) -> None:
    caller = STATES[1]
    timer = threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT])
    deadline = time.monotonic() + 30
    with float_state.state(caller), pytest.raises(KeyboardInterrupt):
        timer.start()
        while time.monotonic() < deadline:
            _succeed(model)
            assert get_state() & ~HAPPENED == caller
    timer.join()
    with float_state.state(caller):
        _succeed(model)
        assert get_state() & ~HAPPENED == caller


def test_python_runs_its_parts_in_the_callers_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators that the evaluator runs between native parts see what the program has set."""
    b = Builder()
    x, names = b.input("x", "f32", (1 << 16,)), b.input("names", "str", (2,))
    b.output(b.string_concat(names, names), x * np.float32(0.5))
    with pytest.warns(UserWarning):
        model = tw.compile(b.build())
    assert model.denormals == "flush"
    seen: list[int] = []
    hosted = find_op("string_concat")
    compute = hosted.evaluate

    def watched(*args: Any, **attrs: Any) -> Any:
        seen.append(get_state())
        return compute(*args, **attrs)

    monkeypatch.setattr(hosted, "evaluate", watched)
    with float_state.state(STATES[1]):
        texts, small = model.run([X.ravel(), np.array(["a", "b"], object)])
    assert (small == 0).all() and list(texts) == ["aa", "bb"]
    assert [word & ~HAPPENED for word in seen] == [STATES[1]]


# ---- libraries ----------------------------------------------------------------------------------

PROGRAM = r"""
#include <fenv.h>
#include <stdio.h>
#include <stdint.h>
#include "net.h"

static float x[64 * 1024], y[4 * 1024];

#if defined(__x86_64__)
#include <immintrin.h>
static long get(void) { return _mm_getcsr() & ~0x3FL; }
static void set(void) { _mm_setcsr(0x3F80); }
#else
static long get(void) { long word; __asm__ volatile("mrs %0, fpcr" : "=r"(word)); return word; }
static void set(void) { __asm__ volatile("msr fpcr, %0" : : "r"(2L << 22)); }
#endif

int main(void) {
  int64_t rows[4] = {0, 1, 2, 3};
  const void *inputs[2] = {x, rows};
  void *outputs[1] = {y};
  for (int i = 0; i < 64 * 1024; ++i) x[i] = 1.5e-38f;
  set();
  long before = get();
  int32_t done = net_run(inputs, outputs);
  int same = get() == before;
  rows[2] = 99;
  int32_t failed = net_run(inputs, outputs);
  same = same && get() == before;
  fesetround(FE_TONEAREST);
  int zeros = 1;
  for (int i = 0; i < 4 * 1024; ++i) zeros = zeros && y[i] == 0;
  printf("%d %d %d %d %d\n", done == 0, failed != 0, same, zeros, NET_FLUSHES_DENORMALS);
  return 0;
}
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="there is no C compiler")
@pytest.mark.parametrize(("mode", "flushes"), [("flush", 1), ("keep", 0)])
def test_libraries_put_the_state_of_c_programs_back(
    mode: Denormals, flushes: int, tmp_path: Path
) -> None:
    tw.compile(picked(), denormals=mode).export_library(tmp_path / "net.a", tmp_path / "net.h")
    (tmp_path / "main.c").write_text(PROGRAM)
    program, sources = str(tmp_path / "main"), [str(tmp_path / n) for n in ("main.c", "net.a")]
    command = ["cc", "-O1", "-frounding-math", f"-I{tmp_path}", "-o", program, *sources]
    subprocess.run([*command, "-lpthread", "-lm"], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "1", "1", str(flushes), str(flushes)]
