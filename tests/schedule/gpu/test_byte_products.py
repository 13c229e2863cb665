"""Products of bytes on GPUs, summed in int32 by tensor instructions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.schedule.gpu.launches import TARGET, assemble, run, scheduled
from tests.schedule.gpu.test_tensor_products import WARPS, Array, instructions
from tilewright import te
from tilewright.ir import DType, Function, cast
from tilewright.kernels.pipeline import generated
from tilewright.schedule import RULES_BY_ADDRESS
from tilewright.schedule.rules.gpu import split_sums, tensor_tiles

I32 = DType.of("int32")
PAIRS = [("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")]


@pytest.fixture
def only_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups multiply small products too, which are faster by warps and in parts."""
    monkeypatch.setattr(tensor_tiles, "_BY_WARPS", ())
    monkeypatch.setattr(split_sums, "_parts", lambda _found, _target: 1)


def product(
    m: int, n: int, k: int, types: tuple[str, str] = ("int8", "int8"), by_columns: str = "b"
) -> Function:
    """A product; `by_columns` names operands that lie so."""
    a = te.placeholder((k, m) if "a" in by_columns else (m, k), types[0], name="A")
    b = te.placeholder((n, k) if "b" in by_columns else (k, n), types[1], name="B")
    r = te.reduce_axis(k, name="k")

    def element(i: Any, j: Any) -> Any:
        left = a[(r, i) if "a" in by_columns else (i, r)]
        right = b[(j, r) if "b" in by_columns else (r, j)]
        return te.sum(cast(left, I32) * cast(right, I32), axis=r)

    return te.function([a, b], [te.compute((m, n), element, name="C")], name="f")


def numbers(dtype: str, *shape: int) -> Array:
    """All bytes, the least and the greatest included."""
    ends = np.iinfo(dtype)
    made = np.random.default_rng(len(shape)).integers(ends.min, ends.max + 1, shape)
    made.flat[:2] = ends.min, ends.max
    return made.astype(dtype)


def check(s: Any, m: int, n: int, k: int, types: tuple[str, str], by_columns: str = "b") -> None:
    x = numbers(types[0], *((k, m) if "a" in by_columns else (m, k)))
    y = numbers(types[1], *((n, k) if "b" in by_columns else (k, n)))
    left, right = (v.astype("int32") for v in (x, y))
    want = (left.T if "a" in by_columns else left) @ (right.T if "b" in by_columns else right)
    np.testing.assert_array_equal(run(s.function, [x, y], [((m, n), "int32")])[0], want)


@pytest.mark.parametrize("types", PAIRS)
@pytest.mark.parametrize("size", [(64, 64, 64), (17, 33, 65), (130, 70, 48), (50, 72, 19)])
def test_sums_are_exact(size: tuple[int, int, int], types: tuple[str, str]) -> None:
    s = scheduled(product(*size, types), WARPS)
    short = "i8" if types == ("int8", "int8") else ".".join(DType.of(t).short for t in types)
    assert instructions(s) == {f"mma.{'u8' if short == 'u8.u8' else short}.mk.nk"}
    check(s, *size, types)


@pytest.mark.parametrize("by_columns", ["", "a", "ab"])
@pytest.mark.parametrize("size", [(64, 64, 64), (50, 72, 100)])
def test_operands_come_to_lie_along_the_sum(size: tuple[int, int, int], by_columns: str) -> None:
    """Instructions take bytes that are neighbours there."""
    s = scheduled(product(*size, by_columns=by_columns), WARPS)
    assert instructions(s) == {"mma.i8.mk.nk"}
    check(s, *size, ("int8", "int8"), by_columns)


@pytest.mark.parametrize("size", [(1, 1, 1), (5, 64, 64), (64, 64, 0), (0, 64, 64)])
def test_products_that_are_too_small_for_instructions(size: tuple[int, int, int]) -> None:
    s = scheduled(product(*size), WARPS)
    assert not instructions(s)
    if all(size):
        check(s, *size, ("int8", "int8"))


@pytest.mark.parametrize("types", PAIRS)
@pytest.mark.parametrize("size", [(64, 64, 256), (136, 80, 384), (200, 320, 144)])
@pytest.mark.usefixtures("only_groups")
def test_groups_of_warps(size: tuple[int, int, int], types: tuple[str, str]) -> None:
    s = scheduled(product(*size, types))
    assert all(name.startswith("wgmma.") for name in instructions(s)) and instructions(s)
    check(s, *size, types)


def test_the_code_of_a_product() -> None:
    s = RULES_BY_ADDRESS.schedule(product(1024, 1024, 1024, ("uint8", "int8")), WARPS)
    text = assemble(s.function, WARPS)
    assert text.count("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32") >= 16
    assert "ldmatrix.sync.aligned.m8n8.x4.shared.b16" in text
    assert "cp.async.cg.shared.global" in text and ".local" not in text


def test_the_code_of_a_product_by_groups() -> None:
    s = RULES_BY_ADDRESS.schedule(product(4096, 4096, 4096), TARGET)
    text = assemble(s.function)
    assert text.count("wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8") == 4
    assert ".local" not in text


def test_older_gpus_multiply_without_them() -> None:
    old = tw.Target.of("cuda -arch=sm_75")
    s = RULES_BY_ADDRESS.schedule(product(64, 64, 64), old)
    assert not instructions(s)
    assert "mma" not in generated(s.function, old).assembly()
