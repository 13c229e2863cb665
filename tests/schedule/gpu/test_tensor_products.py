"""Products of narrow floats on GPUs: tensor instructions, and copies that run ahead of them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.schedule.gpu.launches import launches_of, run, scheduled, threads_of
from tilewright import te
from tilewright.ir import DType, Function, cast, select
from tilewright.kernels.pipeline import generated
from tilewright.schedule import RULES_BY_ADDRESS, Schedule
from tilewright.schedule.rules.gpu import product_plan

Array = np.ndarray[Any, Any]
#: A GPU whose warps multiply on their own.
WARPS = tw.Target.of("cuda -arch=sm_80")
F32 = DType.of("float32")


def numbers(dtype: str, *shape: int) -> Array:
    """Whole numbers, so that sums in any order are the same."""
    made = np.random.default_rng(len(shape)).integers(-4, 5, shape)
    return made.astype(DType.of(dtype).numpy)


def product(
    m: int, n: int, k: int, *, by_columns: str = "", after: bool = False, dtype: str = "float16"
) -> Function:
    """A product; `by_columns` names operands that lie so."""
    a = te.placeholder((k, m) if "a" in by_columns else (m, k), dtype, name="A")
    b = te.placeholder((n, k) if "b" in by_columns else (k, n), dtype, name="B")
    bias = te.placeholder((n,), "float32", name="bias")
    r = te.reduce_axis(k, name="k")

    def element(i: Any, j: Any) -> Any:
        left = a[(r, i) if "a" in by_columns else (i, r)]
        right = b[(j, r) if "b" in by_columns else (r, j)]
        return te.sum(cast(left, F32) * cast(right, F32), axis=r)

    c = te.compute((m, n), element, name="C")
    if not after:
        return te.function([a, b], [c], name="f")
    d = te.compute(
        (m, n), lambda i, j: cast(te.max(c[i, j] + bias[j], 0.0), DType.of(dtype)), name="D"
    )
    return te.function([a, b, bias], [d], name="f")


def instructions(s: Schedule) -> set[str]:
    return set(re.findall(r'tensor_intrin="([^"]+)"', str(s.function)))


@pytest.mark.parametrize("by_columns", ["", "a", "b", "ab"])
@pytest.mark.parametrize("size", [(64, 64, 64), (130, 70, 48), (50, 72, 19), (17, 200, 100)])
def test_operands_lie_as_they_do(size: tuple[int, int, int], by_columns: str) -> None:
    m, n, k = size
    s = scheduled(product(m, n, k, by_columns=by_columns), WARPS)
    layout = "km" if "a" in by_columns else "mk", "nk" if "b" in by_columns else "kn"
    assert instructions(s) == {f"mma.f16.{layout[0]}.{layout[1]}"}
    x = numbers("float16", *((k, m) if "a" in by_columns else (m, k)))
    y = numbers("float16", *((n, k) if "b" in by_columns else (k, n)))
    left, right = (v.astype("float32") for v in (x, y))
    want = (left.T if "a" in by_columns else left) @ (right.T if "b" in by_columns else right)
    np.testing.assert_array_equal(run(s.function, [x, y], [((m, n), "float32")])[0], want)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_follows_is_computed_from_registers(dtype: str) -> None:
    s = scheduled(product(96, 64, 64, after=True, dtype=dtype), WARPS)
    (launch,) = launches_of(s.function)
    assert threads_of(launch)["threadIdx.x"] == 32, "a warp along the first axis"
    x, y = numbers(dtype, 96, 64), numbers(dtype, 64, 64)
    bias = numbers("float32", 64)
    want = np.maximum(x.astype("float32") @ y.astype("float32") + bias, 0)
    got = run(s.function, [x, y, bias], [((96, 64), DType.of(dtype).numpy)])[0]
    np.testing.assert_array_equal(got, want.astype(DType.of(dtype).numpy))


@pytest.fixture
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every matrix counts as a large one, for two rows already."""
    monkeypatch.setattr(product_plan, "_LEAST_BY_LARGE", ((1, 2),))
    monkeypatch.setattr(product_plan, "SHORT", 1)


