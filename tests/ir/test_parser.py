"""Text reads back to the same function; what does not is refused with its place."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tilewright.ir import (
    Alloc,
    Assert,
    Binary,
    Block,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    DType,
    Evaluate,
    Expr,
    For,
    Function,
    If,
    Iter,
    Let,
    Load,
    Ramp,
    Range,
    Region,
    Select,
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
    While,
    call,
    const,
    function_text,
    parse_function,
    same_function,
    structural_hash,
)
from tilewright.support.errors import UserError

EVERYTHING = """\
@named("every.thing")
@attrs(key="value", number=1, ratio=0.5, shape=(1, 2), one=(3,), kind=f16, far=float("inf"))
def function(A: f32[1024, n], B: f32[n, 1024, align(64)], C: f32[1024, n * 4], alpha: f32, m: i64, V: f32[m]):
    T = alloc(f32[16, m], scope="local")
    U = alloc(f64[()])
    for i in range(1024):
        for k in range(n, note={"a.b": [1, None], "c": {"d": True}}):
            with block("C", vi=spatial(1024, i), vk=reduce(n, k), vo=ordered(4, k % 4)):
                where(i * 6 + k < 1000)
                reads(A[vi, vk:vk + 4], B[vk, 0:1024], V[2:6])
                writes(C[vi, vi])
                note(key="value")
                with init():
                    C[vi, vi] = 0.0
                C[vi, vi] = C[vi, vi] + A[vi, vk] * B[vk, vi] * alpha
    for t in thread(32, "threadIdx.x"):
        for v in vectorized(4):
            for u in unrolled(2):
                for w in parallel(i32(7)):
                    pass
    x = let(exp(A[0, 0]))
    with scope():
        y = let(x + 0.1)
        T[0, 0] = y
    if x < 1.0 and x > -1.0:
        pass
    elif x > f32("inf"):
        U[()] = f64(0.5)
    else:
        U[()] = f64("-inf")
    while x < T[0, 0]:
        T[0, 0] = T[0, 0] - 1.0 if x == 3.0 else -1.0
    assert n < 5, ("n is {}, m {}", n, m)
    assert m > 0, "it's \\"quoted\\""
    prefetch(address_of(A[0, 0]))
    A[0, ramp(0, 1, 8)] = broadcast(x, 8)
    store(A[0, ramp(0, 2, 8)], broadcast(x, 8), ramp(0, 1, 8) < broadcast(m, 8))
    V[0] = load(V[1], m > 1)
