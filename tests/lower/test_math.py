"""The vector maths against wider references: at most 4 units in the last place, specials exact.

Every check runs on the evaluator, with and without fused multiply-add, and on compiled code; with
denormals kept, and with denormals flushed.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright as tw
from tilewright import te
from tilewright.ir import (
    INTRINSICS,
    TRANSCENDENTAL,
    Buffer,
    Call,
    Expr,
    For,
    Function,
    If,
    Ramp,
    Store,
    Var,
    all_exprs,
    call,
    cast,
    const,
    evaluate,
    map_expr,
    minimum,
    walk_expr,
)
from tilewright.lower.math import EXPANSIONS, Arithmetic, expand, expand_angles, expand_math
from tilewright.support.denormals import DENORMALS, Denormals

Array = np.ndarray[Any, np.dtype[Any]]
LIMIT = 4.0
#: Those that are as exact as their type.
NAMES = sorted({*EXPANSIONS} - {"coarse_sigmoid"})
TYPES = ("float32", "float64")
COUNT = 4000
#: The double nearest to a multiple of pi/2, and its like among the floats.
HARD_ANGLES = {"float32": 16367173.0 * 2.0**72, "float64": 6381956970095103.0 * 2.0**797}


# ---- ways to run a function ---------------------------------------------------------------------


class Executor(NamedTuple):
    """Runs the functions by name, in a mode."""

    run: Callable[..., Array]
    denormals: Denormals

    def __call__(self, name: str, *args: Array) -> Array:
        return self.run(name, *args)


def _evaluator(*, fused: bool, denormals: Denormals = "keep") -> Executor:
    """NumPy does not flush: neither does a machine that cannot."""
    arithmetic = Arithmetic(fused, denormals, flushes=False)

    def run(name: str, *args: Array) -> Array:
        operands = [Var(n, a.dtype) for n, a in zip("xy", args, strict=False)]
        node = call(name, *operands)
        assert isinstance(node, Call)
        expanded = expand(node, arithmetic)
        assert expanded is not None
        return evaluate(expanded, dict(zip(operands, args, strict=True)))

    return Executor(run, denormals)


def _compiled(denormals: Denormals) -> Executor:
    modules = {dtype: _all_functions(dtype, denormals) for dtype in TYPES}

    def run(name: str, *args: Array) -> Array:
        x = np.ascontiguousarray(args[0])
        y = np.ascontiguousarray(args[-1])
        results = [np.empty_like(x) for _ in NAMES]
        modules[x.dtype.name](x, y, *results)
        return results[NAMES.index(name)]

    return Executor(run, denormals)


def _all_functions(dtype: str, denormals: Denormals) -> tw.Module:
    n = te.var("n")
    x, y = te.placeholder((n,), dtype, name="x"), te.placeholder((n,), dtype, name="y")

    def body(name: str) -> Callable[..., Expr]:
        return lambda i: call(name, *(x[i], y[i])[: INTRINSICS[name].arity])

    outputs = [te.compute((n,), body(name), name=f"{name}_of") for name in NAMES]
    return tw.build(te.function([x, y], outputs), denormals=denormals)


WAYS = itertools.product(["fused", "unfused", "compiled"], DENORMALS.values())


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def executor(request: pytest.FixtureRequest) -> Executor:
    way, denormals = request.param
    if way == "compiled":
        return _compiled(denormals)
    return _evaluator(fused=way == "fused", denormals=denormals)


# ---- references ---------------------------------------------------------------------------------


def _wide_erf(x: Array) -> Array:
    """By a series of positive terms; where it would not converge, erf is 1."""
    inside = np.where(np.abs(x) < 6.5, x, 0)
    term = inside * np.exp(-inside * inside) * 2 / np.sqrt(np.arccos(x.dtype.type(-1)))
    total = term
    for k in range(1, 180):
        term = term * (2 * inside * inside) / (2 * k + 1)
        total = total + term
    return np.where(np.abs(x) < 6.5, total, np.where(np.isnan(x), x, np.sign(x)))


def _wide_sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


REFERENCES: dict[str, Callable[..., Array]] = {
    **{n: getattr(np, n) for n in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p")},
    **{n: getattr(np, n) for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{n: getattr(np, f"arc{n[1:]}") for n in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
    "atan2": np.arctan2,
    "coarse_exp": np.exp,
    "pow": np.power,
    "erf": _wide_erf,
    "sigmoid": _wide_sigmoid,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}


def reference(name: str, *args: Array) -> Array:
    wide = np.float64 if args[0].dtype == np.float32 else np.longdouble
    if np.finfo(wide).nmant <= np.finfo(args[0].dtype).nmant:
        pytest.skip("no type here is wider than float64")
    with np.errstate(all="ignore"):
        return REFERENCES[name](*(a.astype(wide) for a in args))


def ulps(got: Array, expected: Array) -> Array:
    """The distance in units in the last place of `got`'s type; infinity counts as 2**maxexp."""
    info, wide = np.finfo(got.dtype), expected.dtype.type
    top = np.ldexp(wide(1), info.maxexp)
    a, b = (np.clip(v.astype(expected.dtype), -top, top) for v in (got, expected))
    _, exponent = np.frexp(b)
    unit = np.ldexp(wide(1), np.clip(exponent - 1, info.minexp, info.maxexp - 1) - info.nmant)
    both_nan = np.isnan(a) & np.isnan(b)
    distance = np.where(np.isnan(a) | np.isnan(b), np.inf, np.abs(a - b) / unit)
    return np.where(both_nan, 0, distance).astype(np.float64)


