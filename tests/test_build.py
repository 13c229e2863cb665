"""From a definition to a call: the front door."""

from __future__ import annotations

import gc
import resource
import threading

import numpy as np
import pytest

import tilewright as tw
from tilewright import te


def matmul_function(m: int, n: int, k: int) -> tw.Function:
    a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis(k, name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    return te.function([a, b], [c], name="matmul")


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((m, k), dtype=np.float32)
    b = rng.standard_normal((k, n), dtype=np.float32)
    return a, b, np.full((m, n), np.nan, np.float32)


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 5, 3), (64, 64, 64), (33, 70, 129), (1, 200, 90)])
def test_default_schedule_multiplies(shape: tuple[int, int, int]) -> None:
    a, b, c = operands(*shape)
    tw.build(matmul_function(*shape))(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_schedule_of_the_readme() -> None:
    f = matmul_function(100, 130, 70)
    s = tw.Schedule(f)
    i, j, k = s.loops("C")
    io, ii = s.split(i, 6)
    jo, ji = s.split(j, 64)
    s.reorder(io, jo, k, ii, ji)
    s.parallel(io)
    s.vectorize(ji)
    s.unroll(ii)
    a, b, c = operands(100, 130, 70)
    m = tw.build(s)
    m(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)
    assert "parallel" in repr(m.ir("scheduled"))
    assert "define" in m.llvm and m.asm
    assert m.time(a, b, c, repeat=3, min_repeat_ms=1).median > 0


def test_a_reduction_over_nothing_gives_its_identity() -> None:
    n = te.var("n")
    x = te.placeholder((3, n), name="X")
    r = te.reduce_axis(n, name="r")
    f = te.function([x], [te.compute((3,), lambda i: te.sum(x[i, r], axis=r), name="S")])
    m = tw.build(f)
    out = np.full(3, np.nan, np.float32)
    m(np.empty((3, 0), np.float32), out)
    assert (out == 0).all()
    m(np.ones((3, 5), np.float32), out)
    assert (out == 5).all()


def test_symbolic_extents_serve_all_sizes() -> None:
    n = te.var("n")
    x = te.placeholder((n,), name="X")
    f = te.function([x], [te.compute((n,), lambda i: x[i] * 2.0, name="Y")])
    m = tw.build(f)
    for size in (0, 1, 3, 16, 17, 1000):
        a = np.arange(size, dtype=np.float32)
        out = np.full(size, np.nan, np.float32)
        m(a, out)
        np.testing.assert_array_equal(out, 2 * a)


def test_a_checked_build_names_buffer_and_index() -> None:
    x = te.placeholder((8,), name="X")
    index = te.placeholder((4,), "int64", name="I")
    f = te.function([x, index], [te.compute((4,), lambda i: x[index[i]], name="Y")], name="take")
    for checked in (False, True):
        m = tw.build(f, checked=checked)
        out = np.empty(4, np.float32)
        m(np.arange(8, dtype=np.float32), np.array([7, 0, 3, 3]), out)
        assert out.tolist() == [7, 0, 3, 3]
        with pytest.raises(tw.UserError, match="index 8 is out of bounds for dimension 0 of X"):
            m(np.arange(8, dtype=np.float32), np.array([0, 1, 8, 2]), out)
        with pytest.raises(tw.UserError, match="index -1 is out of bounds"):
            m(np.arange(8, dtype=np.float32), np.array([0, -1, 1, 2]), out)


def test_code_for_another_machine_is_refused_with_the_reason() -> None:
    m = tw.build(matmul_function(4, 4, 4), "llvm -mcpu=rv64gcv -mtriple=riscv64-unknown-linux-gnu")
    assert m.object_code
    with pytest.raises(tw.UserError, match="cannot run here"):
        m(*operands(4, 4, 4))


def test_two_modules_in_two_threads() -> None:
    shapes = [(64, 64, 64), (50, 70, 90)]
    failures: list[str] = []

    def work(shape: tuple[int, int, int]) -> None:
        a, b, c = operands(*shape)
        for _ in range(50):
            c.fill(np.nan)
            modules[shape](a, b, c)
            if not np.allclose(c, a @ b, rtol=1e-4, atol=1e-4):
                failures.append(f"{shape}")

    modules = {s: tw.build(matmul_function(*s), threads=2) for s in shapes}
    workers = [threading.Thread(target=work, args=(s,)) for s in shapes * 2]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not failures


def test_threads_can_be_set_at_run_time() -> None:
    m = tw.build(matmul_function(128, 128, 128))
    a, b, c = operands(128, 128, 128)
    for count in (1, 2, 3):
        m.set_threads(count)
        c.fill(np.nan)
        m(a, b, c)
        np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_builds_and_runs_keep_memory_flat() -> None:
    """A short version of the claim; `benchmarks/growth.py` runs a thousand."""

    def rounds(count: int) -> None:
        for k in range(count):
            x = te.placeholder((16 + k % 7,), name="X")
            f = te.function([x], [te.compute(x.shape, lambda i, x=x, k=k: x[i] + float(k))])
            out = np.empty(16 + k % 7, np.float32)
            tw.build(f)(np.zeros_like(out), out)
            assert (out == k).all()
        gc.collect()

    rounds(30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rounds(60)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20_000, f"{grown} KiB more after 60 builds"
