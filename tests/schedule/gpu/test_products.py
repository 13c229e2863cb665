"""Products on GPUs: tiles of operands in shared memory, of results in registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.schedule.gpu.launches import (
    TARGET,
    blocks_in,
    launches_of,
    loops,
    run,
    scheduled,
    threads_of,
)
from tilewright import te
from tilewright.graph import find_op
from tilewright.ir import Alloc, Function, walk
from tilewright.kernels.pipeline import generated
from tilewright.schedule import Schedule

Array = np.ndarray[Any, Any]


def numbers(*shape: int) -> Array:
    """Whole numbers, so that sums in any order are the same."""
    return np.random.default_rng(len(shape)).integers(-4, 5, shape).astype("float32")


def product(
    m: Any, n: Any, k: Any, *, batch: tuple[Any, ...] = (), across: bool = False, after: str = ""
) -> Function:
    """A product, whose second operand may be read across, with what follows it."""
    a = te.placeholder((*batch, m, k), name="A")
    b = te.placeholder((*batch, n, k) if across else (*batch, k, n), name="B")
    bias = te.placeholder((n,), name="bias")
    r = te.reduce_axis(k, name="k")

    def element(*i: Any) -> Any:
        *outer, row, column = i
        second = b[(*outer, column, r)] if across else b[(*outer, r, column)]
        return te.sum(a[(*outer, row, r)] * second, axis=r)

    c = te.compute((*batch, m, n), element, name="C")
    if not after:
        return te.function([a, b], [c], name="f")
    d = te.compute((*batch, m, n), lambda *i: te.max(c[i] + bias[i[-1]], 0.0), name="D")
    return te.function([a, b, bias], [d], name="f")


def scopes(s: Schedule) -> dict[str, str]:
    allocs = [a for a in walk(s.function.body) if isinstance(a, Alloc)]
    return {b.name: b.scope for a in allocs for b in a.buffers}


@pytest.mark.parametrize(
    ("m", "n", "k"), [(64, 64, 32), (96, 200, 48), (50, 70, 19), (200, 33, 1), (17, 130, 64)]
)
@pytest.mark.parametrize("across", [False, True])
def test_products_of_any_size(m: int, n: int, k: int, across: bool) -> None:
    s = scheduled(product(m, n, k, across=across))
    x, y = numbers(m, k), numbers(n, k) if across else numbers(k, n)
    want = x @ (y.T if across else y)
    np.testing.assert_array_equal(run(s.function, [x, y], [(want.shape, "float32")])[0], want)
    if k >= 8:
        (launch,) = launches_of(s.function)
        assert threads_of(launch) == {"threadIdx.x": 16, "threadIdx.y": 16}
        assert sorted(scopes(s).values()) == ["local", "shared", "shared"]


def test_large_products_have_large_tiles() -> None:
    for size, tiles in [(2048, 256), (1024, 128), (256, 64)]:
        (launch,) = launches_of(scheduled(product(size, size, 96)).function)
        assert int(launch.extent.value) == tiles, size  # type: ignore[attr-defined]


def test_operands_are_read_by_vectors_and_sums_stay_in_registers() -> None:
    text = generated(scheduled(product(256, 256, 64)).function, TARGET).assembly()
    assert "ld.shared.v4" in text and "ld.global.v4" in text
    assert ".local" not in text
    odd = generated(scheduled(product(te.var("m"), 250, 61)).function, TARGET).assembly()
    assert "ld.shared.v4" in odd and ".local" not in odd


def test_what_follows_is_computed_by_the_threads_that_have_the_sums() -> None:
    s = scheduled(product(80, 72, 40, after="relu"))
    (launch,) = launches_of(s.function)
    assert blocks_in(launch)[-1] == "D"
    assert sorted(scopes(s).values()) == ["local", "shared", "shared"]
    x, y, bias = numbers(80, 40), numbers(40, 72), numbers(72)
    want = np.maximum(x @ y + bias, 0)
    np.testing.assert_array_equal(run(s.function, [x, y, bias], [(want.shape, "float32")])[0], want)


def test_batches_choose_blocks() -> None:
    s = scheduled(product(40, 72, 32, batch=(2, 3)))
    assert len(launches_of(s.function)) == 1
    x, y = numbers(2, 3, 40, 32), numbers(2, 3, 32, 72)
    want = x @ y
    np.testing.assert_array_equal(run(s.function, [x, y], [(want.shape, "float32")])[0], want)


@pytest.mark.parametrize("symbolic", ["m", "mn", "mnk"])
def test_symbolic_sizes(symbolic: str) -> None:
    sizes = {"m": 50, "n": 72, "k": 40}
    dims = [te.var(x) if x in symbolic else e for x, e in sizes.items()]
    s = scheduled(product(*dims, after="relu"))
    assert len(launches_of(s.function)) == 1 and not s.declined
    x, y, bias = numbers(50, 40), numbers(40, 72), numbers(72)
    want = np.maximum(x @ y + bias, 0)
    np.testing.assert_array_equal(run(s.function, [x, y, bias], [(want.shape, "float32")])[0], want)


def test_a_matrix_times_itself() -> None:
    a = te.placeholder((64, 64), name="A")
    r = te.reduce_axis(64, name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, r] * a[r, j], axis=r), name="C")
    s = scheduled(te.function([a], [c], name="f"))
    x = numbers(64, 64)
    np.testing.assert_array_equal(run(s.function, [x], [((64, 64), "float32")])[0], x @ x)


def conv(x: Array, w: Array, **attrs: Any) -> tuple[Schedule, Array]:
    """A convolution under its schedule, and what it should give."""
    op = find_op("conv")
    return scheduled(loops("conv", x, w, **attrs)), np.asarray(
        op.evaluate(*op.bind([x, w], attrs))[0]
    )


@pytest.mark.parametrize(
    ("image", "weights", "attrs"),
    [
        ((2, 16, 14, 14), (32, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 3, 20, 20), (16, 3, 7, 7), {"pads": [3, 3, 3, 3], "strides": [2, 2]}),
        ((2, 32, 9, 9), (24, 32, 1, 1), {}),
        ((1, 8, 12, 12), (16, 8, 3, 3), {"dilations": [2, 2]}),
    ],
)
def test_windows_are_gathered_into_shared_memory(image: Any, weights: Any, attrs: Any) -> None:
    x, w = numbers(*image), numbers(*weights)
    s, want = conv(x, w, **attrs)
    launch, *joining = launches_of(s.function)
    assert threads_of(launch) == {"threadIdx.x": 16, "threadIdx.y": 16}
    in_memory = [name for name, scope in scopes(s).items() if scope == "global"]
    assert len(in_memory) == len(joining) <= 1, "parts of sums, but no image is copied in memory"
    got = run(s.function, [x, w], [(want.shape, "float32")])[0]
    np.testing.assert_array_equal(got, want)


def test_depthwise_convolutions_are_one_launch() -> None:
    x, w = numbers(2, 12, 10, 10), numbers(12, 1, 3, 3)
    s, want = conv(x, w, groups=12, pads=[1, 1, 1, 1])
    assert len(launches_of(s.function)) == 1
    got = run(s.function, [x, w], [(want.shape, "float32")])[0]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("after", ["", "relu"])
def test_long_sums_of_few_tiles_are_cut_into_parts(after: str) -> None:
    s = scheduled(product(64, 72, 256, after=after))
    first, second = launches_of(s.function)
    assert any(name.startswith("C_rf") for name in blocks_in(first))
    assert blocks_in(second) == (["C", "D"] if after else ["C", "C_local"])
    x, y, bias = numbers(64, 256), numbers(256, 72), numbers(72)
    want = np.maximum(x @ y + bias, 0) if after else x @ y
    given = [x, y, bias] if after else [x, y]
    np.testing.assert_array_equal(run(s.function, given, [(want.shape, "float32")])[0], want)


def test_products_of_many_tiles_are_not() -> None:
    assert len(launches_of(scheduled(product(1024, 1024, 1024)).function)) == 1
