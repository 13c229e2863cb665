"""Derive the coefficients of `tilewright/lower/math/coefficients.py`.

    pip install mpmath
    python tools/fit_polynomials.py > tilewright/lower/math/coefficients.py

Every fit minimises the greatest weighted error by Remez' exchange, on a grid that is dense near the
ends as Chebyshev's points are. Coefficients are rounded one by one, from the constant term up, and
the rest is fitted again, so that the rounding of one is made good by the next.
The greatest error of each fit, in units of the last place of its type, goes to standard error.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath
from mpmath import mp, mpf

mp.prec = 200
GRID = 200
RATIONAL_GRID = 150
STEPS = 60
Real = Callable[[mpf], mpf]


@dataclass(frozen=True)
class Fit:
    """`target(x)` by a polynomial of `terms` terms on [low, high]; `weight` scales its error."""

    name: str
    dtype: str
    terms: int
    low: mpf
    high: mpf
    target: Real
    weight: Real


@dataclass(frozen=True)
class RationalFit:
    """`function(x)` by slope x + x P(x²)/Q(x²) on [0, high], to the least relative error."""

    name: str
    dtype: str
    above: int
    below: int
    high: mpf
    slope: mpf
    function: Real

    def target(self, x: mpf) -> mpf:
        return self.function(x) / x - self.slope

    def weight(self, x: mpf) -> mpf:
        return x / self.function(x)


# ---- Remez --------------------------------------------------------------------------------------


def grid(low: mpf, high: mpf) -> list[mpf]:
    middle, half = (low + high) / 2, (high - low) / 2
    points = [middle - half * mpmath.cos(mp.pi * k / GRID) for k in range(GRID + 1)]
    return [p if p != 0 else half * mpf(2) ** -40 for p in points]


def remez(
    terms: int, points: Sequence[mpf], target: Sequence[mpf], weight: Sequence[mpf]
) -> list[mpf]:
    """The coefficients whose greatest weighted error is least."""
    count = terms + 1
    table = [[p**e for e in range(terms)] for p in points]
    # Where the weight vanishes (at 0, mostly) there is no error whatever the coefficients are.
    useful = [i for i, w in enumerate(weight) if w > max(weight) / 1000]
    chosen = [useful[round((len(useful) - 1) * k / (count - 1))] for k in range(count)]
    coefficients: list[mpf] = []
    for _ in range(40):
        rows = [[*(v * weight[i] for v in table[i]), (-1) ** k] for k, i in enumerate(chosen)]
        values = [target[i] * weight[i] for i in chosen]
        solution = mpmath.lu_solve(mpmath.matrix(rows), mpmath.matrix(values))
        coefficients, level = list(solution[:terms]), abs(solution[terms])
        errors = [
            (mpmath.fdot(row, coefficients) - t) * w
            for row, t, w in zip(table, target, weight, strict=True)
        ]
        following = exchange(errors, count)
        if following is None or max(abs(e) for e in errors) <= level * mpf("1.001"):
            break
        chosen = following
    return coefficients


def exchange(errors: Sequence[mpf], count: int) -> list[int] | None:
    """The places of `count` alternating extremes, the greatest among them."""
    runs: list[int] = []
    for i, e in enumerate(errors):
        if runs and (errors[runs[-1]] > 0) == (e > 0):
            if abs(e) > abs(errors[runs[-1]]):
                runs[-1] = i
        else:
            runs.append(i)
    while len(runs) > count:
        runs.pop(0 if abs(errors[runs[0]]) < abs(errors[runs[-1]]) else -1)
    return runs if len(runs) == count else None


def rounded(value: mpf, dtype: str) -> float:
    if dtype == "float32":
        # mpmath rounds to nearest at the wanted precision; struct then loses nothing.
        with mp.workprec(24):
            near = float(+value)
        return struct.unpack("<f", struct.pack("<f", near))[0]
    return float(value)


def fit(job: Fit) -> tuple[float, ...]:
    """The best of: all coefficients rounded at once, or after 1, 2, … were rounded and fixed."""
    points = grid(mpf(job.low), mpf(job.high))
    exact, full = [job.target(p) for p in points], [abs(job.weight(p)) for p in points]
    target, weight = exact, full
    done: list[float] = []
    candidates: list[tuple[mpf, tuple[float, ...]]] = []
    while len(done) < job.terms:
        rest = [rounded(c, job.dtype) for c in remez(job.terms - len(done), points, target, weight)]
        whole = (*done, *rest)
        errors = (
            abs(_horner(whole, p) - t) * w for p, t, w in zip(points, exact, full, strict=True)
        )
        candidates.append((max(errors), whole))
        done.append(rest[0])
        # The rest is x times a shorter polynomial; x goes into the weight, for only a polynomial
        # with a constant term alternates as Remez needs it.
        target = [(t - done[-1]) / p for t, p in zip(target, points, strict=True)]
        weight = [w * abs(p) for w, p in zip(weight, points, strict=True)]
    worst, best = min(candidates)
    report(job.name, job.dtype, worst)
    return best


def fit_rational(job: RationalFit) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Least squares, weighted by the last denominator (Loeb) and the last error (Lawson)."""
    roots = [
        job.high * mpmath.sin(mp.pi / 2 * (k + mpf(1) / 2) / RATIONAL_GRID)
        for k in range(RATIONAL_GRID)
    ]
    points = [(x / job.high) ** 2 for x in roots]
    target = [job.target(x) for x in roots]
    scale = [job.weight(x) for x in roots]
    lawson = [mpf(1)] * len(points)
    denominator = [mpf(1)] * len(points)
    best: tuple[mpf, list[mpf], list[mpf]] | None = None
    for step in range(STEPS):
        weights = [(w * s / d) ** 2 for w, s, d in zip(lawson, scale, denominator, strict=True)]
        p, q = _least_squares(points, target, weights, job.above, job.below)
        denominator = [abs(_horner(q, x)) for x in points]
        errors = [
            abs(_horner(p, x) / _horner(q, x) - t) * s
            for x, t, s in zip(points, target, scale, strict=True)
        ]
        worst = max(errors)
        if best is None or worst < best[0]:
            best = worst, p, q
        if step >= 4:
            lawson = [
                w * mpmath.sqrt(e / worst + mpf(10) ** -6)
                for w, e in zip(lawson, errors, strict=True)
            ]
            top = max(lawson)
            lawson = [w / top for w in lawson]
    assert best is not None
    square = mpf(job.high) ** 2
    below = tuple(rounded(c / square**k, job.dtype) for k, c in enumerate(best[2]))
    return fit(_numerator(job, below)), below


