"""A factor of a sum of products is read from a copy, maybe of a wider type"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.schedule.conftest import Program
from tilewright.ir import function_text
from tilewright.schedule import ScheduleError
from tilewright.tensor import te


def square(n: int = 5) -> Program:
    A = te.placeholder((n, n), name="A")
    k = te.reduce_axis(n, name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * A[k, j], axis=k), name="C")
    a = np.arange(n * n, dtype="f4").reshape(n, n) % 7 - 3
    return Program(te.function([A], [C], name="square"), (a,), (a @ a,))


def narrow(dtype: str = "float16", out: str = "float32") -> Program:
    A, B = te.placeholder((4, 6), dtype, name="A"), te.placeholder((6, 5), dtype, name="B")
    k = te.reduce_axis(6, name="k")
    C = te.compute(
        (4, 5),
        lambda i, j: te.sum(te.cast(A[i, k], out) * te.cast(B[k, j], out), axis=k),
        name="C",
    )
    a, b = np.arange(24).reshape(4, 6) % 5 - 2, np.arange(30).reshape(6, 5) % 7 - 3
    inputs = (a.astype(dtype), b.astype(dtype))
    return Program(te.function([A, B], [C], name="narrow"), inputs, ((a @ b).astype(out),))


def test_each_side_of_a_square_has_a_buffer(golden: Any) -> None:
    p = square()
    s = p.schedule()
    assert s.copy_operand("C", 1).name == "A_again"
    p.check(s)
    golden(function_text(s.function), "schedule/copy_operand")


@pytest.mark.parametrize("factor", [0, 1])
def test_numbers_are_converted_once(factor: int) -> None:
    p = narrow()
    s = p.schedule()
    name = s.copy_operand("C", factor, "float32").name
    p.check(s)
    assert name == ("A_wide", "B_wide")[factor]
    assert f"{name}[" in str(s) and str(s).count("f32(") == 2, "one conversion is left in C"


def test_bytes_become_wider() -> None:
    p = narrow("int8", "int32")
    s = p.schedule()
    s.copy_operand("C", 0, "int16")
    s.copy_operand("C", 1, "int16")
    p.check(s)


@pytest.mark.parametrize(
    ("factor", "dtype", "message"),
    [
        (2, None, "a product has factors 0 and 1, not 2"),
        (0, "int8", "int8 does not hold all values of float16"),
        (0, "bfloat16", "bfloat16 does not hold all values of float16"),
    ],
)
def test_what_is_refused(factor: int, dtype: str | None, message: str) -> None:
    s = narrow().schedule()
    with pytest.raises(ScheduleError, match=message):
        s.copy_operand("C", factor, dtype)


def test_a_product_in_its_own_type_keeps_it() -> None:
    s = square().schedule()
    with pytest.raises(ScheduleError, match="the product is one of float32"):
        s.copy_operand("C", 0, "float64")


def test_other_blocks_are_refused(program: Any) -> None:
    s = program("elementwise").schedule()
    with pytest.raises(ScheduleError, match="does not add up products of two elements"):
        s.copy_operand("B", 0)


def test_what_a_loop_around_makes_is_refused(program: Any) -> None:
    p = program("chain")
    s = p.schedule()
    s.compute_at("A1", s.loops("C")[0])
    with pytest.raises(ScheduleError, match="A1 is written inside of loop i"):
        s.copy_operand("C", 0)
    s.copy_operand("C", 1)
    p.check(s)
