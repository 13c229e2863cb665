"""Two dimensions that always go together become one"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import Expr, const, function_text, verify
from tilewright.schedule import Schedule, ScheduleError
from tilewright.schedule.rules.merge_rows import merge_rows
from tilewright.target import Target
from tilewright.tensor import te


def product() -> Schedule:
    A, B = te.placeholder((3, 4, 6), name="A"), te.placeholder((6, 5), name="B")
    k = te.reduce_axis(6, name="k")
    C = te.compute((3, 4, 5), lambda i, j, o: te.sum(A[i, j, k] * B[k, o], axis=k), name="C")
    D = te.compute((3, 4, 5), lambda i, j, o: C[i, j, o] + 1.0, name="D")
    return Schedule(te.function([A, B], [D], name="f"))


def test_before_and_after(golden: Any) -> None:
    s = product()
    s.merge_dimensions("C", 0)
    verify(s.function)
    golden(function_text(s.function), "schedule/merge_dimensions")


def test_what_is_refused() -> None:
    s = product()
    with pytest.raises(ScheduleError, match="it has 4 iterators"):
        s.merge_dimensions("C", 3)
    for index in (1, 2):
        with pytest.raises(ScheduleError, match="something walks through one of the two alone"):
            s.merge_dimensions("C", index)
    s.parallel(s.loops("C")[0])
    assert not s.can("merge_dimensions", "C", 0), "loops are shaped already"


def test_a_dimension_of_one_element_goes_with_the_one_before() -> None:
    """Readers that broadcast it read it at 0."""
    A, B = te.placeholder((3, 1, 4, 6), name="A"), te.placeholder((6, 5), name="B")
    k = te.reduce_axis(6, name="k")
    shape = (3, 1, 4, 5)
    C = te.compute(shape, lambda i, _, j, o: te.sum(A[i, 0, j, k] * B[k, o], axis=k), name="C")
    D = te.compute(shape, lambda i, _, j, o: C[i, 0, j, o] + 1.0, name="D")
    s = Schedule(te.function([A, B], [D], name="f"))
    merge_rows(s, Target.of("llvm"))
    verify(s.function)
    assert [b.shape for b in s.function.buffers] == [
        as_shape(12, 6),
        as_shape(6, 5),
        as_shape(12, 5),
    ]


def test_dimensions_of_one_element_between_the_two() -> None:
    """The weights of windows that are one pixel wide."""
    A, B = te.placeholder((4, 3, 6), name="A"), te.placeholder((5, 3, 1, 1, 6), name="B")
    y, c = te.reduce_axis(3, name="y"), te.reduce_axis(6, name="c")
    C = te.compute(
        (4, 5), lambda i, o: te.sum(A[i, y, c] * B[o, y, 0, 0, c], axis=(y, c)), name="C"
    )
    s = Schedule(te.function([A, B], [C], name="f"))
    s.merge_dimensions("C", 2)
    verify(s.function)
    assert [b.shape for b in s.function.buffers] == [
        as_shape(4, 18),
        as_shape(5, 18),
        as_shape(4, 5),
    ]


def test_a_dimension_between_that_is_read_elsewhere_stays() -> None:
    A = te.placeholder((3, 2, 4), name="A")
    B = te.compute((3, 4), lambda i, j: A[i, 0, j], name="B")
    s = Schedule(te.function([A], [B], name="f"))
    assert not s.can("merge_dimensions", "B", 0)


def test_a_dimension_that_is_read_elsewhere_is_none_of_one_element() -> None:
    A = te.placeholder((3, 2, 4), name="A")
    B = te.compute((3, 1, 4), lambda i, _, j: A[i, 0, j], name="B")
    s = Schedule(te.function([A], [B], name="f"))
    assert not s.can("merge_dimensions", "B", 0)


def as_shape(*extents: int) -> tuple[Expr, ...]:
    return tuple(const(e) for e in extents)
