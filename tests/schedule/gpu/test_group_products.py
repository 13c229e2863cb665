"""Products by groups of four warps (`wgmma`), on GPUs that have them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.schedule.gpu.launches import TARGET, launches_of, run, scheduled, threads_of
from tests.schedule.gpu.test_tensor_products import Array, conv, instructions, numbers, product
from tilewright import simt, te
from tilewright.codegen.cuda import backend as cuda_backend
from tilewright.ir import Const, DType, Evaluate, Var, call, cast, const, map_stmt
from tilewright.kernels.pipeline import generated, lowered
from tilewright.schedule import RULES_BY_ADDRESS, Schedule
from tilewright.schedule.rules.gpu import split_sums, tensor_tiles


@pytest.fixture
def only_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups multiply small products too, which are faster by warps and in parts."""
    monkeypatch.setattr(tensor_tiles, "_BY_WARPS", ())
    monkeypatch.setattr(split_sums, "_parts", lambda _found, _target: 1)


def groups(s: Schedule) -> bool:
    return all(name.startswith("wgmma.") for name in instructions(s)) and bool(instructions(s))


def operands(m: int, n: int, k: int, by_columns: str, dtype: str = "float16") -> list[Array]:
    x = numbers(dtype, *((k, m) if "a" in by_columns else (m, k)))
    y = numbers(dtype, *((n, k) if "b" in by_columns else (k, n)))
    return [x, y]


def wanted(x: Array, y: Array, by_columns: str) -> Array:
    left, right = (v.astype("float32") for v in (x, y))
    return (left.T if "a" in by_columns else left) @ (right.T if "b" in by_columns else right)


@pytest.mark.parametrize("by_columns", ["", "a", "b", "ab"])
@pytest.mark.parametrize("size", [(64, 64, 192), (136, 72, 256), (200, 320, 136)])
@pytest.mark.usefixtures("only_groups")
def test_operands_lie_as_they_do(size: tuple[int, int, int], by_columns: str) -> None:
    m, n, k = size
    s = scheduled(product(m, n, k, by_columns=by_columns))
    assert groups(s)
    x, y = operands(m, n, k, by_columns)
    got = run(s.function, [x, y], [((m, n), "float32")])[0]
    np.testing.assert_array_equal(got, wanted(x, y, by_columns))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("columns", [96, 100])
@pytest.mark.usefixtures("only_groups")
def test_what_follows(dtype: str, columns: int) -> None:
    """Whole vectors of results go through shared memory, others from registers."""
    s = scheduled(product(150, columns, 256, by_columns="b", after=True, dtype=dtype))
    assert groups(s)
    (launch,) = launches_of(s.function)
    assert threads_of(launch)["threadIdx.y"] == 4, "warps of a group"
    x, y = operands(150, columns, 256, "b", dtype)
    bias = numbers("float32", columns)
    want = np.maximum(wanted(x, y, "b") + bias, 0).astype(DType.of(dtype).numpy)
    got = run(s.function, [x, y, bias], [((150, columns), DType.of(dtype).numpy)])[0]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("rows", [9, 16, 17, 33])
def test_any_tile_of_few_rows_can_be_chosen(rows: int) -> None:
    function = product(rows, 256, 128)
    (choice,) = (k for k in RULES_BY_ADDRESS.offered(function, TARGET) if k.endswith(".tile"))
    x, y = operands(rows, 256, 128, "")
    for number in range(len(RULES_BY_ADDRESS.offered(function, TARGET)[choice])):
        s = scheduled(function, rules=replace(RULES_BY_ADDRESS, taken={choice: number}))
        got = run(s.function, [x, y], [((rows, 256), "float32")])[0]
        np.testing.assert_array_equal(got, wanted(x, y, ""))


def test_parts_of_a_sum_are_counted_for_groups() -> None:
    """More parts would make tiles that fill the GPU by warps, and take longer to join."""
    s = scheduled(product(784, 128, 1152))
    assert groups(s) and len(launches_of(s.function)) == 2
    assert "s.split(l0, 3, None)" in str(s.trace)


@pytest.mark.usefixtures("only_groups")
def test_infinities_and_nan_come_through() -> None:
    s = scheduled(product(64, 64, 128))
    assert groups(s)
    x, y = operands(64, 64, 128, "")
    x[3, 4], x[5, 6], y[4, :] = np.inf, np.nan, 1
    got = run(s.function, [x, y], [((64, 64), "float32")])[0]
    np.testing.assert_array_equal(got, wanted(x, y, ""))


@pytest.mark.usefixtures("only_groups")
def test_rows_of_a_number_known_later() -> None:
    n = Var("n")
    a = te.placeholder((n, 128), "float16", name="A")
    b = te.placeholder((128, 64), "float16", name="B")
    k = te.reduce_axis(128, name="k")
    f32 = DType.of("float32")
    c = te.compute(
        (n, 64), lambda i, j: te.sum(cast(a[i, k], f32) * cast(b[k, j], f32), axis=k), name="C"
    )
    s = scheduled(te.function([a, b], [c], name="f"))
    assert groups(s)
    for rows in (1, 70):
        x, y = operands(rows, 64, 128, "")
        got = run(s.function, [x, y], [((rows, 64), "float32")], {n: rows})[0]
        np.testing.assert_array_equal(got, wanted(x, y, ""))