def _numerator(job: RationalFit, below: Sequence[float]) -> Fit:
    """Once the denominator is rounded, the numerator is a fit like any other."""

    def target(z: mpf) -> mpf:
        return job.target(mpmath.sqrt(z)) * _horner(below, z)

    def weight(z: mpf) -> mpf:
        return job.weight(mpmath.sqrt(z)) / _horner(below, z)

    high = mpf(job.high) ** 2
    return Fit(job.name, job.dtype, job.above, NEAR_ZERO, high, target, weight)


def _least_squares(
    points: Sequence[mpf], target: Sequence[mpf], weights: Sequence[mpf], above: int, below: int
) -> tuple[list[mpf], list[mpf]]:
    """P and Q that minimise the weighted squares of P - t Q, by the normal equations."""
    size = above + below
    moments = [[mpf(0)] * (size + 1) for _ in range(size)]
    for x, t, w in zip(points, target, weights, strict=True):
        row = [x**j for j in range(above)] + [-t * x**j for j in range(1, below + 1)] + [t]
        for i in range(size):
            scaled = row[i] * w
            for j in range(i, size + 1):
                moments[i][j] += scaled * row[j]
    for i in range(size):
        for j in range(i):
            moments[i][j] = moments[j][i]
    matrix = mpmath.matrix([r[:size] for r in moments])
    solution = mpmath.lu_solve(matrix, mpmath.matrix([r[size] for r in moments]))
    return list(solution[:above]), [mpf(1), *solution[above:size]]


def _horner(coefficients: Sequence[mpf | float], x: mpf) -> mpf:
    total = mpf(0)
    for c in reversed(coefficients):
        total = total * x + c
    return total


def report(name: str, dtype: str, worst: mpf) -> None:
    unit = mpf(2) ** (-24 if dtype == "float32" else -53)
    print(f"{name:12} {dtype}: {mpmath.nstr(worst / unit, 4)} half ulp", file=sys.stderr)


# ---- the functions ------------------------------------------------------------------------------

F32, F64 = "float32", "float64"
NEAR_ZERO = mpf(2) ** -60
#: Intervals are a little wider than the exact ones: the reduced argument is rounded, too.
MARGIN = mpf("1.002")
HALF_LN2 = mpmath.log(2) / 2 * MARGIN
SQRT_HALF, SQRT_TWO = mpmath.sqrt(mpf(1) / 2), mpmath.sqrt(mpf(2))
LOG_Z = ((SQRT_TWO - 1) / (SQRT_TWO + 1)) ** 2 * MARGIN
Target = tuple[mpf, mpf, Real, Real]


def odd_tail(function: Real, high: mpf) -> Target:
    """function(r) = r + r * z * P(z) with z = r * r, up to z = high; relative to r."""

    def target(z: mpf) -> mpf:
        r = mpmath.sqrt(z)
        return (function(r) - r) / (r * z)

    return NEAR_ZERO, high * MARGIN, target, lambda z: z


