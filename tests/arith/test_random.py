"""Simplification keeps every value and is idempotent; bounds and proofs hold at every point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.arith import Ranges, bounds, prove, simplify
from tilewright.ir import (
    Binary,
    Broadcast,
    Cast,
    DType,
    Expr,
    Ramp,
    Select,
    Unary,
    Var,
    broadcast,
    const,
    evaluate,
    free_vars,
)

#: Small numbers are the ones at which rules can go wrong; the extremes are where types wrap.
_SMALL = st.integers(-9, 9)
_INTEGER_OPS = "add sub mul floordiv floormod truncdiv truncmod min max".split()
_COMPARISONS = "eq ne lt le gt ge".split()
_FLOAT_OPS = "add sub mul div min max".split()
_FLOATS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    3.0,
    float("inf"),
    float("-inf"),
    float("nan"),
    1e-45,
    65504.0,
]

_SEEDS = st.integers(0, 2**32 - 1)

INDEX = DType.of("int64")
NARROW = [DType.of(n) for n in ("int8", "uint8", "int32", "uint32", "int16")]
FLOATING = [DType.of(n) for n in ("float32", "float64", "float16")]
LANES = 4


class Scope:
    """The variables of one random expression, a few of every type."""

    def __init__(self) -> None:
        types = [INDEX, *NARROW, *FLOATING, DType.of("bool")]
        self.vars = {t: [Var(f"{n}{t.short}", t) for n in "xyz"] for t in types}


def number_of(dtype: DType) -> st.SearchStrategy[Any]:
    if dtype.is_float:
        return st.sampled_from(_FLOATS)
    if dtype.is_bool:
        return st.booleans()
    low, high = int(dtype.min_value), int(dtype.max_value)
    if dtype is INDEX:
        return st.integers(-40, 40)
    near = _SMALL.map(lambda v: max(v, low))
    return st.one_of(near, st.sampled_from([low, high, high - 1]), st.integers(low, high))


@st.composite
def expressions(draw: Any, scope: Scope, dtype: DType, depth: int = 4) -> Expr:
    """A scalar expression of `dtype`."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return _leaf(draw, scope, dtype)

    def below(of: DType = dtype) -> Expr:
        return draw(expressions(scope, of, depth - 1))

    choice = draw(st.integers(0, 9))
    if choice == 0:
        return Select(below(DType.of("bool")), below(), below())
    if dtype.is_bool:
        return _truth(draw, below, choice)
    if choice == 1 and dtype is not INDEX:
        source = draw(st.sampled_from([*NARROW, *FLOATING]))
        middle = draw(st.sampled_from([source, *NARROW, *FLOATING]))
        inner = below(source)
        inner = inner if middle is source else Cast(middle, inner)
        return inner if middle is dtype else Cast(dtype, inner)
    if choice == 2:
        return Unary("neg", below())
    return _arithmetic(draw, scope, below, dtype)


def _arithmetic(draw: Any, scope: Scope, below: Any, dtype: DType) -> Expr:
    op = draw(st.sampled_from(_FLOAT_OPS if dtype.is_float else _INTEGER_OPS))
    if dtype is INDEX and op == "mul":
        # Indices are taken not to overflow, so products stay small.
        variables = st.sampled_from(scope.vars[dtype])
        if draw(st.booleans()):
            return Binary("mul", draw(variables), draw(variables))
        return Binary("mul", below(), const(draw(st.integers(-6, 6)), dtype))
    if dtype is INDEX and op in ("floordiv", "floormod") and draw(st.booleans()):
        by = draw(st.sampled_from(scope.vars[dtype]))
        multiple = Binary("mul", draw(st.sampled_from(scope.vars[dtype])), by)
        return Binary(op, Binary("add", multiple, below()), by)
    if not dtype.is_float and draw(st.booleans()):
        return Binary(op, below(), const(draw(number_of(dtype)), dtype))
    return Binary(op, below(), below())


def _leaf(draw: Any, scope: Scope, dtype: DType) -> Expr:
    if draw(st.integers(0, 2)) == 0:
        return const(draw(number_of(dtype)), dtype)
    return draw(st.sampled_from(scope.vars[dtype]))


def _truth(draw: Any, below: Any, choice: int) -> Expr:
    if choice == 1:
        return Unary("not", below())
    if choice <= 4:
        return Binary(draw(st.sampled_from(["and", "or", "eq", "ne"])), below(), below())
    dtype = draw(st.sampled_from([INDEX, INDEX, *NARROW, *FLOATING]))
    return Binary(draw(st.sampled_from(_COMPARISONS)), below(dtype), below(dtype))


@st.composite
def vectors(draw: Any, scope: Scope, dtype: DType, depth: int = 3) -> Expr:
    """A vector of integers made of ramps and broadcasts."""
    scalar = expressions(scope, dtype, 1)
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        base = draw(scalar)
        if draw(st.booleans()):
            return Broadcast(base, LANES)
        return Ramp(base, const(draw(st.integers(0, 3)), dtype), LANES)
    a = draw(vectors(scope, dtype, depth - 1))
    op = draw(st.sampled_from(_INTEGER_OPS))
    if draw(st.booleans()) or (dtype is INDEX and op == "mul"):
        return Binary(op, a, broadcast(const(draw(st.integers(0, 8)), dtype), LANES))
    return Binary(op, a, draw(vectors(scope, dtype, depth - 1)))


def points(seed: int, *exprs: Expr, count: int = 64) -> dict[Var, Any]:
    """Values for every variable of some expressions: small, extreme, and any others."""
    rng = np.random.default_rng(seed)
    variables = sorted({v for e in exprs for v in free_vars(e)}, key=lambda v: v.serial)
    return {v: _values(rng, v.dtype, count) for v in variables}


