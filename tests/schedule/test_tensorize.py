"""tensorize(target, intrin)"""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import (
    Assert,
    Evaluate,
    Function,
    Load,
    Var,
    address_of,
    call,
    const,
    parse_function,
    replace_buffers,
    seq,
    verify,
)
from tilewright.schedule import Schedule, ScheduleError, TensorIntrin, find_intrin
from tilewright.support.errors import UserError
from tilewright.tensor import te

DESCRIPTION = """
def description(A: f32[2, 3], B: f32[3, 2], C: f32[2, 2]):
    for i in range(2):
        for j in range(2):
            for k in range(3):
                with block("D", vi=spatial(2, i), vj=spatial(2, j), vk=reduce(3, k)):
                    reads(C[vi, vj], A[vi, vk], B[vk, vj])
                    writes(C[vi, vj])
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
IMPLEMENTATION = """
def implementation(A: f32[2, 3], B: f32[3, 2], C: f32[2, 2]):
    for x in range(4):
        C[x // 2, x % 2] = (
            C[x // 2, x % 2] + A[x // 2, 0] * B[0, x % 2] + A[x // 2, 1] * B[1, x % 2]
            + A[x // 2, 2] * B[2, x % 2]
        )
"""
TILE_2x2x3 = TensorIntrin(
    "test.tile_2x2x3", parse_function(DESCRIPTION), parse_function(IMPLEMENTATION)
)


def _tiled(p: Any, i: int = 2, j: int = 2, k: int = 3) -> tuple[Any, Any]:
    s = p.schedule()
    i0, j0, i1, j1 = s.tile("i", "j", i, j)
    k0, k1 = s.split("k", k)
    s.reorder(i0, j0, k0, i1, j1, k1)
    return s, i1


def test_before_and_after(program: Any, golden: Any) -> None:
    p = program("matmul", n=4, m=6)
    s, i1 = _tiled(p)
    before = str(s)
    assert s.tensorize(i1, TILE_2x2x3).name == "C_o"
    golden(f"{before}-->\n{s}", "schedule/tensorize")
    p.check(s)


def test_a_block_by_the_name_of_the_intrinsic(program: Any) -> None:
    p = program("matmul", n=4, m=4)
    s, i1 = _tiled(p)
    block = s.blockize(i1)
    s.tensorize(block, "test.tile_2x2x3")
    assert find_intrin("test.tile_2x2x3") is TILE_2x2x3
    assert s.block_of(block).annotations["tensor_intrin"] == "test.tile_2x2x3"
    p.check(s)


def _strided() -> TensorIntrin:
    """The same, told the stride of A, and asking for its address."""
    plain = parse_function(IMPLEMENTATION)
    a, b, c = plain.buffers
    stride = Var("stride")
    rows = a.with_(strides=(stride, 1))
    hint = Evaluate(call("prefetch", address_of(Load(rows, (const(1), const(0))))))
    asks = Assert(stride < 9, "a stride below 9")
    body = seq(asks, hint, replace_buffers(plain.body, {a: rows}))
    implementation = Function("strided", (rows, b, c), body)
    return TensorIntrin("test.strided", parse_function(DESCRIPTION), implementation)


STRIDED = _strided()


def test_strides_are_bound(program: Any) -> None:
    p = program("matmul", n=4, m=4)
    s, i1 = _tiled(p)
    s.tensorize(i1, STRIDED)
    assert "assert 6 < 9" in str(s) and "address_of(A[vio * 2 + 1, vko * 3])" in str(s)
    verify(s.function)


def test_buffers_whose_addresses_are_taken_keep_their_layout() -> None:
    X, B = te.placeholder((4, 6), name="X"), te.placeholder((6, 4), name="B")
    A = te.compute((4, 6), lambda i, k: X[i, k] + 1.0, name="A")
    k = te.reduce_axis(6, name="k")
    C = te.compute((4, 4), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = Schedule(te.function([X, B], [C]))
    i, j, k_loop = s.loops("C")
    i0, j0, i1, j1 = s.tile(i, j, 2, 2)
    k0, k1 = s.split(k_loop, 3)
    s.reorder(i0, j0, k0, i1, j1, k1)
    s.tensorize(i1, STRIDED)
    verify(s.function)
    assert "A = alloc(f32[4, 6, strides(6, 1)])" in str(s)


def test_tiles_that_differ_are_refused(program: Any) -> None:
    s, i1 = _tiled(program("matmul", n=6, m=6), 3, 2, 3)
    with pytest.raises(ScheduleError, match="loop i_1 has the extent 3, not 2") as caught:
        s.tensorize(i1, TILE_2x2x3)
    assert "the intrinsic computes" in str(caught.value)
    s = program("elementwise", n=4, m=4).schedule()
    _, _, i1, _ = s.tile("i", "j", 2, 2)
    with pytest.raises(ScheduleError, match="a store stands where the intrinsic has a loop"):
        s.tensorize(i1, TILE_2x2x3)


def test_another_update_is_refused(program: Any) -> None:
    other = parse_function(DESCRIPTION.replace("A[vi, vk] * B", "A[vi, vk] - B"))
    intrin = TensorIntrin("test.other", other, parse_function(IMPLEMENTATION))
    s, i1 = _tiled(program("matmul", n=4, m=4))
    with pytest.raises(ScheduleError, match=r"cannot compute i_1 by test\.other: .* is not"):
        s.tensorize(i1, intrin)


def test_the_registry(program: Any) -> None:
    with pytest.raises(UserError, match="there is no tensor intrinsic 'nothing'"):
        find_intrin("nothing")
    wrong = parse_function("def f(A: f32[2, 3], B: f32[3, 2]):\n    A[0, 0] = 1.0\n")
    with pytest.raises(UserError, match="their parameters are not of the same types and ranks"):
        TensorIntrin("test.wrong", parse_function(DESCRIPTION), wrong)