"""  # noqa: E501


def round_trip(function: Function) -> None:
    text = function_text(function)
    again = parse_function(text)
    assert function_text(again) == text
    assert same_function(function, again), text


def test_everything_reads_back() -> None:
    function = parse_function(EVERYTHING)
    assert function.name == "every.thing"
    assert function.attrs["kind"] is DType.of("f16")
    assert function.attrs["far"] == math.inf
    assert function_text(function) == EVERYTHING
    round_trip(function)


def test_nodes_are_exactly_what_is_written() -> None:
    function = parse_function("def f(A: f32[n], i: i64):\n    A[i + 1] = A[i] * 2.0\n")
    buffer, i = function.params
    assert isinstance(function.body, Store) and isinstance(buffer, Buffer) and isinstance(i, Var)
    assert function.body.indices[0] is i + 1
    assert function.body.value is buffer[i] * 2.0
    assert function.dims == [buffer.shape[0]]


def test_bare_numbers_adapt() -> None:
    function = parse_function("def f(A: f64[4], k: i32):\n    A[k + 1] = 1\n")
    assert isinstance(function.body, Store)
    assert function.body.value is Const(1.0, "f64")
    assert function.body.indices[0].dtype is DType.of("i32")


def test_chains_of_comparisons() -> None:
    function = parse_function("def f(A: i64[4], k: i64):\n    if 0 <= k < 4:\n        A[k] = 1\n")
    k = function.params[1]
    assert isinstance(function.body, If) and isinstance(k, Var)
    assert function.body.condition is Binary("and", Binary("le", const(0), k), k < 4)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-45, 3.4e38, -0.0, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "f8e4m3fn", "f8e5m2"])
def test_floats_keep_their_bits(value: float, dtype: str) -> None:
    constant = Const(value, dtype)
    body = Store(b := Buffer("B", dtype, ()), (), constant)
    again = parse_function(function_text(Function("f", (b,), body))).body
    assert isinstance(again, Store) and again.value is constant


def test_unusual_nans_keep_their_bits() -> None:
    odd = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0123))[0]
    b = Buffer("B", "f64", ())
    again = parse_function(function_text(Function("f", (b,), Store(b, (), Const(odd, "f64"))))).body
    assert isinstance(again, Store) and again.value is Const(odd, "f64")


# ---- random functions ---------------------------------------------------------------------------

INTS = [Var(name) for name in ("i", "j", "i")]
FLOATS = [Var("x", "f32"), Var("exp", "f32")]
BOOLS = [Var("p", "bool")]
WIDE = [Var("d", "f64")]
DIM = Var("n")
BUFFER = Buffer("A", "f32", (DIM, 4))
SCALAR = Buffer("min", "i64", ())


def _binary(ops: str, operands: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.builds(
        lambda op, a, b: Binary(op, a, b), st.sampled_from(ops.split()), operands, operands
    )


INT_OPS = "add sub mul floordiv floormod truncdiv truncmod min max bitand bitor bitxor shl shr"
leaf_ints: st.SearchStrategy[Expr] = st.one_of(
    st.sampled_from([*INTS, DIM]),
    st.integers(-(2**63), 2**63 - 1).map(const),
    st.just(SCALAR[()]),
)
leaf_floats: st.SearchStrategy[Expr] = st.one_of(
    st.sampled_from(FLOATS), st.floats(width=32).map(const)
)


def _grow(children: st.SearchStrategy[tuple[Expr, Expr, Expr]]) -> Any:
    """Each step builds an integer, a float and a condition from smaller ones."""
    ints, floats, bools = (children.map(lambda c, k=k: c[k]) for k in range(3))
    more_ints = st.one_of(
        _binary(INT_OPS, ints),
        ints.map(lambda a: Unary("neg", a)),
        ints.map(lambda a: Unary("bitnot", a)),
        floats.map(lambda a: Cast(DType.of("i64"), a)),
        st.builds(lambda c, a, b: Select(c, a, b), bools, ints, ints),
        ints.map(lambda a: call("popcount", a)),
    )
    more_floats = st.one_of(
        _binary("add sub mul div min max", floats),
        floats.map(lambda a: Unary("neg", a)),
        floats.map(lambda a: call("exp", a)),
        st.builds(lambda a, b: call("pow", a, b), floats, floats),
        ints.map(lambda a: Cast(DType.of("f32"), a)),
        st.builds(lambda a, b: Load(BUFFER, (a, b)), ints, ints),
        st.builds(lambda a, b, c: Load(BUFFER, (a, b), c), ints, ints, bools),
        floats.map(lambda a: Cast(DType.of("f32"), a)),
    )
    more_bools = st.one_of(
        _binary("eq ne lt le gt ge", ints),
        _binary("eq ne lt", floats),
        _binary("and or eq", bools),
        bools.map(lambda a: Unary("not", a)),
        floats.map(lambda a: call("isnan", a)),
    )
    return st.tuples(more_ints, more_floats, more_bools)


expressions = st.recursive(
    st.tuples(leaf_ints, leaf_floats, st.sampled_from([*BOOLS, const(True), const(False)])),
    _grow,
    max_leaves=12,
)


@settings(max_examples=80, deadline=None)
@given(expressions)
@example((call("popcount", const(0)), FLOATS[0], BOOLS[0]))
def test_random_expressions_read_back(exprs: tuple[Expr, Expr, Expr]) -> None:
    index, value, condition = exprs
    store = Store(BUFFER, (index, const(0)), value, condition)
    round_trip(Function("f", (BUFFER, SCALAR, *INTS, *FLOATS, *BOOLS), store))


def _loop(kind: Any, extent: int, body: Stmt) -> Stmt:
    axis = "blockIdx.x" if kind == "thread" else ""
    return For(Var("i"), const(extent), kind, body, axis, {"k": extent} if extent % 2 else {})


def _block(extent: int, init: Stmt | None, body: Stmt) -> Stmt:
    v, w = Var("v"), Var("w")
    region = Region(BUFFER, (Range(v, const(1)), Range(w, const(extent + 2))))
    iters = (Iter(v, const(extent), "spatial"), Iter(w, DIM, "reduce"))
    return Block("b", iters, (DIM - 1, const(3)), body, (region,), (), INTS[0] < 3, init)


def _statements(children: st.SearchStrategy[Stmt]) -> st.SearchStrategy[Stmt]:
    kinds = st.sampled_from(["serial", "parallel", "vectorized", "unrolled", "thread"])
    return st.one_of(
        st.builds(_loop, kinds, st.integers(0, 9), children),
        st.builds(_block, st.integers(1, 4), st.none() | children, children),
        st.builds(lambda c, a, b: If(c, a, b), conditions, children, st.none() | children),
        st.builds(lambda c, a: While(c, a), conditions, children),
        children.map(lambda a: Let(Var("x", "f32"), FLOATS[0], a)),
        children.map(lambda a: Alloc((Buffer("T", "f16", (DIM,), scope="local"),), a)),
        children.map(lambda a: Alloc((Buffer("A", "u8", ()), Buffer("A", "i4", (2,))), a)),
        st.lists(children, max_size=3).map(lambda s: Seq(tuple(s))),
    )


conditions = expressions.map(lambda e: e[2])
leaves: st.SearchStrategy[Stmt] = st.one_of(
    expressions.map(lambda e: Store(BUFFER, (e[0], const(0)), e[1])),
    st.builds(Assert, conditions, st.text(max_size=8)),
    st.builds(lambda e: Evaluate(Call("prefetch", (e[0],), DType.of("i32"))), expressions),
    st.builds(lambda: Store(SCALAR, (), const(1))),
)


@settings(max_examples=80, deadline=None)
@given(st.recursive(leaves, _statements, max_leaves=6))
def test_random_statements_read_back(body: Stmt) -> None:
    params = (BUFFER, SCALAR, *INTS, *FLOATS, *BOOLS)
    round_trip(Function("f", params, body, {"text": "a\nb'\"\\", "list": [1, "x"]}))


def test_vectors_read_back() -> None:
    i, x = Var("i"), Var("x", "f32")
    lanes = Ramp(i, const(2), 4)
    wide = Cast(DType.of("f32"), lanes) + Broadcast(x, 4)
    chosen = Select(lanes < Broadcast(i, 4), wide, Broadcast(const(0.0), 4))
    function = Function("f", (BUFFER, i, x), Store(BUFFER, (lanes, const(0)), chosen))
    round_trip(function)


# ---- equality -----------------------------------------------------------------------------------


def test_names_do_not_count_but_structure_does() -> None:
    text = "def f(A: f32[n], x: f32):\n    for i in range(n):\n        A[i] = x + 1.0\n"
    function = parse_function(text)
    renamed = parse_function(text.replace("A", "Z").replace("i ", "k ").replace("[i]", "[k]"))
    assert same_function(function, renamed)
    for old, new in [("1.0", "2.0"), ("range(n)", "parallel(n)"), ("x + 1.0", "1.0 + x"),
                     ("f32[n]", "f32[n, align(64)]"), ("def f", "def g")]:  # fmt: skip
        assert not same_function(function, parse_function(text.replace(old, new))), new
    assert same_function(function, parse_function(text.replace("def f", "def g")), with_name=False)


def test_which_variable_is_used_counts() -> None:
    text = "def f(A: f32[n, n], i: i64, j: i64):\n    A[i, j] = 1.0\n"
    transposed = text.replace("A[i, j]", "A[j, i]")
    assert not same_function(parse_function(text), parse_function(transposed))


def test_the_hash_is_stable() -> None:
    text = "def f(A: f32[n]):\n    A[0] = exp(A[1])\n"
    assert structural_hash(parse_function(text)) == (
        "4632068ed3f9a753db2d36a842108dafa445d274fcad6bf2e11cffd00a6ec3db"
    )


def test_shared_expressions_are_hashed_once() -> None:
    x: Expr = Var("x", "f32")
    function = Function("f", (x, b := Buffer("B", "f32", ())), Store(b, (), x))  # type: ignore[arg-type]
    for _ in range(200):
        x = x + x
    assert structural_hash(function.with_body(Store(b, (), x)))


# ---- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("A[i] = y", "<text>:2:12: y is not defined here"),
        ("A[i, 0] = x", "A has 1 dimensions but was indexed with 2"),
        ("A[0] = i + x", "cannot combine `i` and `x` by add: one is i64, the other f32"),
        ("A[0] = foo(x)", "unknown intrinsic 'foo'"),
        ("A[0] = exp(x, x)", "exp takes 1 operands, not 2"),
        ("A[0] = x.real", "x.real has no meaning in an expression"),
        ("A[0] = 'text'", "'text' is no number"),
        ("A[0] = [1]", "`[1]` has no meaning in an expression"),
        ("A[0] = x ** 2", "the operator Pow has no meaning here"),
        ("A[0] = A", "A is a buffer of 1 dimensions, not a value"),
        ("y = x", "y is no buffer's element"),
        ("x = let(i)", "x is defined already"),
        ("for x in range(3): pass", "x is defined already"),
        ("for k in 3: pass", "cannot loop over this"),
        ("for k in range(1, 2): pass", "range takes 1 operand, and a note"),
        ("T = alloc(f32)", "T has no shape"),
        ("T = alloc(foo[3])", "foo is no element type"),
        ('T = alloc(f32[3], scope="moon")', "buffer T has no scope 'moon'"),
        ("assert i < 3", "an assertion needs a message"),
        ("return", "`return` has no meaning here"),
        ("with open('x'): pass", "cannot open this"),
        ('with block("b", vi=wild(3, i)): pass', "a block's variable has a kind"),
        ("A[0] = f32('huge')", "is no special number"),
        ("A[0] = ramp(0, 1, 1)", "a vector has two lanes or more, not 1"),
        ("A[0] = = 3", "syntax error"),
        ("A[99999999999999999999] = x", "does not fit i64"),
    ],
)  # fmt: skip
def test_errors_name_the_place(line: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_function(f"def f(A: f32[n], x: f32, i: i64):\n    {line}\n")
    assert message in str(caught.value)
    assert "<text>:2:" in str(caught.value)
    assert "^" in caught.value.listing


def test_the_culprit_is_underlined() -> None:
    with pytest.raises(UserError) as caught:
        parse_function("def f(A: f32[n]):\n    A[0] = A[0] + undefined * 2.0\n")
    assert caught.value.listing == (
        "    A[0] = A[0] + undefined * 2.0\n                  ^^^^^^^^^"
    )


def test_text_that_is_no_function() -> None:
    with pytest.raises(UserError, match="expected one function"):
        parse_function("x = 3\n")
    with pytest.raises(UserError, match="x has no type"):
        parse_function("def f(x): pass\n")
    with pytest.raises(UserError, match="more than plain parameters"):
        parse_function("def f(*x): pass\n")


def test_expressions_too_deep_for_python_are_refused() -> None:
    with pytest.raises(UserError, match=r"too deeply nested|too many nested"):
        parse_function("def f(A: f32[n]):\n    A[0] = " + "-(" * 5000 + "A[0]" + ")" * 5000 + "\n")


def test_nothing_is_executed() -> None:
    with pytest.raises(UserError, match=r"unknown intrinsic '__import__'|cannot be called"):
        parse_function("def f(A: f32[n]):\n    A[0] = __import__('os').getpid()\n")
