"""Every operation on every type, compiled: the same bits as `ir.evaluate`, on special values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.ir import (
    DType,
    Expr,
    Var,
    any_of,
    binary,
    call,
    cast,
    const,
    reinterpret,
    select,
    unary,
)

INTEGERS = [f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
COMPUTED = ["bool", *INTEGERS, *FLOATS]
SMALL_FLOATS = [
    *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
    *("float8_e8m0fnu", "float4_e2m1fn"),
]
SMALL_INTEGERS = ["int4", "uint4", "int2", "uint2"]
STORED = [*SMALL_FLOATS, *SMALL_INTEGERS]
#: Eight, four, two lanes and one: see `lower.vectorize`.
LANES = 15
#: All sizes divide by all lanes.
STEP = 120


def specials(name: str) -> np.ndarray[Any, Any]:
    """Values of a type at which operations tend to be wrong."""
    dtype = DType.of(name)
    if dtype.bits <= 8 and not dtype.is_bool:
        codes = np.arange(1 << dtype.bits, dtype=np.uint8)
        return codes[:: 5 if dtype.bits == 8 else 1].view(dtype.numpy)
    if dtype.is_bool:
        return np.array([False, True])
    if dtype.is_integer:
        return _integers(dtype)
    return _floats(dtype)


def _integers(dtype: DType) -> np.ndarray[Any, Any]:
    low, high = int(dtype.min_value), int(dtype.max_value)
    near = [0, 1, 2, 3, 7, dtype.bits - 1, dtype.bits, dtype.bits + 1, 100, -1, -2, -7, -100]
    wide = [low, low + 1, high, high - 1, high // 2, high // 3, -(1 << 15), (1 << 53) + 1]
    # The sum of a tie of bfloat16 and one, which float64 does not hold.
    ties = [(1 << 60) + (1 << 52) + 1, -(1 << 60) - (1 << 52) - 1, (1 << 24) + 1, 65519, 65520]
    values = dict.fromkeys(v for v in (*near, *wide, *ties) if low <= v <= high)
    return np.array(list(values), dtype.numpy)


def _floats(dtype: DType) -> np.ndarray[Any, Any]:
    info = ml_dtypes.finfo(dtype.numpy)
    tiny, least = float(info.smallest_normal), float(info.smallest_subnormal)
    plain = [0.0, 0.5, 1.0, 1.5, 2.5, 3.0, 7.75, 100.3, 1e-3, 127.5, 255.9, 65504.0, 65520.0]
    edges = [float(info.max), float(info.eps), tiny, least, tiny / 2, 2.0**31, 2.0**63, 1e30]
    ties = [1.0 + 2.0**-8, 1.0 + 2.0**-8 + 2.0**-40, 1.0 + 2.0**-11, 448.0, 464.0, 5.0, 6.5]
    both = [s * v for v in (*plain, *edges, *ties, float("inf")) for s in (1.0, -1.0)]
    with np.errstate(all="ignore"):
        return np.array([*both, float("nan")]).astype(dtype.numpy)


def padded(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.resize(values, -(-len(values) // STEP) * STEP)


def pairs(name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    values = specials(name)
    a, b = np.meshgrid(np.arange(len(values)), np.arange(len(values)))
    return padded(values[a.ravel()]), padded(values[b.ravel()])


# ---- one operation at a time ---------------------------------------------------------------------


def unaries(x: Var) -> list[Expr]:
    if x.dtype.is_bool:
        return [unary("not", x)]
    ops = ["neg", "bitnot"] if x.dtype.is_integer else ["neg"]
    return [unary(op, x) for op in ops]


def binaries(x: Var, y: Var) -> list[Expr]:
    ops = "eq ne lt le gt ge".split()
    if x.dtype.is_bool:
        ops += "and or min max".split()
    elif x.dtype.is_float:
        ops += "add sub mul div".split()
    else:
        ops += "add sub mul min max floordiv floormod truncdiv truncmod".split()
        ops += "bitand bitor bitxor shl shr".split()
    return [binary(op, x, y) for op in ops]


def by_constants(x: Var) -> list[Expr]:
    """Constants take other paths: powers of two, magic numbers, shifts that need no check."""
    bits = x.dtype.bits
    divisors = [0, 1, 2, 3, 7, 1 << (bits - 2)] + ([-1, -3, -4] if x.dtype.is_signed else [])
    divisions = ("floordiv", "floormod", "truncdiv", "truncmod")
    divided = [binary(op, x, d) for op in divisions for d in divisors]
    return divided + [binary(op, x, s) for op in ("shl", "shr") for s in (0, 1, bits - 1, bits)]


def selections(x: Var, y: Var) -> list[Expr]:
    chosen = [select(x < y, x, y)] if not x.dtype.is_storage_only else []
    return [*chosen, select(const(True), x, y), select(cast(x, "bool"), y, x)]


def fixed_point(x: Var, y: Var) -> list[Expr]:
    """On numbers for which they are defined."""
    bits = x.dtype.bits
    if not x.dtype.is_signed or bits == 64:
        return []
    positive = binary("max", y, 0)
    return [call("mulhi_doubled", x, positive), call("shift_nearest", x, positive & (bits - 1))]


def intrinsics(x: Var, y: Var) -> list[Expr]:
    if x.dtype.is_bool:
        return []
    if x.dtype.is_integer:
        one = [call(name, x) for name in ("abs", "popcount", "clz", "ctz")]
        two = [call("mulhi", x, y), *fixed_point(x, y)]
        return [*one, *two]
    names = "sqrt floor ceil round trunc abs isnan isinf isfinite signbit".split()
    return [*(call(name, x) for name in names), call("copysign", x, y)]


@pytest.mark.parametrize("name", COMPUTED)
def test_operations(name: str, compare: Any) -> None:
    x, y = Var("x", name), Var("y", name)
    exprs = [*unaries(x), *binaries(x, y), *selections(x, y), *intrinsics(x, y)]
    a, b = pairs(name)
    compare(exprs, {x: a, y: b}, LANES)


@pytest.mark.parametrize("name", INTEGERS)
def test_operations_with_constants(name: str, compare: Any) -> None:
    x, values = Var("x", name), specials(name)
    if name == "int64":
        # Negating an index is taken not to overflow.
        values = values[values != np.iinfo(np.int64).min]
    compare(by_constants(x), {x: padded(values)}, LANES)


@pytest.mark.parametrize("name", FLOATS)
def test_least_and_greatest_float(name: str, compare: Any) -> None:
    """Of two zeros either may win."""
    x, y = Var("x", name), Var("y", name)
    a, b = pairs(name)
    exprs = [binary(op, p, q) for op in ("min", "max") for p, q in ((x, y), (x, 1.5), (0.0, x))]
    compare([*exprs, binary("min", x, float("nan"))], {x: a, y: b}, 8, signed_zeros=False)


@pytest.mark.parametrize("name", FLOATS)
def test_fused_multiply_add(name: str, compare: Any) -> None:
    x, y, z = (Var(v, name) for v in "xyz")
    a, b = pairs(name)
    c = np.random.default_rng(1).permutation(a)
    compare([call("fma", x, y, z)], {x: a, y: b, z: c}, LANES)


@pytest.mark.parametrize("name", [*COMPUTED, *STORED])
def test_conversions(name: str, compare: Any) -> None:
    x = Var("x", name)
    targets = [t for t in (*COMPUTED, *STORED) if t != name]
    compare([cast(x, t) for t in targets], {x: padded(specials(name))}, LANES)


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_conversions_of_what_is_held_within_bounds(name: str, compare: Any) -> None:
    x = Var("x", name)
    bounds = [(0.0, 255.0), (-128.0, 127.0), (-4e9, 300.0), (-1.0, 1e30), (7.0, 3.0)]
    held = [
        e
        for low, high in bounds
        for e in (
            binary("min", binary("max", x, low), high),
            binary("max", binary("min", x, high), low),
        )
    ]
    types = ("int8", "uint8", "int16", "int32", "uint32", "int64")
    values = padded(np.concatenate([specials(name), np.arange(-300, 300, 7.25).astype(name)]))
    compare([cast(e, t) for e in held for t in types], {x: values}, LANES)


@pytest.mark.parametrize("name", STORED)
def test_stored_types_are_moved(name: str, compare: Any) -> None:
    x, y = Var("x", name), Var("y", name)
    a, b = pairs(name)
    values = [x, const(1, name), *selections(x, y), select(cast(x, "bool"), x, const(0, name))]
    compare(values if "e8m0" not in name else [x, select(const(True), x, y)], {x: a, y: b}, 3)


@pytest.mark.parametrize(
    ("source", "target"),
    [("float16", "uint16"), ("bfloat16", "int16"), ("float32", "uint32"), ("float64", "int64")],
)
def test_reinterpretation(source: str, target: str, compare: Any) -> None:
    x, y = Var("x", source), Var("y", target)
    a = padded(specials(source))
    bits = reinterpret(x, target)
    there_and_back = reinterpret(bits + 1, source)
    compare([bits, there_and_back, reinterpret(y, source)], {x: a, y: a.view(target)}, LANES)


@pytest.mark.parametrize("name", [*SMALL_FLOATS, "float16", "bfloat16"])
def test_all_codes_convert(name: str, compare: Any) -> None:
    dtype = DType.of(name)
    codes = np.arange(1 << dtype.bits, dtype=f"u{dtype.itemsize}")
    x = Var("x", name)
    compare([cast(x, t) for t in ("float32", "float64", "int32")], {x: codes.view(dtype.numpy)}, 8)


@pytest.mark.parametrize("source", ["float32", "float64"])
def test_rounding_of_random_numbers(source: str, compare: Any) -> None:
    """Sums of a few powers of two, since ties are where rounding goes wrong."""
    rng = np.random.default_rng(0)
    powers = np.ldexp(rng.choice([-1.0, 1.0], (6, 1200)), rng.integers(-30, 20, (6, 1200)))
    scale = np.ldexp(1.0, rng.integers(-120, 100, 1200) * rng.integers(0, 2, 1200))
    values = (powers.cumsum(axis=0) * scale).astype(source).ravel()
    x = Var("x", source)
    compare([cast(x, t) for t in (*SMALL_FLOATS, "float16", "bfloat16")], {x: values}, 8)


# ---- random expressions --------------------------------------------------------------------------

REAL = ["add", "sub", "mul", "div"]
WHOLE = "add sub mul min max floordiv floormod truncdiv bitand bitxor shl shr".split()


@st.composite
def expressions(draw: st.DrawFn, types: Sequence[str]) -> tuple[list[Var], Expr]:
    variables = [Var(f"v{k}", draw(st.sampled_from(types))) for k in range(3)]
    made: list[Expr] = [*variables, const(1, types[0])]
    for _ in range(draw(st.integers(2, 9))):
        made.append(draw(one_more(made, types)))
    return variables, made[-1]


@st.composite
def one_more(draw: st.DrawFn, made: list[Expr], types: Sequence[str]) -> Expr:
    """A new expression over those made."""
    a = draw(st.sampled_from(made))
    b = cast(draw(st.sampled_from(made)), a.dtype)
    kind = draw(st.sampled_from(["cast", "binary", "binary", "choice", "unary"]))
    if kind == "cast":
        return cast(a, draw(st.sampled_from(types)))
    if kind == "unary":
        return draw(st.sampled_from([-a, call("abs", a)]))
    if kind == "binary":
        return binary(draw(st.sampled_from(REAL if a.dtype.is_float else WHOLE)), a, b)
    c, d = draw(st.sampled_from(made)), draw(st.sampled_from(made))
    return select(any_of(c < cast(d, c.dtype), a.astype("bool")), a, b)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize(
    "types",
    [
        [t for t in INTEGERS if t != "int64"],
        ["float32", "int32", "float64", "uint8"],
        ["float16", "bfloat16", "int16"],
    ],
)
def test_random_expressions(types: list[str], lanes: int, compare: Any) -> None:
    @settings(
        max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
    )
    @given(st.lists(expressions(types), min_size=6, max_size=6), st.integers(0, 99))
    def check(cases: list[tuple[list[Var], Expr]], seed: int) -> None:
        rng = np.random.default_rng(seed)
        variables = [v for inputs, _ in cases for v in inputs]
        env = {v: rng.choice(specials(v.dtype.name), STEP) for v in variables}
        compare([e for _, e in cases], env, lanes)

    check()
