"""Bytes of one sign become those of the other, and sums stay what they are"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.schedule.conftest import Program
from tilewright.ir import function_text
from tilewright.schedule import ScheduleError
from tilewright.tensor import te


def product(a_type: str, b_type: str, out: str = "int32") -> Program:
    """Sums of bytes of the whole range, as 6 × 5 of 7 products each."""
    A, B = te.placeholder((6, 7), a_type, name="A"), te.placeholder((7, 5), b_type, name="B")
    k = te.reduce_axis(7, name="k")
    C = te.compute(
        (6, 5),
        lambda i, j: te.sum(te.cast(A[i, k], out) * te.cast(B[k, j], out), axis=k),
        name="C",
    )
    rng = np.random.default_rng(0)
    a, b = (
        rng.integers(np.iinfo(t).min, np.iinfo(t).max + 1, shape).astype(t)
        for t, shape in ((a_type, (6, 7)), (b_type, (7, 5)))
    )
    return Program(te.function([A, B], [C], name="f"), (a, b), (a.astype(out) @ b.astype(out),))


def test_before_and_after(golden: Any) -> None:
    p = product("int8", "int8")
    s = p.schedule()
    made = [b.name for b in s.shift_operand("C", 0)]
    assert made == ["A_shifted", "B_sums", "C_shifted_back"]
    p.check(s)
    golden(function_text(s.function), "schedule/shift_operand")


@pytest.mark.parametrize("a", ["int8", "uint8"])
@pytest.mark.parametrize("b", ["int8", "uint8"])
@pytest.mark.parametrize("factor", [0, 1])
def test_all_signs(a: str, b: str, factor: int) -> None:
    p = product(a, b)
    s = p.schedule()
    s.shift_operand("C", factor)
    s.shift_operand("C", 1 - factor)
    p.check(s)


def test_sums_that_wrap_around_wrap_alike() -> None:
    p = product("int8", "int8", out="int16")
    s = p.schedule()
    s.shift_operand("C", 1)
    p.check(s)


@pytest.mark.parametrize(
    ("types", "message"),
    [
        (("int16", "int16", "int32"), "its elements are int16, not bytes"),
        (("int8", "int8", "float32"), "not sums of signed whole numbers"),
        (("int8", "int8", "int8"), "not sums of signed whole numbers"),
        (("uint8", "uint8", "uint32"), "not sums of signed whole numbers"),
    ],
)
def test_what_is_refused(types: tuple[str, str, str], message: str) -> None:
    s = product(*types).schedule()
    with pytest.raises(ScheduleError, match=message):
        s.shift_operand("C", 0)


def test_loops_that_are_shared_are_refused() -> None:
    p = product("int8", "int8")
    s = p.schedule()
    i, *_ = s.loops("C")
    s.cache_write("C", 0)
    s.reverse_compute_at(s.blocks()[-1], i)
    with pytest.raises(ScheduleError, match="holds more than the loops around block C"):
        s.shift_operand("C", 0)