@pytest.mark.parametrize("by_columns", ["", "a", "b"])
@pytest.mark.parametrize(("rows", "columns"), [(2, 64), (5, 70), (8, 96)])
@pytest.mark.usefixtures("all_are_large")
def test_few_rows_by_a_large_matrix_are_padded(rows: int, columns: int, by_columns: str) -> None:
    s = scheduled(product(rows, columns, 72, by_columns=by_columns, after=True), WARPS)
    assert len(instructions(s)) == 1
    x = numbers("float16", *((72, rows) if "a" in by_columns else (rows, 72)))
    y = numbers("float16", *((columns, 72) if "b" in by_columns else (72, columns)))
    bias = numbers("float32", columns)
    left, right = (v.astype("float32") for v in (x, y))
    left, right = (v.T if n in by_columns else v for n, v in (("a", left), ("b", right)))
    got = run(s.function, [x, y, bias], [((rows, columns), np.dtype("float16"))])[0]
    want = np.maximum(left @ right + bias, 0).astype("float16")
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("rows", [4, 8])
@pytest.mark.usefixtures("all_are_large")
def test_padded_rows_can_have_any_tile(rows: int) -> None:
    function = product(rows, 256, 128)
    (choice,) = (k for k in RULES_BY_ADDRESS.offered(function, WARPS) if k.endswith(".tile"))
    x, y = numbers("float16", rows, 128), numbers("float16", 128, 256)
    want = x.astype("float32") @ y.astype("float32")
    for number in range(len(RULES_BY_ADDRESS.offered(function, WARPS)[choice])):
        rules = replace(RULES_BY_ADDRESS, taken={choice: number})
        s = scheduled(function, WARPS, rules=rules)
        np.testing.assert_array_equal(run(s.function, [x, y], [((rows, 256), "float32")])[0], want)


@pytest.mark.usefixtures("all_are_large")
def test_wide_elements_are_not_worth_padding() -> None:
    assert not instructions(scheduled(product(8, 256, 256, dtype="float32"), WARPS))


def test_few_rows_are_padded_where_the_matrix_is_large_enough() -> None:
    assert not instructions(scheduled(product(8, 256, 256), WARPS))
    assert instructions(scheduled(product(8, 2048, 2048), WARPS))
    assert not instructions(scheduled(product(3, 2048, 2048), WARPS))
    assert instructions(scheduled(product(3, 8192, 4096), WARPS))


def test_infinities_and_nan_come_through() -> None:
    s = scheduled(product(32, 32, 32), WARPS)
    x, y = numbers("float16", 32, 32), numbers("float16", 32, 32)
    x[3, 4], x[5, 6], y[4, :] = np.inf, np.nan, 1
    want = x.astype("float32") @ y.astype("float32")
    np.testing.assert_array_equal(run(s.function, [x, y], [((32, 32), "float32")])[0], want)


def conv(last: bool, channels: int, size: int, out: int, window: int, stride: int) -> Function:
    """A padded convolution with channels last or first."""
    pad = window // 2
    full, results = size + 2 * pad, (size + 2 * pad - window) // stride + 1
    ordered = (lambda c, y, x: (0, y, x, c)) if last else (lambda c, y, x: (0, c, y, x))

    def shape(c: int, y: int, x: int) -> tuple[int, ...]:
        return (1, *ordered(c, y, x)[1:])

    image = te.placeholder(shape(channels, size, size), "float16", name="X")
    weights = te.placeholder(
        (out, window, window, channels) if last else (out, channels, window, window),
        "float16",
        name="W",
    )

    def padded(_: Any, *at: Any) -> Any:
        y, x, c = at if last else (at[1], at[2], at[0])
        inside = (y >= pad) & (y < size + pad) & (x >= pad) & (x < size + pad)
        return select(inside, image[ordered(c, y - pad, x - pad)], cast(0.0, DType.of("float16")))

    around = te.compute(shape(channels, full, full), padded, name="P")
    c, ky, kx = (
        te.reduce_axis(e, name=n) for e, n in ((channels, "c"), (window, "ky"), (window, "kx"))
    )

    def element(_: Any, *at: Any) -> Any:
        y, x, o = at if last else (at[1], at[2], at[0])
        seen = around[ordered(c, y * stride + ky, x * stride + kx)]
        weight = weights[(o, ky, kx, c) if last else (o, c, ky, kx)]
        return te.sum(
            cast(seen, F32) * cast(weight, F32), axis=(ky, kx, c) if last else (c, ky, kx)
        )

    total = te.compute(shape(out, results, results), element, name="C")
    return te.function([image, weights], [total], name="conv")


