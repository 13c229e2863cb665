"""The evaluator against Python's integers, fractions and the definitions in `ir.expr`."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilewright.ir import (
    Buffer,
    Ramp,
    Var,
    binary,
    broadcast,
    call,
    cast,
    const,
    evaluate,
    maximum,
    minimum,
    reinterpret,
    select,
)
from tilewright.support.errors import UserError

SMALL = np.array([-128, -127, -7, -2, -1, 0, 1, 2, 3, 7, 100, 127], np.int8)


def apply(op: str, a: Any, b: Any, dtype: str) -> np.ndarray:
    x, y = Var("x", dtype), Var("y", dtype)
    return evaluate(binary(op, x, y), {x: a, y: b})


def trunc_div(a: int, b: int) -> int:
    return int(Fraction(a, b)) if b else 0


WHOLE = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b if b else 0,
    "floormod": lambda a, b: a % b if b else 0,
    "truncdiv": trunc_div,
    "truncmod": lambda a, b: a - b * trunc_div(a, b) if b else 0,
}


@pytest.mark.parametrize("op", WHOLE)
def test_integers_wrap_and_divide_as_defined(op: str) -> None:
    got = apply(op, SMALL[:, None], SMALL[None, :], "int8")
    assert got.dtype == np.int8
    for i, a in enumerate(SMALL.tolist()):
        for j, b in enumerate(SMALL.tolist()):
            expected = (WHOLE[op](a, b) + 128) % 256 - 128
            assert got[i, j] == expected, (op, a, b)


def test_min_and_max_hand_on_nan() -> None:
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        x = Var("x", dtype)
        for pick in (minimum, maximum):
            assert np.isnan(evaluate(pick(x, 1.0), {x: math.nan}).astype(np.float32))
            assert np.isnan(evaluate(pick(const(1.0, dtype), x), {x: math.nan}).astype(np.float32))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64", "int4"])
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_float_to_integer_saturates(source: str, dtype: str) -> None:
    x = Var("x", source)
    info = ml_dtypes.iinfo(const(0, dtype).dtype.numpy)
    values = [-math.inf, -1e30, -200.9, -1.5, -0.0, 0.99, 7.9, 300.0, 3e9, 2.0**63, 1e30, math.inf]
    got = evaluate(cast(x, dtype), {x: np.array(values)}).astype(object)
    for value, result in zip(np.array(values).astype(source), got, strict=True):
        clipped = min(max(float(value), -(2.0**70)), 2.0**70)
        assert int(result) == min(max(int(clipped), int(info.min)), int(info.max))
    assert int(evaluate(cast(x, dtype), {x: math.nan})) == 0


def test_integer_casts_wrap_and_bool_asks_for_zero() -> None:
    x = Var("x", "int32")
    values = np.array([-129, -1, 0, 8, 255, 256, 70000])
    assert evaluate(cast(x, "int8"), {x: values}).tolist() == [127, -1, 0, 8, -1, 0, 112]
    assert evaluate(cast(x, "int4"), {x: values}).astype(int).tolist() == [-1, -1, 0, -8, -1, 0, 0]
    assert evaluate(cast(x, "bool"), {x: values}).tolist() == [v != 0 for v in values.tolist()]
    y = Var("y", "float32")
    flags = evaluate(cast(y, "bool"), {y: np.array([0.0, -0.0, 0.1, math.nan])})
    assert flags.tolist() == [False, False, True, True]


def test_narrowing_rounds_once() -> None:
    # Just above the midpoint of two bfloat16s; float32 would round it onto the midpoint.
    value = 1 + 2.0**-8 + 2.0**-40
    x = Var("x", "float64")
    assert float(evaluate(cast(x, "bfloat16"), {x: value})) == 1 + 2.0**-7
    assert float(evaluate(cast(x, "bfloat16"), {x: 1 + 2.0**-8})) == 1.0
    assert float(evaluate(cast(x, "float8_e5m2"), {x: 1.13})) == 1.25


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_constants_are_rounded_as_arrays_are(dtype: str) -> None:
    drawn = _interesting(np.random.default_rng(0), 2000, np.float64).tolist()
    ends = [0.0, -0.0, math.inf, -math.inf, 2.0**128 - 2.0**103, 2.0**128 - 2.0**102, 1e-46]
    with np.errstate(over="ignore"):
        rounded = np.array([*drawn, *ends]).astype(dtype).astype(np.float64)
    kept = np.array([const(v, dtype).value for v in [*drawn, *ends]])
    assert (kept.view(np.int64) == rounded.view(np.int64)).all()
    assert math.isnan(const(math.nan, dtype).value)


def _interesting(rng: np.random.Generator, count: int, dtype: Any) -> np.ndarray:
    info = np.finfo(dtype)
    low, high = info.minexp - info.nmant, info.maxexp
    spread = rng.integers(low, high, count)
    near = rng.integers(-4, 4, count)
    exponent = np.where(rng.random(count) < 0.5, spread, near)
    return np.ldexp(rng.uniform(-2, 2, count), exponent - 1).astype(dtype)


def _fma_exactly(a: float, b: float, c: float, dtype: Any) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if dtype is np.float64:
        try:
            return float(exact)
        except OverflowError:
            return -math.inf if exact < 0 else math.inf
    sign, exact = (-1 if exact < 0 else 1), abs(exact)
    info = np.finfo(dtype)
    exponent = max(exact.numerator.bit_length() - exact.denominator.bit_length() - 1, info.minexp)
    if exact >= Fraction(2) ** (exponent + 1):
        exponent += 1
    step = Fraction(2) ** (exponent - info.nmant)
    rounded = round(exact / step) * step
    return sign * (math.inf if rounded > float(info.max) else float(rounded))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_fma_rounds_once(dtype: Any) -> None:
    rng = np.random.default_rng(7)
    a, b, c = (_interesting(rng, 3000, dtype) for _ in range(3))
    cancelling = rng.random(3000) < 0.3
    with np.errstate(all="ignore"):
        c = np.where(cancelling & np.isfinite(a * b), -(a * b), c).astype(dtype)
    x, y, z = (Var(n, np.dtype(dtype)) for n in "xyz")
    got = evaluate(call("fma", x, y, z), {x: a, y: b, z: c})
    assert got.dtype == dtype
    for i in range(len(a)):
        expected = _fma_exactly(float(a[i]), float(b[i]), float(c[i]), dtype)
        assert float(got[i]) == expected, (a[i], b[i], c[i])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fma_keeps_specials(dtype: str) -> None:
    x, y, z = (Var(n, dtype) for n in "xyz")
    fused = call("fma", x, y, z)
    assert evaluate(fused, {x: 1e30, y: 1e9, z: -math.inf}) == -math.inf
    assert np.isnan(evaluate(fused, {x: math.inf, y: 0.0, z: 1.0}))
    assert np.isnan(evaluate(fused, {x: math.inf, y: 1.0, z: -math.inf}))
    assert np.signbit(evaluate(fused, {x: -0.0, y: 1.0, z: -0.0}))
    assert not np.signbit(evaluate(fused, {x: -0.0, y: 1.0, z: 0.0}))


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "int64"])
def test_bit_counts_and_mulhi(dtype: str) -> None:
    info = np.iinfo(dtype)
    rng = np.random.default_rng(3)
    a = rng.integers(info.min, info.max, 200, dtype, endpoint=True)
    a[:4] = [0, 1, info.max, info.min]
    b = rng.permutation(a)
    x, y = Var("x", dtype), Var("y", dtype)
    counts = {n: evaluate(call(n, x), {x: a}) for n in ("popcount", "clz", "ctz")}
    high = evaluate(call("mulhi", x, y), {x: a, y: b})
    for i, (p, q) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        bits = f"{p % (1 << info.bits):0{info.bits}b}"
        assert counts["popcount"][i] == bits.count("1")
        assert counts["clz"][i] == len(bits) - len(bits.lstrip("0"))
        assert counts["ctz"][i] == len(bits) - len(bits.rstrip("0"))
        assert high[i] == (p * q) >> info.bits


def test_rounding_functions_and_reinterpret() -> None:
    x = Var("x", "float32")
    values = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.7])
    rounded = evaluate(call("round", x), {x: values})
    assert rounded.tolist() == [-2, -2, -0.0, 0, 2, 2, 4]
    assert np.signbit(rounded[2])
    assert int(evaluate(reinterpret(x, "int32"), {x: 1.0})) == 0x3F800000
    assert evaluate(call("signbit", x), {x: -0.0})


def test_transcendentals_are_rounded_from_a_wider_type() -> None:
    x = Var("x", "float32")
    value = np.float32(0.7)
    for name, reference in (("exp", math.exp), ("erf", math.erf), ("asin", math.asin)):
        assert evaluate(call(name, x), {x: value}) == np.float32(reference(float(value)))


def test_vectors_have_an_axis_of_lanes() -> None:
    i = Var("i")
    ramp = Ramp(i, const(2), 4)
    assert evaluate(ramp + 1, {i: 10}).tolist() == [11, 13, 15, 17]
    both = evaluate(ramp + broadcast(i, 4), {i: np.array([0, 1])})
    assert both.tolist() == [[0, 2, 4, 6], [2, 4, 6, 8]]
    chosen = evaluate(select(i > 0, ramp, broadcast(const(0), 4)), {i: np.array([0, 1])})
    assert chosen.tolist() == [[0, 0, 0, 0], [1, 3, 5, 7]]


def test_loads_and_lazy_selects() -> None:
    buffer, i = Buffer("A", "float32", (4, 4)), Var("i")
    data = np.arange(16, dtype=np.float32).reshape(4, 4)
    padded = select(i < 4, buffer[i, i], 0.0)

    def loads(_buffer: Buffer, indices: Any, mask: Any) -> Any:
        assert mask is None
        return data[indices]

    assert evaluate(padded, {i: 3}, loads) == 15
    assert evaluate(padded, {i: 4}, loads) == 0
    row = evaluate(buffer[i, Ramp(const(0), const(1), 4)], {i: np.array([1, 2])}, loads)
    assert row.tolist() == data[1:3].tolist()


def test_what_is_missing_is_named() -> None:
    x = Var("x", "float32")
    with pytest.raises(UserError, match="`x` has no value"):
        evaluate(x + 1.0, {})
    with pytest.raises(UserError, match="cannot evaluate a load of A"):
        evaluate(Buffer("A", "float32", (4,))[0], {})


def test_deep_expressions_do_not_recurse() -> None:
    x = Var("x", "float32")
    total = x
    for _ in range(20_000):
        total = total + 1.0
    assert evaluate(total, {x: 0.0}) == 20_000


@pytest.mark.parametrize("value", [np.finfo(np.float64).max, 2.0, 5e-324, 1 - 2.0**-53])
def test_roots_are_rounded_once(value: float) -> None:
    x = Var("x", "float64")
    assert evaluate(call("sqrt", x), {x: np.array([value])}).tolist() == [math.sqrt(value)]