@pytest.mark.usefixtures("only_groups")
def test_windows() -> None:
    """Images with channels last, padded: windows are gathered into rows of 64."""
    torch = pytest.importorskip("torch")
    s = RULES_BY_ADDRESS.schedule(conv(True, 64, 9, 64, 3, 1), TARGET)
    assert groups(s)
    x, w = numbers("float16", 1, 9, 9, 64), numbers("float16", 64, 3, 3, 64)
    given = [torch.tensor(v.astype("float32")).permute(0, 3, 1, 2) for v in (x, w)]
    want = torch.nn.functional.conv2d(*given, padding=1).permute(0, 2, 3, 1).contiguous().numpy()
    got = run(s.function, [x, w], [(want.shape, "float32")])[0]
    np.testing.assert_array_equal(got, want)


def test_tiles_that_three_groups_compute() -> None:
    """6304 rows of 768 columns are one tile for each of 132 multiprocessors."""
    s = RULES_BY_ADDRESS.schedule(product(6304, 768, 3072), TARGET)
    (launch,) = launches_of(s.function)
    assert threads_of(launch) == {"threadIdx.x": 32, "threadIdx.y": 4, "threadIdx.z": 3}
    assert isinstance(launch.extent, Const) and launch.extent.value == 132


@pytest.mark.usefixtures("only_groups")
def test_sums_of_three_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    of_three = [shape for shape in tensor_tiles._BY_GROUPS if shape.warps.down == 3]
    monkeypatch.setattr(tensor_tiles, "_BY_GROUPS", of_three)
    s = scheduled(product(250, 200, 128))
    assert groups(s)
    x, y = operands(250, 200, 128, "")
    got = run(s.function, [x, y], [((250, 200), "float32")])[0]
    np.testing.assert_array_equal(got, wanted(x, y, ""))


@pytest.mark.usefixtures("only_groups")
def test_operands_that_products_do_not_see_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    s = scheduled(product(64, 64, 128))
    monkeypatch.setattr(cuda_backend, "fence_operands", lambda function: function)
    x, y = operands(64, 64, 128, "")
    with pytest.raises(simt.SimtError, match="with no fence before"):
        run(s.function, [x, y], [((64, 64), "float32")])


def test_rows_that_are_no_whole_vectors_are_left_to_warps() -> None:
    assert not groups(RULES_BY_ADDRESS.schedule(product(256, 100, 200), TARGET))


def test_the_code_of_a_product() -> None:
    s = RULES_BY_ADDRESS.schedule(product(4096, 4096, 4096, by_columns="b"), TARGET)
    text = generated(s.function, TARGET).assembly()
    assert text.count("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16") == 4
    assert text.count("cp.async.wait_group") == 1, "copies run ahead of one loop"
    assert text.count("wgmma.wait_group.sync.aligned 1") == 1, (
        "products go on in the next iteration"
    )
    assert text.count("wgmma.wait_group.sync.aligned 0") == 1, "and end before their sums are read"
    assert text.count("fence.proxy.async.shared::cta") == 1, "where copies have arrived"
    arrived = text[text.index("cp.async.wait_group") :]
    assert arrived.index("fence.proxy.async") < arrived.index("bar.sync")
    assert ".local" not in text and "st.global.v4" in text


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_other_gpus_multiply_by_warps(arch: str) -> None:
    s = RULES_BY_ADDRESS.schedule(product(256, 256, 256), tw.Target.of(f"cuda -arch={arch}"))
    assert instructions(s) and not groups(s)


@pytest.mark.usefixtures("only_groups")
def test_other_gpus_refuse_the_instruction() -> None:
    s = RULES_BY_ADDRESS.schedule(product(64, 64, 64), TARGET)
    with pytest.raises(tw.UserError, match="sm_90a has it"):
        generated(s.function, tw.Target.of("cuda -arch=sm_90"))


@pytest.mark.usefixtures("only_groups")
def test_operands_that_are_overwritten_too_early_are_found() -> None:
    """Products go on during the next iteration: what they read must not be copied to by then."""
    low = lowered(scheduled(product(128, 128, 1024)).function, TARGET)
    x, y = operands(128, 128, 1024, "")
    out = np.zeros((128, 128), "float32")
    arrays: list[Any] = [*(v.view("uint16") for v in (x, y)), out]
    simt.run(low, arrays)
    np.testing.assert_array_equal(out, wanted(x, y, ""))
    waits = Evaluate(call("products_wait", const(1)))

    def without(stmt: Any) -> Any:
        later = Evaluate(call("products_wait", const(3)))
        return later if str(stmt) == str(waits) else None

    with pytest.raises(simt.SimtError):
        simt.run(low.with_body(map_stmt(low.body, without)), arrays)