def cos_tail(z: mpf) -> mpf:
    return (mpmath.cos(mpmath.sqrt(z)) - 1 + z / 2) / z**2


def erf_tail(z: mpf) -> mpf:
    return mpmath.erf(mpmath.sqrt(z)) / mpmath.sqrt(z) - 1


def ratio_tail(z: mpf) -> mpf:
    """e**r = (A + r) / (A - r) with A = r coth(r / 2) = 2 + z P(z)."""
    r = mpmath.sqrt(z)
    return (r * mpmath.coth(r / 2) - 2) / z


def ratio_weight(z: mpf) -> mpf:
    """How an error of P changes e**r."""
    r = mpmath.sqrt(z)
    a = r * mpmath.coth(r / 2)
    return 2 * r * z / (a**2 - z)


def log_odd_tail(z: mpf) -> mpf:
    """log((1 + s) / (1 - s)) = 2 s + s z P(z)."""
    s = mpmath.sqrt(z)
    return (2 * mpmath.atanh(s) - 2 * s) / (s * z)


def log2_odd_tail(z: mpf) -> mpf:
    """log2((1 + s) / (1 - s)) = s (C0 + z (C1 + z P(z)))."""
    s, two = mpmath.sqrt(z), 2 / mpmath.log(2)
    return (two * mpmath.atanh(s) / s - two - two / 3 * z) / z**2


def log_erfc(t: mpf) -> mpf:
    return mpmath.log(mpmath.erfc(t + 1))


QUARTER = (mp.pi / 4) ** 2
EXP: Target = (-HALF_LN2, HALF_LN2, lambda r: mpmath.expm1(r) / r, lambda r: r / mpmath.exp(r))
EXP2: Target = (
    -MARGIN / 2,
    MARGIN / 2,
    lambda r: (mpf(2) ** r - 1) / r,
    lambda r: r / mpf(2) ** r,
)
EXPM1: Target = (
    -HALF_LN2,
    HALF_LN2,
    lambda r: (mpmath.expm1(r) - r) / r**2,
    lambda r: r**2 / mpmath.expm1(r),
)
EXP_RATIO: Target = (NEAR_ZERO, HALF_LN2**2, ratio_tail, ratio_weight)
LOG: Target = (
    (SQRT_HALF - 1) * MARGIN,
    (SQRT_TWO - 1) * MARGIN,
    lambda f: (mpmath.log1p(f) - f) / f**2,
    lambda f: f**2 / mpmath.log1p(f),
)
SIN = odd_tail(mpmath.sin, QUARTER)
COS: Target = (NEAR_ZERO, QUARTER * MARGIN, cos_tail, lambda z: z**2)
ATAN = odd_tail(mpmath.atan, mpmath.tan(mp.pi / 8) ** 2)
ASIN = odd_tail(mpmath.asin, mpf(1) / 4)
SINH = odd_tail(mpmath.sinh, mpf(1))

#: Name, what it approximates, the greatest error's target, and the number of terms by type.
POLYNOMIALS: list[tuple[str, str, Target, dict[str, int]]] = [
    ("EXP", "e**r = 1 + r P(r), |r| <= ln(2) / 2", EXP, {F32: 5, F64: 11}),
    ("EXP2", "2**r = 1 + r P(r), |r| <= 1 / 2", EXP2, {F32: 6, F64: 11}),
    ("EXPM1", "e**r - 1 = r + r² P(r), |r| <= ln(2) / 2", EXPM1, {F32: 5, F64: 10}),
    (
        "EXP_RATIO",
        "e**r = (A + r) / (A - r) with A = 2 + z P(z), z = r², |r| <= ln(2) / 2",
        EXP_RATIO,
        {F32: 2, F64: 5},
    ),
    ("LOG", "log(1 + f) = f + f² P(f), √½ <= 1 + f <= √2", LOG, {F32: 8}),
    (
        "LOG_ODD",
        "log((1 + s) / (1 - s)) = 2 s + s z P(z), z = s²",
        (NEAR_ZERO, LOG_Z, log_odd_tail, lambda z: z / 2),
        {F64: 7},
    ),
    (
        "LOG2_ODD",
        "log2((1 + s) / (1 - s)) = s (C0 + z (C1 + z P(z))), to twice the precision",
        (NEAR_ZERO, LOG_Z, log2_odd_tail, lambda z: z**2 * mpmath.log(2) / 2),
        {F32: 3, F64: 8},
    ),
    ("SIN", "sin(r) = r + r z P(z), |r| <= pi / 4", SIN, {F32: 3, F64: 6}),
    ("COS", "cos(r) = 1 - z / 2 + z² P(z), |r| <= pi / 4", COS, {F32: 3, F64: 6}),
    ("ATAN", "atan(r) = r + r z P(z), |r| <= tan(pi / 8)", ATAN, {F32: 4, F64: 11}),
    ("ASIN", "asin(r) = r + r z P(z), |r| <= 1 / 2", ASIN, {F32: 5, F64: 12}),
    ("SINH", "sinh(r) = r + r z P(z), |r| <= 1", SINH, {F32: 3, F64: 7}),
    (
        "ERF",
        "erf(x) = x + x P(x²), |x| <= 1",
        (NEAR_ZERO, mpf(1), erf_tail, lambda _: mpf(1)),
        {F32: 6, F64: 12},
    ),
    (
        "LOG_ERFC",
        "log(erfc(1 + t)) = P(t), 0 <= t <= 5, to an absolute error of erfc",
        (mpf(0), mpf(5), log_erfc, lambda t: mpmath.erfc(1 + t)),
        {F32: 7, F64: 18},
    ),
]
#: Name, formula, terms above, degree below, greatest argument, slope, function.
RATIONALS = [
    (
        "TANH",
        "tanh(x) = x / 8 + x P(x²) / Q(x²), |x| <= 9.02",
        *(5, 4, mpf("9.02"), mpf(1) / 8),
        mpmath.tanh,
    ),
    (
        "ERF_RATIONAL",
        "erf(x) = x / 4 + x P(x²) / Q(x²), |x| <= 4",
        *(6, 5, mpf(4), mpf(1) / 4),
        mpmath.erf,
    ),
]