def flushed(x: Array) -> Array:
    """Zeros for what is below the least normal number."""
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(0, x), x).astype(x.dtype)


def error_of(executor: Executor, name: str, args: list[Array], expected: Array) -> Array:
    """How far the answers are off, in units in the last place.

    Where denormals are flushed, no answer is one, answers may be off by twice the least normal
    number, and denormal arguments may count as zeros.
    """
    got = executor(name, *args)
    assert got.dtype == args[0].dtype
    error = ulps(got, expected)
    if executor.denormals == "keep":
        return error
    tiny = np.finfo(got.dtype).tiny
    assert not ((got != 0) & (np.abs(got) < tiny)).any()
    of_zeros = reference(name, *map(flushed, args))
    has_denormal = np.any([flushed(a) != a for a in args], axis=0)
    error = np.where(has_denormal, np.minimum(error, ulps(got, of_zeros)), error)
    with np.errstate(invalid="ignore"):
        off = np.minimum(np.abs(got - expected), np.abs(got - of_zeros))
    return np.where(off <= 2 * tiny, 0, error)


@pytest.mark.parametrize("off", [-(2.0**-14), 0, 2.0**-14])
@pytest.mark.parametrize("dtype", TYPES)
def test_coarse_sigmoids_are_good_enough_for_bytes(dtype: str, off: float) -> None:
    """By division, and by reciprocals of which 14 bits are right."""
    var = Var("x", dtype)
    node = call("coarse_sigmoid", var)
    assert isinstance(node, Call)
    expanded = expand(node, Arithmetic(has_reciprocals=bool(off)))
    assert expanded is not None
    by_instruction = map_expr(expanded, lambda e: _reciprocal_off_by(e, off))
    x = np.linspace(-80, 80, 40_001).astype(dtype)
    error = evaluate(by_instruction, {var: x}) / reference("sigmoid", x) - 1
    assert np.abs(error).max() <= 2.0**-12
    far = np.array([-np.inf, -1e30, -90, 90, 1e30, np.inf, np.nan]).astype(dtype)
    expected = np.array([0, 0, 0, 1, 1, 1, np.nan])
    got = evaluate(by_instruction, {var: far})
    np.testing.assert_allclose(got, expected, rtol=2.0**-12, atol=1e-37)


def _reciprocal_off_by(e: Expr, off: float) -> Expr | None:
    is_coarse = isinstance(e, Call) and e.name == "coarse_reciprocal"
    return 1 / e.operands[0] * (1 + off) if is_coarse else None


@pytest.mark.parametrize("name", ["erf", "tanh", "sigmoid"])
@pytest.mark.parametrize("off", [-1, 1])
def test_coarse_reciprocals_are_good_enough(name: str, off: int) -> None:
    """Those of GPUs are up to a unit in the last place off."""
    ends = np.array([-np.inf, np.inf, np.nan, 0.0, -0.0, -1e-40])
    x = np.concatenate([np.linspace(-10, 10, 20_001), np.linspace(-120, 120, 20_001), ends])
    x, var = x.astype("f4"), Var("x", "float32")
    node = call(name, var)
    assert isinstance(node, Call)
    expanded = expand(node, Arithmetic(has_reciprocals=True))
    assert expanded is not None
    with_error = map_expr(expanded, lambda e: _reciprocal_off_by(e, off * 2.0**-23))
    assert with_error is not expanded
    found = evaluate(with_error, {var: x})
    assert ulps(found, reference(name, x)).max() <= LIMIT


