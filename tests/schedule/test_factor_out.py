"""factor_out(block)"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.schedule.conftest import Program
from tilewright.ir import cast, function_text
from tilewright.schedule import Schedule, ScheduleError
from tilewright.tensor import te


def weighted(n: int = 3, m: int = 5, *, narrow: str = "float32", by: str = "row") -> Program:
    """Sums of terms that have a factor, which rows or terms have of their own."""
    A, V, F = (te.placeholder(s, name=x) for s, x in (((n, m), "A"), ((m,), "V"), ((n,), "F")))
    k = te.reduce_axis(m, name="k")

    def term(i: Any, j: Any) -> Any:
        product = A[i, j] * (F[i] if by == "row" else V[j])
        return cast(product, narrow) if by != "sum" else cast(A[i, j] + F[i], narrow)

    T = te.compute((n, m), term, name="T")
    S = te.compute((n,), lambda i: te.sum(cast(T[i, k], "float32") * V[k], axis=k), name="S")
    R = te.compute((n,), lambda i: S[i] + 1.0, name="R")
    random = np.random.default_rng(0)
    a, v, f = (random.integers(-4, 5, s).astype("f4") for s in ((n, m), (m,), (n,)))
    return Program(
        te.function([A, V, F], [R], name="weighted"), (a, v, f), ((a * f[:, None]) @ v + 1,)
    )


def test_before_and_after(golden: Any) -> None:
    p = weighted()
    s = p.schedule()
    s.factor_out("T")
    golden(f"{function_text(p.function)}-->\n{s}", "schedule/factor_out")
    p.check(s)


def test_terms_may_be_rounded() -> None:
    p = weighted(narrow="float16")
    s = p.schedule()
    s.factor_out("T")
    assert "T[vi, vj] = f16(A[vi, vj])" in str(s)
    p.check(s)


@pytest.mark.parametrize(
    ("by", "message"), [("term", "the same for all terms"), ("sum", "the same for all terms")]
)
def test_factors_that_differ_are_refused(by: str, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        weighted(by=by).schedule().factor_out("T")


def test_results_must_be_read() -> None:
    """A sum that is an output cannot be multiplied afterwards."""
    A, F = te.placeholder((3, 5), name="A"), te.placeholder((3,), name="F")
    k = te.reduce_axis(5, name="k")
    T = te.compute((3, 5), lambda i, j: A[i, j] * F[i], name="T")
    S = te.compute((3,), lambda i: te.sum(T[i, k], axis=k), name="S")
    with pytest.raises(ScheduleError, match="S is "):
        Schedule(te.function([A, F], [S], name="f")).factor_out("T")
