"""Elementwise operators against NumPy: odd sizes, empty tensors, broadcasting, element types."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.graph.harness import check
from tilewright.graph.ops.elementwise.binary import BINARY
from tilewright.graph.ops.elementwise.logic import LOGIC
from tilewright.graph.ops.elementwise.unary import UNARY

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 7.25, np.inf, -np.inf, np.nan]
#: One formula of each form is also built for symbolic shapes, which all share one way to index.
SYMBOLIC = ("relu", "add", "less")
#: How far those are off that need not be exact.
COARSE = {"coarse_sigmoid": 2.0**-12}


def numbers(dtype: Any, *shape: int, seed: int = 3) -> Any:
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return rng.integers(max(info.min, -9), 9, shape).astype(dtype)
    return (rng.standard_normal(shape) * 2).astype(dtype)


def fitting(kind: str) -> list[str]:
    return {
        "float": ["float32"],
        "integer": ["int32"],
        "number": ["float32", "int64"],
        "bool": ["bool"],
        "any": ["float32", "bool"],
    }[kind]


@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary(name: str) -> None:
    rtol = COARSE.get(name, 1e-5)
    for dtype in fitting(UNARY[name].kind):
        check(name, [numbers(dtype, 3, 7)], symbolic=name in SYMBOLIC, rtol=rtol)
    if UNARY[name].kind in ("float", "number"):
        check(name, [np.array(SPECIAL, "float32")], symbolic=False, rtol=rtol)


@pytest.mark.parametrize("name", ["exp", "relu", "sign", "abs"])
@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float64"])
def test_unary_in_other_floats(name: str, dtype: Any) -> None:
    check(name, [numbers(dtype, 5)], symbolic=False)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint64"])
def test_abs_neg_sign_of_integers(dtype: str) -> None:
    least = np.iinfo(dtype).min
    x = np.array([0, 1, 5, 100, least, least + 1], dtype)
    for name in ("abs", "neg", "sign", "relu"):
        check(name, [x], symbolic=False)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_halves_are_rounded_away_from_zero(dtype: str) -> None:
    kind = np.dtype(dtype).type
    whole = np.array([0, 1, 2, 3, 100, 1023, 2**22 - 1, 2**23 - 1, 2**23 + 1], np.float64)
    halves = np.concatenate([whole + 0.5, whole, [0.3, 0.7, 65504, np.inf, np.nan]])
    halves = halves[~(halves > np.finfo(dtype).max) | np.isinf(halves)].astype(dtype)
    with np.errstate(over="ignore"):
        near = [halves, np.nextafter(halves, kind(0)), np.nextafter(halves, kind(np.inf))]
    x = np.concatenate([*near, *(-v for v in near)])
    exact = x.astype(np.float64)
    wanted = np.sign(exact) * np.floor(np.abs(exact) + 0.5)
    inside = np.abs(exact) < 2**40
    just_below = np.abs(exact) == np.nextafter(0.5, 0)
    wanted = np.where(inside & ~just_below, wanted, np.where(just_below, 0, exact))
    (found,) = check("round_away", [x])
    np.testing.assert_array_equal(found, wanted.astype(dtype))


def test_unary_of_nothing_and_of_a_scalar() -> None:
    check("exp", [np.zeros((0, 3), "float32")])
    check("exp", [np.array(0.5, "float32")])


@pytest.mark.parametrize("name", sorted([*BINARY, *LOGIC]))
def test_binary(name: str) -> None:
    row = {**BINARY, **LOGIC}[name]
    for dtype in fitting(row.kind):
        a, b = numbers(dtype, 3, 5), numbers(dtype, 3, 5, seed=4)
        check(name, [a, b], symbolic=False)
        check(name, [a[:, :1], b[:1]], symbolic=name in SYMBOLIC)


def test_binary_broadcasts_to_nothing() -> None:
    check("add", [np.zeros((0, 3), "float32"), np.ones((1, 3), "float32")])
    check("add", [np.zeros((2, 1, 3), "float32"), np.ones((4, 1), "float32")])


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8"])
def test_integer_division_rounds_to_zero_and_survives_zero(dtype: str) -> None:
    info = np.iinfo(dtype)
    a = np.array([7, 5, info.max, info.min, info.min, 0, 3], dtype)
    b = np.array([2, 3, 4, 3, 1, 5, 0], dtype)
    check("div", [a, b], symbolic=False)
    if info.min < 0:
        expected = np.array([-3, -1, 3, -3], dtype)
        a, b = np.array([-7, 2, -7, 7], dtype), np.array([2, -2, -2, -2], dtype)
        check("div", [a, b], expected=expected, symbolic=False)


@pytest.mark.parametrize("fmod", [False, True])
@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8", "float32", "float64", "float16"])
def test_mod(dtype: str, fmod: bool) -> None:
    signs = 1 if dtype == "uint8" else -1
    a = (np.array([7, 7, 5, 4, 9, 0, 100]) * np.array([1, signs, 1, signs, 1, 1, 1])).astype(dtype)
    b = (np.array([3, 3, 3, 3, 2, 4, 7]) * np.array([1, 1, signs, signs, 1, 1, 1])).astype(dtype)
    check("mod", [a, b], fmod=fmod, symbolic=False)
    if np.dtype(dtype).kind == "f":
        special = np.array([5.3, -5.3, np.inf, 5.3, np.nan, 1e4, -0.0, 2.0], dtype)
        divisor = np.array([np.inf, np.inf, 2, 0, 2, 0.37, 3, -2.0], dtype)
        check("mod", [special, divisor], fmod=fmod, rtol=1e-6, symbolic=False)


def test_pow_of_mixed_types() -> None:
    for a, b in (
        (np.array([1.5, 2, -2, 0, 9], "f4"), np.array([2, 3, 3, 0, 0.5], "f4")),
        (np.array([1.5, -2.0], "f4"), np.array([2, 3], "i8")),
        (np.array([2, 3, 4], "i4"), np.array([1.5, 2.0, 0.5], "f4")),
    ):
        check("pow", [a, b], symbolic=False)
    base = np.array([2, 3, -2, 0, 1, -1, -1, 5, 2, -1], "i8")
    power = np.array([10, 5, 3, 0, 200, 7, 8, -1, -3, -3], "i8")
    check("pow", [base, power], symbolic=False)


@pytest.mark.parametrize("source", ["float32", "int32", "bool", "uint8", "float16", "float64"])
@pytest.mark.parametrize("to", ["float32", "int8", "bool", "uint8", "int64", "bfloat16"])
def test_cast(source: str, to: str) -> None:
    x = np.array([0, 1, 2, 100, 1, 0], source)
    check("cast", [x], dtype=to, symbolic=False)
    if np.dtype(source).kind == "f":
        check("cast", [np.array([-1.7, 300, np.nan, np.inf], source)], dtype=to, symbolic=False)


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("to", ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz"])
def test_cast_to_small_floats(to: str, saturate: bool) -> None:
    x = np.array([0.1, 1, 449, 1e6, -1e6, np.inf, np.nan], "float32")
    results = check("cast", [x], dtype=to, saturate=saturate, symbolic=False)
    assert np.isnan(results[0].astype("f4")[-1])
    if saturate:
        assert np.isfinite(results[0].astype("f4")[:-1]).all()


def test_where() -> None:
    c = numbers("bool", 3, 1)
    check("where", [c, numbers("float32", 3, 4), numbers("float32", 4, seed=9)])
    check("where", [c, numbers("int64", 3, 4), np.int64(3)], symbolic=False)


@pytest.mark.parametrize("signs", [(True, True), (True, False), (False, True), (False, False)])
def test_isinf(signs: tuple[bool, bool]) -> None:
    x = np.array(SPECIAL, "float32")
    check("isinf", [x], positive=signs[0], negative=signs[1], symbolic=False)


def test_classification() -> None:
    check("isnan", [np.array(SPECIAL, "float32")], symbolic=False)
    check("isfinite", [np.array(SPECIAL, "float32")], symbolic=False)