# ---- writing them down --------------------------------------------------------------------------

HEADER = '''"""Coefficients of the approximations in this package.

Written by `tools/fit_polynomials.py`; change them there. The constant term comes first.
"""

from __future__ import annotations

from typing import NamedTuple

Coefficients = tuple[float, ...]


class ByType(NamedTuple):
    """The same thing for each of the two types; () where one type goes another way."""

    float32: Coefficients = ()
    float64: Coefficients = ()


class Ratio(NamedTuple):
    """A numerator and a denominator."""

    above: Coefficients
    below: Coefficients
'''


def numbers(values: Sequence[float], indent: str) -> str:
    return "".join(f"{indent}{v!r},\n" for v in values)


def tuple_text(values: Sequence[float], indent: str = "    ") -> str:
    if len(values) == 1:
        return f"({values[0]!r},)"
    return f"(\n{numbers(values, indent + '    ')}{indent})"


def split(value: mpf, dtype: str, bits: int | None = None) -> tuple[float, float]:
    """`value` as a sum of two, the first of `bits` significant bits: products stay exact."""
    with mp.workprec(bits or (24 if dtype == F32 else 53)):
        high = +value
    return float(high), rounded(value - high, dtype)


#: Constants in two parts. Those with a number of bits are multiplied by whole numbers.
CONSTANTS: list[tuple[str, mpf, dict[str, int | None]]] = [
    ("LN2", mpmath.log(2), {F32: 14, F64: 40}),
    ("LOG10_2", mpmath.log10(2), {F32: 14, F64: 40}),
    ("LOG2_E", 1 / mpmath.log(2), {F32: None, F64: None}),
    ("LOG10_E", 1 / mpmath.log(10), {F32: None, F64: None}),
    ("HALF_PI", mp.pi / 2, {F32: None, F64: None}),
    ("LOG2_C0", 2 / mpmath.log(2), {F32: None, F64: None}),
    ("LOG2_C1", 2 / mpmath.log(2) / 3, {F32: None, F64: None}),
]


def main() -> None:
    print(HEADER)
    for name, value, bits in CONSTANTS:
        parts = [f"    {t}={split(value, t, bits[t])!r},\n" for t in (F32, F64)]
        print(f"{name} = ByType(\n{''.join(parts)})")
    mp.prec = 1400
    two_over_pi = int(mpmath.floor(2 / mp.pi * mpf(2) ** 1280))
    mp.prec = 200
    print("#: The first 1280 bits of 2 / pi after the point.")
    print("TWO_OVER_PI = int(")
    digits = f"{two_over_pi:0320x}"
    for k in range(0, 320, 80):
        print(f'    "{digits[k : k + 80]}"')
    print("    , 16)")
    for name, formula, target, terms in POLYNOMIALS:
        parts = [
            f"    {t}={tuple_text(fit(Fit(name, t, n, *target)))},\n" for t, n in terms.items()
        ]
        print(f"#: {formula}\n{name} = ByType(\n{''.join(parts)})")
    for name, formula, above, below, high, slope, function in RATIONALS:
        p, q = fit_rational(RationalFit(name, F32, above, below, high, slope, function))
        parts = f"    above={tuple_text(p)},\n    below={tuple_text(q)},\n"
        print(f"#: {formula}\n{name} = Ratio(\n{parts})")


if __name__ == "__main__":
    main()
