"""The text form: what is written, and how culprits are shown."""

from __future__ import annotations

import math

import pytest

from tilewright.ir import (
    Alloc,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    For,
    Function,
    Let,
    Load,
    Ramp,
    Select,
    Seq,
    Store,
    Unary,
    Var,
    const,
    expr_text,
    function_text,
    listing,
    select,
    stmt_text,
)

i, j, n = Var("i"), Var("j"), Var("n")
x, y = Var("x", "f32"), Var("y", "f32")
p, q, r = Var("p", "bool"), Var("q", "bool"), Var("r", "bool")
A = Buffer("A", "f32", (n, 4))
S = Buffer("S", "f32", ())


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (i + j * 2, "i + j * 2"),
        ((i + j) * 2, "(i + j) * 2"),
        (i - (j - n), "i - (j - n)"),
        (i - j - n, "i - j - n"),
        (-i * 2, "-i * 2"),
        (-(i * 2), "-(i * 2)"),
        (Unary("neg", const(1)), "neg(1)"),
        (const(-1), "-1"),
        (i - const(-1), "i - -1"),
        (i // 4 % 3, "i // 4 % 3"),
        (Binary("truncdiv", i, j), "truncdiv(i, j)"),
        (Binary("min", i, j), "min(i, j)"),
        (x / y, "x / y"),
        (p & q & r, "p and q and r"),
        (p & (q & r), "p and (q and r)"),
        (p | (q & ~r), "p or q and not r"),
        (~(i < j), "not i < j"),
        ((i < j) == p, "(i < j) == p"),
        (i & 3, "i & 3"),
        (i << 2 | j, "i << 2 | j"),
        (~i, "~i"),
        (select(p, i, select(q, j, 0)), "i if p else j if q else 0"),
        (select(p, i, j) + 1, "(i if p else j) + 1"),
        (A[i, j + 1], "A[i, j + 1]"),
        (S[()], "S[()]"),
        (Load(A, (Ramp(i, const(1), 4), const(0)), Broadcast(p, 4)),
         "load(A[ramp(i, 1, 4), 0], broadcast(p, 4))"),
        (i.astype("f32"), "f32(i)"),
        (Cast(const(1).dtype, const(1)), "cast(i64, 1)"),
        (const(1, "i32"), "i32(1)"),
        (const(0.5, "f64"), "f64(0.5)"),
        (const(0.1), "0.1"),
        (const(1e10), "10000000000.0"),
        (const(-0.0), "-0.0"),
        (const(math.inf), 'f32("inf")'),
        (const(math.nan, "f64"), 'f64("nan")'),
        (const(True), "True"),
        (Call("popcount", (i,), i.dtype), "popcount(i)"),
        (Call("popcount", (i,), x.dtype), 'call(f32, "popcount", i)'),
    ],
)  # fmt: skip
def test_expressions(expr: Expr, text: str) -> None:
    assert expr_text(expr) == text == repr(expr)


def test_variables_of_one_name_are_told_apart() -> None:
    assert expr_text(Var("i") + Var("i") * Var("i")) == "i + i_1 * i_2"


@pytest.mark.parametrize(
    ("hint", "name"),
    [("min", "min_"), ("f32", "f32_"), ("for", "for_"), ("exp", "exp_"), ("i.outer", "i_outer"),
     ("0", "_0"), ("", "v"), ("é", "_"), ("f32x4", "f32x4_")],
)  # fmt: skip
def test_names_are_identifiers_and_no_words(hint: str, name: str) -> None:
    assert expr_text(Var(hint)) == name


def test_deep_expressions_do_not_recurse() -> None:
    deep: Expr = x
    for _ in range(20_000):
        deep = Unary("neg", deep)
    function = Function("f", (S, x), Store(S, (), deep))
    assert function_text(function).count("-") == 20_000


def test_deep_statements_do_not_recurse() -> None:
    body: Store | For = Store(S, (), x)
    for _ in range(3000):
        body = For(Var("i"), const(1), "serial", body)
    assert "for i_2999 in range(1):" in stmt_text(body)


def test_shared_expressions_are_cut_off_in_messages() -> None:
    shared: Expr = x
    for _ in range(60):
        shared = shared + shared
    assert repr(shared).endswith("…")


def test_siblings_share_names_and_nested_ones_do_not() -> None:
    inner = For(Var("i"), const(2), "serial", Store(S, (), x))
    first = For(Var("i"), const(2), "serial", inner)
    second = For(Var("i"), const(3), "parallel", Store(S, (), y))
    assert stmt_text(Seq((first, second))) == (
        "for i in range(2):\n"
        "    for i_1 in range(2):\n"
        "        S[()] = x\n"
        "for i in parallel(3):\n"
        "    S[()] = y\n"
    )


def test_a_scope_that_ends_early_is_shown() -> None:
    early = Let(v := Var("v", "f32"), x, Store(S, (), v))
    last = Let(w := Var("w", "f32"), y, Store(S, (), w))
    assert stmt_text(Seq((early, last))) == (
        "with scope():\n    v = let(x)\n    S[()] = v\nw = let(y)\nS[()] = w\n"
    )


def test_buffers_show_what_is_unusual_about_them() -> None:
    odd = Buffer("B", "f64", (4, n), strides=(n, 1), offset=8, scope="shared", alignment=64)
    local = Buffer("T", "i8", (4,), scope="local")
    body = Alloc((local,), Store(odd, (i, j), const(1.0, "f64")))
    assert function_text(Function("f", (odd, i, j), body)) == (
        'def f(B: f64[4, n, strides(n, 1), offset(8), scope("shared"), align(64)], '
        "i: i64, j: i64):\n"
        '    T = alloc(i8[4], scope="local")\n'
        "    B[i, j] = f64(1.0)\n"
    )


def _function() -> tuple[Function, For, Store]:
    store = Store(A, (i, const(0)), x)
    loop = For(i, n, "serial", store)
    return Function("f", (A, x), Seq((Store(A, (const(0), const(0)), x), loop))), loop, store


def test_a_marked_statement_is_underlined() -> None:
    function, loop, _ = _function()
    assert function_text(function, mark=loop, message="too long") == (
        "def f(A: f32[n, 4], x: f32):\n"
        "    A[0, 0] = x\n"
        "    for i in range(n):\n"
        "    ^^^^^^^^^^^^^^^^^^ too long\n"
        "        A[i, 0] = x\n"
    )


def test_a_listing_shows_the_culprits_and_what_they_stand_in() -> None:
    stores = [Store(S, (), const(float(k))) for k in range(40)]
    function = Function("f", (S,), For(i, const(9), "serial", Seq(tuple(stores))))
    assert listing(function, {stores[20]: "here"}, context=1) == (
        "def f(S: f32[()]):\n"
        "    for i in range(9):\n"
        "        …\n"
        "        S[()] = 19.0\n"
        "        S[()] = 20.0\n"
        "        ^^^^^^^^^^^^ here\n"
        "        S[()] = 21.0\n"
        "        …"
    )


def test_select_of_constants_keeps_their_types() -> None:
    chosen = Select(p, Const(1, "i32"), Const(2, "i32"))
    assert expr_text(chosen) == "i32(1) if p else i32(2)"