# ---- arguments ----------------------------------------------------------------------------------


def _spread(rng: np.random.Generator, dtype: str) -> Array:
    """All exponents, and the neighbourhoods where functions turn."""
    info = np.finfo(dtype)
    exponents = rng.integers(info.minexp - info.nmant, info.maxexp, 2 * COUNT)
    signs = rng.choice([-1.0, 1.0], 2 * COUNT)
    everywhere = np.ldexp(rng.uniform(1, 2, 2 * COUNT) * signs, exponents)
    reach = 1.05 * math.log(float(info.max))
    near_one = 1 + rng.uniform(-1, 1, COUNT) * np.ldexp(1.0, -rng.integers(0, 50, COUNT))
    parts = [
        everywhere,
        rng.uniform(-10, 10, COUNT),
        rng.uniform(-1.1, 1.1, COUNT),
        rng.uniform(-reach, reach, COUNT),
        rng.uniform(-1.5 * reach, 1.5 * reach, COUNT),
        *(near_one, -near_one),
        *(_around(v, dtype) for v in _thresholds(dtype)),
    ]
    return np.concatenate([p.astype(dtype) for p in parts])


def _thresholds(dtype: str) -> list[float]:
    info = np.finfo(dtype)
    smallest = info.minexp - info.nmant
    greatest, least = math.log(float(info.max)), smallest * math.log(2)
    edges = [greatest, least, greatest + math.log(2), info.maxexp, smallest, info.minexp]
    edges += [0.5, 1.0, math.pi / 4, math.pi / 2, 0.41421356, 2.41421356, math.sqrt(0.5), 2**0.5]
    edges += [4.0, 9.02, float(info.max), float(info.tiny), HARD_ANGLES[dtype]]
    return [s * e for e in edges for s in (1, -1)]


def _around(value: float, dtype: str) -> Array:
    with np.errstate(all="ignore"):
        centre = np.array(value).astype(dtype)
        steps = np.arange(-4, 5)
        return centre + steps * np.spacing(centre)


def _arguments(name: str, dtype: str) -> list[Array]:
    rng = np.random.default_rng(NAMES.index(name))
    x = _spread(rng, dtype)
    if name == "atan2":
        return [x, rng.permutation(x)]
    if name != "pow":
        return [x]
    # Exponents that keep the power within the type for half of the bases, whole ones among them.
    reach = 1.1 * np.finfo(dtype).maxexp
    with np.errstate(all="ignore"):
        fitting = rng.uniform(-reach, reach, x.size) / np.log2(np.abs(x.astype(np.float64)))
    y = np.where(rng.random(x.size) < 0.5, fitting, rng.permutation(x))
    y = np.where(rng.random(x.size) < 0.3, np.round(y), y)
    return [np.where(rng.random(x.size) < 0.7, np.abs(x), x), y.astype(dtype)]


@functools.cache
def _case(name: str, dtype: str) -> tuple[list[Array], Array]:
    args = _arguments(name, dtype)
    return args, reference(name, *args)


SPECIAL = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0]


def _specials(dtype: str) -> Array:
    info = np.finfo(dtype)
    edges = [float(v) for v in (info.max, info.tiny, info.smallest_subnormal)]
    whole = [2.0**info.nmant - 1, 2.0 ** (info.nmant + 1), 2.0 ** (info.nmant + 1) + 2]
    signed = [s * v for v in edges + whole for s in (1, -1)]
    return np.array(SPECIAL + signed).astype(dtype)


# ---- accuracy -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", NAMES)
def test_within_four_units_in_the_last_place(name: str, dtype: str, executor: Executor) -> None:
    args, expected = _case(name, dtype)
    error = error_of(executor, name, args, expected)
    worst = int(np.argmax(error))
    assert error[worst] <= LIMIT, f"{error[worst]} ulp at {[a[worst] for a in args]}"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", NAMES)