@pytest.mark.parametrize(("stride", "window"), [(1, 3), (2, 5)])
def test_windows_in_one_dimension(stride: int, window: int) -> None:
    """Channels and the window are one variable of the sum, though pixels have one dimension."""
    image = te.placeholder((20, 50), "float16", name="X")
    weights = te.placeholder((24, 20, window), "float16", name="W")
    c, k = te.reduce_axis(20, name="c"), te.reduce_axis(window, name="k")
    size = (50 - window) // stride + 1

    def element(o: Any, x: Any) -> Any:
        seen, weight = image[c, x * stride + k], weights[o, c, k]
        return te.sum(cast(seen, F32) * cast(weight, F32), axis=(c, k))

    total = te.compute((24, size), element, name="C")
    s = RULES_BY_ADDRESS.schedule(te.function([image, weights], [total], name="conv"), WARPS)
    assert len(instructions(s)) == 1
    x, w = numbers("float16", 20, 50), numbers("float16", 24, 20, window)
    windows = np.lib.stride_tricks.sliding_window_view(x, window, axis=1)[:, ::stride]
    want = np.einsum("cxk,ock->ox", windows.astype("float32"), w.astype("float32"))
    np.testing.assert_array_equal(run(s.function, [x, w], [((24, size), "float32")])[0], want)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize(
    ("channels", "size", "out", "window", "stride"),
    [
        (32, 7, 64, 3, 1),
        (32, 9, 40, 3, 2),
        (16, 8, 70, 5, 1),
        (3, 15, 32, 3, 2),
        (20, 6, 30, 3, 1),
    ],
)
def test_windows_are_sums_of_one_variable(
    last: bool, channels: int, size: int, out: int, window: int, stride: int
) -> None:
    torch = pytest.importorskip("torch")
    function = conv(last, channels, size, out, window, stride)
    s = RULES_BY_ADDRESS.schedule(function, WARPS)
    assert len(instructions(s)) == 1
    shapes = [tuple(int(e.value) for e in b.shape) for b in function.buffers]  # type: ignore[attr-defined]
    x, w = (numbers("float16", *shape) for shape in shapes[:2])
    first = [torch.tensor(v.astype("float32")).permute(0, 3, 1, 2) for v in (x, w)]
    given = first if last else [torch.tensor(v.astype("float32")) for v in (x, w)]
    made = torch.nn.functional.conv2d(*given, stride=stride, padding=window // 2)
    want = (made.permute(0, 2, 3, 1) if last else made).contiguous().numpy()
    got = run(s.function, [x, w], [(want.shape, "float32")])[0]
    np.testing.assert_array_equal(got, want)
    if last and channels % 8 == 0:
        assert str(s.function).count("vectorized(8)") == 2, "both operands by 16 bytes"


def test_the_code_of_a_product() -> None:
    """Copies are asynchronous, tiles are read by the instruction for it, sums are registers."""
    s = RULES_BY_ADDRESS.schedule(product(1024, 1024, 1024, by_columns="b"), WARPS)
    text = generated(s.function, WARPS).assembly()
    assert text.count("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32") >= 16
    assert "ldmatrix.sync.aligned.m8n8.x4.shared.b16" in text
    assert "cp.async.cg.shared.global" in text and "cp.async.wait_group" in text
    assert ".local" not in text
    loop = text[text.index("cp.async.wait_group") :]
    assert loop.count("bar.sync") == 1, "one barrier for an iteration"


def test_older_gpus_multiply_without_them() -> None:
    old = tw.Target.of("cuda -arch=sm_75")
    s = RULES_BY_ADDRESS.schedule(product(64, 64, 64), old)
    assert not instructions(s)
    assert "mma" not in generated(s.function, old).assembly()


def test_instructions_of_newer_gpus_are_refused_on_older_ones() -> None:
    s = RULES_BY_ADDRESS.schedule(product(64, 64, 64), WARPS)
    with pytest.raises(tw.UserError, match="GPUs since sm_80 have it"):
        generated(s.function, tw.Target.of("cuda -arch=sm_75"))
