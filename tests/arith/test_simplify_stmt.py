"""Statements, simplified by what their surroundings tell."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.arith import Ranges, simplify_function, simplify_stmt
from tilewright.ir import (
    TRUE,
    Alloc,
    Assert,
    Block,
    Broadcast,
    Buffer,
    Expr,
    For,
    Function,
    If,
    Iter,
    Let,
    Ramp,
    Range,
    Region,
    Seq,
    Stmt,
    Store,
    Var,
    While,
    as_expr,
    const,
    minimum,
    seq,
)

n = Var("n")
A, B = Buffer("A", "float32", (n,)), Buffer("B", "float32", (n,))
COUNT = Buffer("count", "int64", (1,))
i, j, v = Var("i"), Var("j"), Var("v")
KNOWN = Ranges().with_bounds(n, 0, None)


def _store(index: Any, value: Any = None) -> Store:
    return Store(A, (as_expr(index),), const(1.0) if value is None else value)


def _loop(var: Var, extent: Any, body: Stmt, kind: Any = "serial") -> For:
    return For(var, as_expr(extent), kind, body)


def _block(binding: Expr, body: Stmt, predicate: Expr = TRUE, extent: Any = n) -> Block:
    region = Region(A, (Range(v + 0, const(1)),))
    return Block(
        "b", (Iter(v, as_expr(extent), "spatial"),), (binding,), body, (), (region,), predicate
    )


CASES: list[tuple[str, Stmt, Stmt]] = [
    ("unit loop", _loop(i, 1, _store(i + j)), _store(j)),
    ("empty loop", _loop(i, 0, _store(i)), Seq(())),
    ("negative loop", _loop(i, minimum(n, 0) - 1, _store(i)), Seq(())),
    ("thread loop", _loop(i, 1, _store(i), "thread"), _loop(i, 1, _store(0), "thread")),
    ("extent", _loop(i, n + n - n, _store(i)), _loop(i, n, _store(i))),
    (
        "range of a loop",
        _loop(i, n, If(i < n, _store(i), _store(0))),
        _loop(i, n, _store(i)),
    ),
    ("known branch", If(const(3) < 2, _store(1), _store(2)), _store(2)),
    ("no branch left", If(const(3) < 2, _store(1)), Seq(())),
    (
        "empty branch",
        If(i < j, Seq(()), _store(1)),
        If(j <= i, _store(1)),
    ),
    (
        "what a condition tells",
        If(i < j, If(i <= j, _store(1)), If(i < j, _store(2), _store(3))),
        If(i < j, _store(1), _store(3)),
    ),
    (
        "memory may change",
        If(COUNT[0] < 3, seq(Store(COUNT, (const(0),), const(5)), If(COUNT[0] < 3, _store(1)))),
        If(COUNT[0] < 3, seq(Store(COUNT, (const(0),), const(5)), If(COUNT[0] < 3, _store(1)))),
    ),
    ("constant let", Let(v, const(3), _store(v + 1)), _store(4)),
    (
        "let with a value",
        Let(v, i * 4 + j % 4, If(v >= i * 4, _store(v))),
        Let(v, i * 4 + j % 4, _store(v)),
    ),
    (
        "let from memory",
        Let(v, COUNT[0] % 4, If(v < 4, _store(v))),
        Let(v, COUNT[0] % 4, _store(v)),
    ),
    ("true assertion", seq(Assert(i <= i, "?"), _store(i)), _store(i)),
    (
        "assertion that was made before",
        seq(Assert((i < j) | (j < 3), "?"), _store(i), Assert((i < j) | (j < 3), "?")),
        seq(Assert((i < j) | (j < 3), "?"), _store(i)),
    ),
    (
        "assertion tells what follows",
        seq(Assert(i < j, "?"), If(i < j, _store(1))),
        seq(Assert(i < j, "?"), _store(1)),
    ),
    ("false while", While(i < i, _store(1)), Seq(())),
    (
        "masks",
        seq(
            Store(A, (Ramp(i, const(1), 4),), Broadcast(const(1.0), 4), Broadcast(TRUE, 4)),
            Store(A, (Ramp(i, const(1), 4),), Broadcast(const(1.0), 4), Broadcast(~TRUE, 4)),
        ),
        Store(A, (Ramp(i, const(1), 4),), Broadcast(const(1.0), 4)),
    ),
    (
        "predicate that holds",
        _loop(i, n, _block(i, _store(v), i < n)),
        _loop(i, n, _block(i, _store(v))),
    ),
    (
        "predicate that is needed",
        _loop(i, n + 3, _block(i, _store(v), v < n)),
        _loop(i, n + 3, _block(i, _store(v), v < n)),
    ),
    ("predicate that fails", _loop(i, n, _block(i, _store(v), i >= n)), Seq(())),
    (
        "domain of a block",
        _loop(i, n, _block(i, If(v < n, _store(v)))),
        _loop(i, n, _block(i, _store(v))),
    ),
    ("alloc", Alloc((B,), _loop(i, 1, _store(i))), Alloc((B,), _store(0))),
]


@pytest.mark.parametrize(("before", "after"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_case(before: Stmt, after: Stmt) -> None:
    result = simplify_stmt(before, KNOWN)
    # A block's region is simplified too: v + 0 is v.
    assert str(result) == str(after).replace("v + 0", "v")
    assert simplify_stmt(result, KNOWN) is result


def test_functions_know_their_dimensions() -> None:
    body = If(n >= 0, _loop(i, n, _store(i)))
    function = simplify_function(Function("f", (A,), body))
    assert function.body is body.then
    assert simplify_function(function) is function


def test_nothing_to_do_keeps_every_object() -> None:
    body = _loop(i, n, seq(_store(i), If(i < j, _store(j))))
    assert simplify_stmt(body, KNOWN) is body
