"""What simplification makes of expressions, case by case."""

from __future__ import annotations

import pytest

from tilewright.arith import Ranges, simplify
from tilewright.ir import (
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    DType,
    Expr,
    Load,
    Ramp,
    Unary,
    Var,
    all_of,
    any_of,
    binary,
    broadcast,
    call,
    const,
    maximum,
    minimum,
    select,
)

i, j, k, n, m, x, y = (Var(name) for name in "i j k n m x y".split())
f, g = Var("f", "float32"), Var("g", "float32")
p, q = Var("p", "bool"), Var("q", "bool")
b8, u8, s32 = Var("b8", "int8"), Var("u8", "uint8"), Var("s32", "int32")
A = Buffer("A", "float32", (n,))

#: i runs to n, j over 16, k over 4; n and m are dimensions, m at least 1; x and y are unknown.
KNOWN = (
    Ranges()
    .with_bounds(n, 0, None)
    .with_bounds(m, 1, None)
    .with_extent(i, n)
    .with_extent(j, 16)
    .with_extent(k, 4)
)
TRUE, FALSE = const(True), const(False)


def _trunc(op: str, a: Expr, b: int) -> Expr:
    return binary(op, a, b)


def _ramp(base: Expr, stride: int, lanes: int = 8) -> Expr:
    return Ramp(base, const(stride, base.dtype), lanes)