def test_specials_are_exact(name: str, dtype: str, executor: Executor) -> None:
    """Zeros with their sign, infinities and NaN come where C99 wants them, and nowhere else."""
    points = _specials(dtype)
    if executor.denormals == "flush":
        points = flushed(points)
    pairs = list(itertools.product(points, repeat=INTRINSICS[name].arity or 1))
    args = [np.array(column) for column in zip(*pairs, strict=True)]
    got = executor(name, *args)
    wide = reference(name, *args)
    with np.errstate(over="ignore"):
        expected = wide.astype(dtype)
    if executor.denormals == "flush":
        expected = flushed(expected)
    for values, a, b in zip(pairs, got, expected, strict=True):
        if np.isnan(b):
            assert np.isnan(a), (name, values)
        elif b == 0 or np.isinf(b):
            assert a == b and np.signbit(a) == np.signbit(b), (name, values, a, b)
    assert error_of(executor, name, args, wide).max() <= LIMIT


@pytest.mark.parametrize("dtype", TYPES)
def test_what_is_representable_is_exact(dtype: str, executor: Executor) -> None:
    info = np.finfo(dtype)
    least = info.minexp - (info.nmant if executor.denormals == "keep" else 0)
    whole = np.arange(least, info.maxexp).astype(dtype)
    powers = np.ldexp(np.ones_like(whole), whole.astype(np.int32))
    assert (executor("exp2", whole) == powers).all()
    assert (executor("log2", powers) == whole).all()
    assert (executor("pow", np.full_like(whole, 2), whole) == powers).all()
    zero = np.zeros(1, dtype)
    assert all(executor(n, zero) == 1 for n in ("exp", "exp2", "cos", "cosh"))
    assert executor("sigmoid", zero) == 0.5
    odd = [executor(n, zero + 1) for n in ("log", "log2", "log10", "acosh")]
    assert all(v == 0 and not np.signbit(v) for v in odd)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["tanh", "erf", "sin", "cos", "sigmoid"])
def test_bounded_functions_keep_their_bounds(name: str, dtype: str, executor: Executor) -> None:
    rng = np.random.default_rng(5)
    x = rng.uniform(-25, 25, 40_000).astype(dtype)
    assert np.abs(executor(name, x)).max() <= 1


@pytest.mark.parametrize("denormals", DENORMALS)
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("dtype", TYPES)
def test_exp_of_what_is_not_positive(dtype: str, fused: bool, denormals: Denormals) -> None:
    """It takes fewer operations, and is as exact: subnormal results, infinities and NaN."""
    arithmetic = Arithmetic(fused, denormals)
    x = Var("x", dtype)
    node = call("exp", minimum(x, 0))
    assert isinstance(node, Call)
    expanded = expand(node, arithmetic)
    by_itself = expand(node, arithmetic._replace(flushes=False))
    assert expanded is not None and by_itself is not None
    points = np.concatenate([_spread(np.random.default_rng(3), dtype), _specials(dtype)])
    executor = Executor(lambda _, points: evaluate(by_itself, {x: points}), denormals)
    expected = reference("exp", np.minimum(points, 0))
    points = np.minimum(points, 0)
    assert error_of(executor, "exp", [points], expected).max() <= LIMIT
    ends = evaluate(expanded, {x: np.array([-np.inf, np.inf, np.nan, -0.0], dtype)})
    np.testing.assert_array_equal(ends, np.array([0, 1, np.nan, 1], dtype))
    plain = expand(Call("exp", (x,), x.dtype), arithmetic)
    assert plain is not None
    assert _operations(expanded) < _operations(plain)


# ---- the expansion as such ----------------------------------------------------------------------


def test_every_transcendental_is_expanded() -> None:
    assert set(EXPANSIONS) == {*TRANSCENDENTAL, "pow", "atan2"}


