"""Two dimensions that always go together become one"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import function_text, verify
from tilewright.schedule import Schedule, ScheduleError
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