SUMS = [
    (x + x, x * 2),
    (x - x, const(0)),
    (x + 1 - (x - 2), const(3)),
    ((x + 1) * (y + 2) - x * y, x * 2 + y + 2),
    (y + x, x + y),
    (y * x, x * y),
    (-(x - y), y - x),
    (x * 4 + y + x * 12, x * 16 + y),
    ((x * 2 + 1) * 3, x * 6 + 3),
    (const(5) - x, const(5) - x),
    ((i // 4) * 4 + i % 4, i),
    ((x // 4) * 8 + (x % 4) * 2, x * 2),
    ((x // m) * m + x % m, x),
    ((x // 4 % 8) * 4 + x % 4, x % 32),
    ((x // 32) * 8 + x // 4 % 8, x // 4),
    # The same with sizes, but for those that may be 0.
    (x // y * y + x % y, y * (x // y) + x % y),
    ((x // m) * m * y + x % m * y, x * y),
    ((x // m % 3) * m + x % m, x % (m * 3)),
    ((x // 3 % m) * 3 + x % 3, x % (m * 3)),
    ((x // (m * 3)) * m * 3 + (x // 3 % m) * 3 + x % 3, x),
    # What x % 2 leaves out of x * 4 is still in the quotient.
    (((x * 4 + k) // 2 % m) * 2 + (x * 4 + k) % 2, (x * 4 + k) % (m * 2)),
    (minimum(n, i * 4 + 4) - i * 4, minimum(n - i * 4, 4)),
    (minimum(n - i * 4, 4) + i * 4, minimum(n, i * 4 + 4)),
    (maximum(x + 1, y) - x, maximum(y - x, 1)),
]
DIVISIONS = [
    ((i * 16 + j) // 16, i),
    ((i * 16 + j) % 16, j),
    ((i * 4 + j) // 2, i * 2 + j // 2),
    ((i * 4 + j) % 2, j % 2),
    ((x * 4 + k) // 8, x // 2),
    ((x * 4 + k) % 8, x % 2 * 4 + k),
    ((x * 6 + y * 4) // 8, (x * 3 + y * 2) // 4),
    ((x + 7) // 4, (x + 3) // 4 + 1),
    ((x + 7) % 4, (x + 3) % 4),
    (x // 4 // 8, x // 32),
    ((x // 4 + 3) // 5, (x + 12) // 20),
    (x % 16 // 4, x // 4 % 4),
    (x % 16 % 4, x % 4),
    ((x % 16 + y) % 4, (x + y) % 4),
    (j // 16, const(0)),
    (j % 16, j),
    ((j + 16) // 16, const(1)),
    ((j - 16) % 16, j),
    (x // 1, x),
    (x % 1, const(0)),
    (x // 0, const(0)),
    (x % 0, const(0)),
    (x % x, const(0)),
    (const(0) // x, const(0)),
    ((x * m) // m, x),
    ((x * m) % m, const(0)),
    ((x * n) // n, x),
    ((x * y) // y, (x * y) // y),
    ((x * m + y) // m, x + y // m),
    ((i * (n + 1) + n) // (n + 1), i),
    ((n * m + m - 1) // m, n),
    ((x * n + i) // n, x),
    ((x * n + i) % n, i),
    ((x * n * 4 + i * 4 + k) // (n * 4), x),
    ((x * 8 + k) // (m * 16), x // (m * 2)),
    ((x * 8 + k) % (m * 16), x % (m * 2) * 8 + k),
    ((x * 8 + j) // (m * 8), (x * 8 + j) // (m * 8)),
    ((x * 8 + k) // (m * 8 + 3), (x * 8 + k) // (m * 8 + 3)),
    (n // -4, -n // 4),
    # The least number has no opposite.
    (x // -4, x // -4),
    (x % -4, x % -4),
    (_trunc("truncdiv", j, 4), j // 4),
    (_trunc("truncmod", j, 4), j % 4),
    (_trunc("truncdiv", x, 4), _trunc("truncdiv", x, 4)),
]
COMPARISONS = [
    (i < n, TRUE),
    (i >= 0, TRUE),
    (i * 4 + k < n * 4, TRUE),
    (i * 4 + k >= n * 4, FALSE),
    (j < 16, TRUE),
    (j > 15, FALSE),
    (j.__eq__(16), FALSE),
    (j.__ne__(-1), TRUE),
    (x + 1 <= y, x < y),
    (x - 1 < y, x <= y),
    (y > x, x < y),
    (x * 4 < 13, x < 4),
    (x * 4 + 2 < y * 4, x < y),
    (x * 4 + k < y * 4, x < y),
    (x * 16 + y * 4 + k < m * 4, x * 4 + y < m),
    (x * 4 + k < y * 4 + 4, x <= y),
    (x * 2 + k < y * 2, x * 2 + k < y * 2),
    (x > 2, x >= 3),
    (const(2) < x, x >= 3),
    (x + 3 < y, x + 3 < y),
    (x < y + 3, x < y + 3),
    (binary("eq", x + 1, y + 3), binary("eq", x, y + 2)),
    (binary("eq", x * 4, const(6)), FALSE),
    (binary("eq", x * 2, y * 2), binary("eq", x, y)),
    (binary("lt", x, x), FALSE),
]
LOGIC = [
    (p & True, p),
    (p & False, FALSE),
    (p | True, TRUE),
    (p | False, p),
    (p & p, p),
    (p & q & p, p & q),
    (p & ~p, FALSE),
    (p | ~p, TRUE),
    (~~p, p),
    (~(x < y), y <= x),
    (~(p & q), ~p | ~q),
    (~(f < g), ~(f < g)),
    (~binary("eq", f, g), binary("ne", f, g)),
    (binary("eq", p, TRUE), p),
    (binary("ne", p, TRUE), ~p),
    (all_of(i < n, j < 3, i >= 0), j < 3),
    (all_of(x < 4, x < 8), x < 4),
    (all_of(x < 8, x < 4), x < 4),
    (all_of(x < 4, x >= 4), FALSE),
    (any_of(x < 4, x >= 2), TRUE),
    (any_of(x < 4, x < 8), x < 8),
    (select(TRUE, x, y), x),
    (select(p, x, x), x),
    (select(~p, x, y), select(p, y, x)),
    (select(p, TRUE, FALSE), p),
    (select(p, FALSE, TRUE), ~p),
    (select(p, select(p, x, y), j), select(p, x, j)),
    (minimum(p, q), p & q),
]
EXTREMA = [
    (minimum(x, x), x),
    (minimum(j, 20), j),
    (maximum(j, 20), const(20)),
    (minimum(j, 15), j),
    (minimum(i, n), i),
    (maximum(i, n), n),
    (minimum(x, x + 1), x),
    (minimum(x + 3, y + 3), minimum(x, y) + 3),
    (minimum(x * 4, y * 4), minimum(x, y) * 4),
    (minimum(minimum(y, x), y), minimum(x, y)),
    (minimum(minimum(x, 7), 5), minimum(x, 5)),
    (maximum(0, minimum(j, 3)), minimum(j, 3)),
    (minimum(x, maximum(x, y)), x),
    (maximum(u8, 0), u8),
]
FLOATS = [
    (f * 1.0, f),
    (f + -0.0, f),
    (f - 0.0, f),
    (f / 1.0, f),
    (f * -1.0, -f),
    (Unary("neg", -f), f),
    (f - (-g), f + g),
    (f + 0.0, f + 0.0),
    (f * 0.0, f * 0.0),
    (f - f, f - f),
    (f / f, f / f),
    (binary("eq", f, f), binary("eq", f, f)),
    (f < f, FALSE),
    (minimum(f, f), f),
    (const(1.0) + const(2.0), const(3.0)),
    (const(1.0) / const(0.0), const(float("inf"))),
    (const(16777216.0) + const(1.0), const(16777216.0)),
    (call("sqrt", const(4.0)), const(2.0)),
    (call("exp", const(1.0)), call("exp", const(1.0))),
]
NARROW = [
    (const(127, "int8") + const(1, "int8"), const(-128, "int8")),
    (const(255, "uint8") + const(1, "uint8"), const(0, "uint8")),
    (const(-7, "int8") // const(2, "int8"), const(-4, "int8")),
    (_trunc("truncdiv", const(-7, "int8"), 2), const(-3, "int8")),
    (const(7, "int8") // const(0, "int8"), const(0, "int8")),
    (b8 + b8 - b8, b8),
    ((b8 * 2) // 2, (b8 * 2) // 2),
    ((u8 + 1) > u8, (u8 + 1) > u8),
    (binary("eq", u8 + 1, u8), FALSE),
    (u8 + 255, u8 - 1),
    (u8 >= 0, TRUE),
    (u8 // 16 < 16, TRUE),
]
CASTS = [
    (Cast(DType.of("int8"), b8), b8),
    (Cast(DType.of("int8"), Cast(DType.of("int32"), b8)), b8),
    (Cast(DType.of("int64"), Cast(DType.of("int32"), b8)), Cast(DType.of("int64"), b8)),
    (Cast(DType.of("uint8"), Cast(DType.of("int8"), s32)), Cast(DType.of("uint8"), s32)),
    (Cast(DType.of("int64"), Cast(DType.of("int32"), j)), j),
    (Cast(DType.of("float32"), Cast(DType.of("float64"), f)), f),
    (Cast(DType.of("int32"), const(3.7)), const(3, "int32")),
    (Cast(DType.of("uint8"), const(-1)), const(255, "uint8")),
    (Cast(DType.of("int8"), const(1000.0)), const(127, "int8")),
]
VECTORS = [
    (_ramp(x, 1) + broadcast(y, 8), _ramp(x + y, 1)),
    (_ramp(x, 1) * broadcast(const(4), 8), _ramp(x * 4, 4)),
    (_ramp(x, 1) * broadcast(y, 8), Ramp(x * y, y, 8)),
    (_ramp(x, 1) - _ramp(y, 1), Broadcast(x - y, 8)),
    (Broadcast(x, 8) + Broadcast(y, 8), Broadcast(x + y, 8)),
    (Broadcast(f, 8) * Broadcast(g, 8), Broadcast(f * g, 8)),
    (_ramp(x, 0), Broadcast(x, 8)),
    (_ramp(x * 8, 1) // 8, Broadcast(x, 8)),
    (_ramp(x * 8, 1) % 8, _ramp(const(0), 1)),
    (_ramp(x * 16 + k, 1) // 16, Broadcast(x, 8)),
    (_ramp(x, 8) // 8, _ramp(x // 8, 1)),
    (_ramp(x, 8) % 8, Broadcast(x % 8, 8)),
    (_ramp(x, 1) // 8, _ramp(x, 1) // 8),
    (_ramp(j, 1) < 23, Broadcast(TRUE, 8)),
    (_ramp(j, 1) < 22, _ramp(j, 1) < 22),
    (_ramp(i * 8, 1) < Broadcast(n * 8, 8), Broadcast(TRUE, 8)),
    (_ramp(i * 8, 1) >= Broadcast(n * 8, 8), Broadcast(FALSE, 8)),
    (select(Broadcast(p, 8), _ramp(x, 1), _ramp(y, 1)), select(p, _ramp(x, 1), _ramp(y, 1))),
    (Load(A, (Broadcast(x, 8),)), Broadcast(Load(A, (x,)), 8)),
    (Load(A, (_ramp(x + x, 1),)), Load(A, (_ramp(x * 2, 1),))),
    (call("exp", Broadcast(f, 8)), Broadcast(call("exp", f), 8)),
]
BITS = [
    (s32 & 0, const(0, "int32")),
    (s32 & -1, s32),
    (s32 | 0, s32),
    (s32 ^ s32, const(0, "int32")),
    (s32 << 0, s32),
    (~~s32, s32),
    (const(5, "int32") & const(3, "int32"), const(1, "int32")),
    (const(-8, "int32") >> const(1, "int32"), const(-4, "int32")),
]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        *SUMS,
        *DIVISIONS,
        *COMPARISONS,
        *LOGIC,
        *EXTREMA,
        *FLOATS,
        *NARROW,
        *CASTS,
        *VECTORS,
        *BITS,
    ],
    ids=str,
)
def test_case(before: Expr, after: Expr) -> None:
    result = simplify(before, KNOWN)
    assert result is after, f"{before} became {result}, not {after}"
    assert simplify(after, KNOWN) is after


def test_a_variable_with_one_value_is_that_value() -> None:
    assert simplify(x * 3, Ranges().with_extent(x, 1)) is const(0)
    assert simplify(x + y, Ranges().with_bounds(x, 5, 5)) is simplify(y + 5)


def test_assumptions_decide_and_divide() -> None:
    known = Ranges().assuming((x < y) & p & binary("eq", n % 4, 0))
    assert simplify(x + 1 <= y, known) is TRUE
    assert simplify(y <= x, known) is FALSE
    assert simplify(p & q, known) is q
    assert simplify(q, known.assuming(~q)) is FALSE
    assert simplify(n % 4, known) is const(0)
    assert simplify((n // 4) * 4 + 1, known) is n + 1
    assert simplify((n * 3 + 2) % 4, known) is const(2)


@pytest.mark.parametrize("op", ["floordiv", "floormod"])
def test_the_least_number_has_no_opposite_to_divide_by(op: str) -> None:
    whole = Binary(op, Var("x"), Const(-(2**63), DType.of("int64")))
    assert simplify(whole) is whole


def test_signs_of_zero_are_told_apart() -> None:
    assert simplify(minimum(const(0.0), const(-0.0))) is minimum(const(0.0), const(-0.0))
    assert simplify(const(0.0) * const(-1.0)) is const(-0.0)
    assert simplify(Unary("neg", const(0.0))) is const(-0.0)


def test_equal_names_do_not_confuse_sums() -> None:
    first, second = Var("i"), Var("i")
    a, b = first * 2 + second, second + first * 2
    assert simplify(a) is simplify(b)
    assert simplify(first - second) is not const(0)
    assert simplify(first // 3 + second // 3) is simplify(second // 3 + first // 3)


def test_shared_nodes_are_seen_once() -> None:
    total: Expr = x
    for _ in range(60):
        total = total + total
    assert simplify(total) is simplify(x * 2**60)
    deep: Expr = f
    for _ in range(60):
        deep = Binary("mul", deep, deep)
    assert simplify(deep) is deep


def test_depth_is_no_limit() -> None:
    total, quotient, chain, product = x, x, f, y
    for step in range(3000):
        total = total + Var(f"v{step}") if step % 2 else total - 1
        quotient = (quotient + y) // 3
        chain = chain * g + f
        product = product * y if step < 60 else product
    for deep in (total, quotient, chain, product):
        result = simplify(deep)
        assert simplify(result) is result


def test_an_address_stays_an_address() -> None:
    address = call("address_of", Load(A, (x + x,)))
    result = simplify(address)
    assert isinstance(result, Call)
    assert result.args[0] is Load(A, (x * 2,))
    lanes = call("address_of", Load(A, (Broadcast(x, 8),)))
    assert simplify(lanes) is lanes


def test_a_true_mask_is_none() -> None:
    masked = Load(A, (_ramp(x, 1),), _ramp(j, 1) < 30)
    assert simplify(masked, KNOWN) is Load(A, (_ramp(x, 1),))


def test_constants_keep_their_type() -> None:
    for name in ("int8", "uint16", "int32", "uint64", "float16", "bfloat16", "float64"):
        value = const(3, name) * const(2, name)
        result = simplify(value)
        assert isinstance(result, Const)
        assert result.dtype is DType.of(name)
        assert result.value == 6