@pytest.mark.parametrize("name", NAMES)
def test_vectors_give_what_scalars_give(name: str) -> None:
    x = _specials("float32")[:12].reshape(3, 4)
    vector = Var("v", "float32x4")
    arity = INTRINSICS[name].arity or 1
    node = call(name, *[vector] * arity)
    assert isinstance(node, Call)
    expanded = expand(node)
    assert expanded is not None and expanded.dtype is node.dtype
    expected = _evaluator(fused=True)(name, *[x] * arity)
    np.testing.assert_array_equal(evaluate(expanded, {vector: x}), expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_floats_go_through_float32(dtype: str) -> None:
    x = Var("x", dtype)
    node = call("tanh", x)
    assert isinstance(node, Call)
    expanded = expand(node)
    assert expanded is not None and expanded.dtype is x.dtype
    points = np.linspace(-4, 4, 101).astype(x.dtype.numpy)
    through = _evaluator(fused=True)("tanh", points.astype(np.float32)).astype(x.dtype.numpy)
    np.testing.assert_array_equal(evaluate(expanded, {x: points}), through)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", NAMES)
def test_no_fused_operation_where_there_is_none(name: str, dtype: str) -> None:
    operands = [Var(n, dtype) for n in "xy"][: INTRINSICS[name].arity]
    node = call(name, *operands)
    assert isinstance(node, Call)
    expanded = expand(node, Arithmetic(fused=False))
    assert expanded is not None
    names = {e.name for e in walk_expr(expanded) if isinstance(e, Call)}
    assert not names & {"fma", *EXPANSIONS}


#: What the hot functions may cost.
BUDGETS = {"exp": 18, "tanh": 15, "erf": 17, "sigmoid": 17, "log": 32, "rsqrt": 2}


@pytest.mark.parametrize("name", BUDGETS)
def test_hot_functions_stay_short(name: str) -> None:
    node = call(name, Var("x", "float32"))
    assert isinstance(node, Call)
    expanded = expand(node)
    assert expanded is not None
    assert _operations(expanded) <= BUDGETS[name]


def _operations(e: Expr) -> int:
    """How many there are; reinterpretation is free."""
    free = [n for n in walk_expr(e) if isinstance(n, Call) and "reinterpret" in n.name]
    return len([n for n in walk_expr(e) if n.operands]) - len(free)


def test_functions_are_rewritten_throughout() -> None:
    x, i = Buffer("X", "float32", (8,)), Var("i")
    value = call("exp", call("sigmoid", x[i])) + call("sqrt", x[i])
    store = Store(x, (cast(call("floor", call("cos", const(0.5))), "int64"),), value)
    function = Function("f", (x,), For(i, const(8), "serial", store))
    expanded = expand_angles(expand_math(function))
    left = {e.name for e in all_exprs(expanded.body) if isinstance(e, Call)}
    assert {"sqrt", "floor", "fma"} <= left
    assert not left & set(EXPANSIONS)
    assert expand_math(expanded) is expanded
    assert expand_angles(expanded) is expanded


# ---- angles that are near, and others -----------------------------------------------------------

#: Up to where angles are near.
NEAR = {"float32": 2.0**15, "float64": 2.0**25}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_near_angles(name: str, dtype: str, executor: Executor) -> None:
    """Everywhere, and where next to nothing is left of them."""
    rng, limit = np.random.default_rng(6), NEAR[dtype]
    multiples = rng.integers(1, int(limit / 1.6), COUNT) * (np.pi / 2)
    points = np.concatenate([rng.uniform(-limit, limit, COUNT), multiples, -multiples])
    x = points.astype(dtype)
    x = np.concatenate([x, np.nextafter(x, np.array(0, dtype))])
    assert np.abs(x).max() <= limit
    assert error_of(executor, name, [x], reference(name, x)).max() <= LIMIT


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_near_angles_are_the_same_beside_others(name: str, dtype: str, executor: Executor) -> None:
    x = np.random.default_rng(7).uniform(-100, 100, 64).astype(dtype)
    mixed = x.copy()
    mixed[::3] = [HARD_ANGLES[dtype], np.inf, *np.full(20, 1e30)]
    alone, beside = executor(name, x), executor(name, mixed)
    kept = np.arange(64) % 3 != 0
    assert np.array_equal(alone[kept], beside[kept])


def test_statements_with_angles_have_two_versions() -> None:
    x, y = (Buffer(n, "float32", (8,)) for n in "XY")
    at = Ramp(const(0), const(1), 8)
    store = Store(y, (at,), call("sin", call("cos", x[at]) * 9))
    versions = expand_angles(Function("f", (x, y), store)).body
    assert isinstance(versions, If) and "all_lanes" in str(versions.condition)
    near, others = (list(all_exprs(s)) for s in (versions.then, versions.otherwise) if s)
    assert len(near) < len(others) / 2
    assert not any(isinstance(e, Call) and e.name == "mulhi" for e in near)
