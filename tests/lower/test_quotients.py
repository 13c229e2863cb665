"""Positions along several sizes that one parallel loop runs over."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen import backend_of
from tilewright.ir import For, Function, Let, interpret, parse_function, walk
from tilewright.kernels.pipeline import lowered
from tilewright.lower import bind_quotients
from tilewright.target import Target

#: Quotients within quotients, under a condition, of which one is by a constant.
LOOPS = """
def f(A: f32[n, m, 2], B: f32[n, m, 2]):
    for k in parallel(n * m * 2):
        for j in range(2):
            if j == k % 2:
                B[k // 2 // m, k // 2 % m, j] = A[k // (m * 2), k // 2 % m, j]
"""


def loop_of(function: Function) -> For:
    return next(s for s in walk(function.body) if isinstance(s, For) and s.kind == "parallel")


def names_in(function: Function) -> list[str]:
    found, stmt = list[str](), loop_of(function).body
    while isinstance(stmt, Let):
        found.append(str(stmt.value))
        stmt = stmt.body
    return found


def test_quotients_by_sizes_have_names_where_the_loop_begins() -> None:
    function = parse_function(LOOPS)
    made = bind_quotients(function)
    assert sorted(names_in(made)) == ["k // (m * 2)", "k // 2 % m", "k // 2 // m"]
    a = np.random.default_rng(0).standard_normal((3, 5, 2)).astype(np.float32)
    expected, found = np.zeros_like(a), np.zeros_like(a)
    interpret(function, a, expected)
    interpret(made, a, found)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "old, new",
    [
        pytest.param("parallel(n * m * 2)", "range(n * m * 2)", id="a serial loop"),
        pytest.param("parallel(n * m * 2)", "parallel(7)", id="sizes that may be zero"),
    ],
)
def test_others_stay(old: str, new: str) -> None:
    function = parse_function(LOOPS.replace(old, new))
    assert not any(isinstance(s, Let) for s in walk(bind_quotients(function).body))


def test_quotients_that_depend_on_inner_loops_stay() -> None:
    function = parse_function(LOOPS.replace("A[k // (m * 2)", "A[(k + j) // (m * 2)"))
    assert sorted(names_in(bind_quotients(function))) == ["k // 2 % m", "k // 2 // m"]


@pytest.mark.parametrize(
    "target, hides",
    [
        ("llvm -mtriple=aarch64-linux-gnu", True),
        ("llvm -mtriple=x86_64-linux-gnu", True),
        ("llvm -mtriple=armv7-linux-gnueabihf", False),
    ],
)
def test_llvm_takes_quotients_for_plain_numbers(target: str, hides: bool) -> None:
    """So that it steps pointers through loops which begin at them."""
    machine = Target.of(target)
    flat = lowered(tw.Schedule(parse_function(LOOPS)).function, machine)
    code = backend_of(machine).generate(flat, machine)
    assert ('"=r,0"' in code.text()) == hides
    assert code.object_code()