def _values(rng: np.random.Generator, dtype: DType, count: int) -> Any:
    if dtype.is_float:
        return rng.choice(np.array(_FLOATS), count).astype(dtype.numpy)
    if dtype.is_bool:
        return rng.integers(0, 2, count).astype(bool)
    if dtype is INDEX:
        return rng.integers(-40, 41, count)
    low, high = int(dtype.min_value), int(dtype.max_value)
    small = np.maximum(rng.integers(-9, 10, count), low)
    extreme = rng.choice(np.array([low, low + 1, high - 1, high]), count)
    anywhere = rng.integers(low, high + 1, count)
    pick = rng.integers(0, 4, count)
    return np.choose(pick, [small, small, extreme, anywhere]).astype(dtype.numpy)


def same_values(before: Expr, after: Expr, env: dict[Var, Any]) -> bool:
    """Do both evaluate to the same bits at all points (any NaN is as good as another)?"""
    assert before.dtype is after.dtype
    a, b = np.broadcast_arrays(evaluate(before, env), evaluate(after, env))
    if not before.dtype.is_float:
        return bool(np.array_equal(a, b))
    same = (a == b) & (np.signbit(a) == np.signbit(b))
    return bool(np.all(same | (np.isnan(a) & np.isnan(b))))


# ---- the properties -----------------------------------------------------------------------------

_QUICK = settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
_TYPES = [INDEX, *NARROW, *FLOATING, DType.of("bool")]


def _check(before: Expr, env: dict[Var, Any], ranges: Ranges | None = None) -> None:
    after = simplify(before, ranges)
    assert same_values(before, after, env), f"{before}  became  {after}"
    assert simplify(after, ranges) is after, f"{after} is no fixed point"


@pytest.mark.parametrize("dtype", _TYPES, ids=str)
@_QUICK
@given(st.data())
def test_scalars_keep_their_values(dtype: DType, data: st.DataObject) -> None:
    scope = Scope()
    expr = data.draw(expressions(scope, dtype))
    _check(expr, points(data.draw(_SEEDS), expr))


@pytest.mark.parametrize("dtype", [INDEX, *NARROW], ids=str)
@_QUICK
@given(st.data())
def test_vectors_keep_their_values(dtype: DType, data: st.DataObject) -> None:
    scope = Scope()
    expr = data.draw(vectors(scope, dtype))
    if data.draw(st.booleans()):
        expr = Binary(
            data.draw(st.sampled_from(_COMPARISONS)), expr, data.draw(vectors(scope, dtype))
        )
    _check(expr, points(data.draw(_SEEDS), expr))


@st.composite
def _ranged(draw: Any, scope: Scope, dtype: DType, *exprs: Expr) -> tuple[Ranges, dict[Var, Any]]:
    """Ranges for the variables of a type, some of them symbolic, and points within."""
    x, y, z = scope.vars[dtype]
    low, first, second = draw(st.integers(0, 5)), draw(st.integers(1, 9)), draw(st.integers(1, 40))
    ranges = Ranges().with_bounds(x, low, low + first).with_extent(y, second)
    seed, count = draw(_SEEDS), 64
    rng, env = np.random.default_rng(seed), points(seed, *exprs, count=count)
    env[x] = rng.integers(low, low + first + 1, count).astype(dtype.numpy)
    env[y] = rng.integers(0, second, count).astype(dtype.numpy)
    if dtype is INDEX and draw(st.booleans()):
        ranges = ranges.with_extent(z, x + 1)
        env[z] = rng.integers(0, env[x] + 1)
    return ranges, env


@pytest.mark.parametrize("dtype", [INDEX, *NARROW], ids=str)
@_QUICK
@given(st.data())
def test_ranges_keep_values_and_bound_them(dtype: DType, data: st.DataObject) -> None:
    scope = Scope()
    expr = data.draw(expressions(scope, dtype))
    ranges, env = data.draw(_ranged(scope, dtype, expr))
    _check(expr, env, ranges)
    low, high = bounds(expr, ranges)
    values = evaluate(expr, env)
    assert low is None or np.all(values >= low), f"{expr} goes below {low}"
    assert high is None or np.all(values <= high), f"{expr} goes above {high}"


@pytest.mark.parametrize("dtype", [INDEX, *NARROW], ids=str)
@_QUICK
@given(st.data())
def test_vectors_within_ranges(dtype: DType, data: st.DataObject) -> None:
    scope = Scope()
    expr = data.draw(vectors(scope, dtype))
    ranges, env = data.draw(_ranged(scope, dtype, expr))
    _check(expr, env, ranges)


@_QUICK
@given(st.data())
def test_proofs_never_lie(data: st.DataObject) -> None:
    scope = Scope()
    a, b = (data.draw(expressions(scope, INDEX, 3)) for _ in range(2))
    condition = Binary(data.draw(st.sampled_from(_COMPARISONS)), a, b)
    ranges, env = data.draw(_ranged(scope, INDEX, condition))
    if prove(condition, ranges):
        assert np.all(evaluate(condition, env)), f"{condition} was proven"


@_QUICK
@given(st.data())
def test_assumptions_keep_values(data: st.DataObject) -> None:
    scope = Scope()
    assumption = data.draw(expressions(scope, DType.of("bool"), 3))
    expr = data.draw(expressions(scope, INDEX, 3))
    ranges, env = data.draw(_ranged(scope, INDEX, assumption, expr))
    holds = np.broadcast_to(evaluate(assumption, env), (64,))
    env = {v: values[holds] for v, values in env.items()}
    _check(expr, env, ranges.assuming(assumption))
