"""Fixed-point scaling against whole numbers of Python's, which do not overflow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.codegen.emulation import run_anywhere
from tests.graph.harness import check
from tests.graph.interpreted import check_definition
from tilewright import te
from tilewright.graph import Builder
from tilewright.ops import requantize
from tilewright.support.errors import UserError

RNG = np.random.default_rng(4)
X = np.concatenate([RNG.integers(-(2**31), 2**31, 40), np.arange(-24, 24)]).astype(np.int32)


def scaled(x: int, multiplier: int, shift: int, twice: bool) -> int:
    first = min(shift, 31) if twice else shift
    high = (x * multiplier + (1 << (first - 1))) >> first
    rest = shift - first
    if not rest:
        return high
    sign = -1 if high < 0 else 1
    return sign * ((abs(high) + (1 << (rest - 1))) >> rest)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("shift", [1, 15, 31, 32, 38, 62])
def test_beside_whole_numbers(shift: int, twice: bool) -> None:
    number = 1 << 30 if shift > 30 else 3
    how: dict[str, Any] = {"zero": 7, "low": -128, "high": 127, "dtype": np.dtype("int8")}
    given = [X, np.int32(number), np.int32(shift)]
    found = check_definition("requantize", given, twice=twice, symbolic=False, **how)[0]
    wanted = [max(-128, min(127, scaled(int(x), number, shift, twice) + 7)) for x in X]
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("shift", "least"), [(31, 31), (32, 31), (32, 32), (38, 32), (62, 32)])
@pytest.mark.parametrize(("zero", "low", "high"), [(7, -128, 127), (-128, -128, 100)])
def test_narrow_arithmetic_gives_the_same(
    shift: int, least: int, zero: int, low: int, high: int
) -> None:
    number, ends = 2**31 - 1, np.array([-(2**31), 2**31 - 1, 0, -1], np.int32)
    x = np.concatenate([X, ends])
    how: dict[str, Any] = {"zero": zero, "low": low, "high": high, "dtype": np.dtype("int8")}
    given = [x, np.int32(number), np.int32(shift)]
    how |= {"twice": True, "least": least}
    found = check_definition("requantize", given, symbolic=False, **how)[0]
    wanted = [max(low, min(high, scaled(int(v), number, shift, True) + zero)) for v in x]
    np.testing.assert_array_equal(found, wanted)
    check("requantize", given, **how)


def test_what_needs_more_than_32_bits_has_them() -> None:
    x = np.array([-(2**40), 2**33 + 1, -5, 2**40], np.int64)
    how: dict[str, Any] = {"zero": 7, "low": -128, "high": 127, "dtype": np.dtype("int8")}
    given: list[Any] = [x, np.int32(2**21), np.int32(55)]
    how |= {"twice": True, "least": 32}
    check("requantize", given, **how)
    given[0], how["zero"] = X, 2**31
    check("requantize", given, **how)


@pytest.mark.parametrize("twice", [False, True])
def test_natively_by_channel(twice: bool) -> None:
    x = RNG.integers(-99999, 99999, (2, 5, 9)).astype(np.int32)
    multiplier = RNG.integers(1 << 30, 2**31 - 1, (5, 1)).astype(np.int32)
    shift = RNG.integers(36, 44, (5, 1)).astype(np.int32)
    how: dict[str, Any] = {"zero": -3, "low": -3, "high": 100, "dtype": np.dtype("int8")}
    check("requantize", [x, multiplier, shift], twice=twice, **how)


def test_bounds_must_fit() -> None:
    b = Builder()
    x = b.input("x", "int32", [3])
    with pytest.raises(UserError, match="from -200 to 0"):
        b.requantize(x, 1, 1, zero=0, low=-200, high=0, dtype="int8")


@pytest.mark.parametrize(
    ("cpu", "names"),
    [
        ("neoverse-n1", ("sqrdmulh", "srshl")),
        ("cortex-a7", ("vqrdmulh", "vrshl")),
        ("x86-64-v3", ()),
    ],
)
@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_instructions_for_fixed_point(
    cpu: str, names: tuple[str, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors of sums, or of the bytes that they become, on every machine."""
    x = RNG.integers(-(2**31), 2**31, 4096).astype(np.int32)
    numbers = RNG.integers(2**30, 2**31, 4096).astype(np.int32)
    shifts = RNG.integers(31, 40, 4096).astype(np.int32)
    given = [te.placeholder((4096,), "int32", name=n) for n in "xms"]
    how: dict[str, Any] = {"zero": 3, "low": -100, "high": 99, "twice": True, "least": 31}
    made = requantize(*given, dtype=dtype, **how)
    module = tw.build(te.function(given, [made], name="f"), f"llvm -mcpu={cpu} -num-cores=1")
    assert all(name in module.asm for name in names)
    got = np.zeros(4096, dtype)
    run_anywhere(module, monkeypatch, x, numbers, shifts, got)
    each = zip(x.tolist(), numbers.tolist(), shifts.tolist(), strict=True)
    wanted = [max(-100, min(99, scaled(*one, True) + 3)) for one in each]
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("dtype", "zero", "low", "high"),
    [
        ("int8", -128, -128, 127),
        ("int8", 0, -128, 127),
        ("int8", 5, -100, 99),
        ("uint8", 130, 0, 255),
        ("uint8", 3, 3, 200),
    ],
)
@pytest.mark.parametrize(
    ("cpu", "narrows"), [("neoverse-n1", "sqxtn"), ("cortex-a7", "vqmovn"), ("x86-64-v3", "")]
)
def test_narrowing_saturates(
    cpu: str,
    narrows: str,
    dtype: str,
    zero: int,
    low: int,
    high: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bounds of bytes are those of instructions that narrow; values far beyond them as well."""
    x = RNG.integers(-(2**31), 2**31, 4096).astype(np.int32) >> RNG.integers(0, 30, 4096)
    shift = np.full(4096, 33, np.int32)
    numbers = RNG.integers(2**30, 2**31, 4096).astype(np.int32)
    given = [te.placeholder((4096,), "int32", name=n) for n in "xms"]
    how: dict[str, Any] = {"zero": zero, "low": low, "high": high, "twice": True, "least": 32}
    made = requantize(*given, dtype=dtype, **how)
    module = tw.build(te.function(given, [made], name="f"), f"llvm -mcpu={cpu} -num-cores=1")
    assert narrows in module.asm
    got = np.zeros(4096, dtype)
    run_anywhere(module, monkeypatch, x.astype(np.int32), numbers, shift, got)
    each = zip(x.tolist(), numbers.tolist(), shift.tolist(), strict=True)
    wanted = [max(low, min(high, scaled(*one, True) + zero)) for one in each]
    np.testing.assert_array_equal(got, wanted)


def test_rounding_of_what_is_clamped_takes_no_steps() -> None:
    """Where no result is below the zero point, halves below it need not be told apart."""
    given = [te.placeholder((4096,), "int32", name=n) for n in "xms"]
    how: dict[str, Any] = {"zero": -128, "high": 127, "twice": True, "least": 32}
    target = "llvm -mcpu=neoverse-n1 -num-cores=1"
    code = {
        low: tw.build(te.function(given, [requantize(*given, dtype=dtype, low=low, **how)]), target)
        for low, dtype in ((-128, "int8"), (-140, "int32"))
    }
    assert "ssra" not in code[-128].asm
    assert "ssra" in code[-140].asm
