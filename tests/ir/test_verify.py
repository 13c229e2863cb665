"""Each way in which a function can be ill formed, by its message."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.ir import (
    MAX_NESTING,
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
    Seq,
    Stmt,
    Store,
    Unary,
    Var,
    While,
    const,
    parse_function,
    verify,
)
from tilewright.support.errors import UserError

n = Var("n")
x = Var("x", "f32")
A = Buffer("A", "f32", (n, 4))
B = Buffer("B", "f32", (n,))
Q = Buffer("Q", "f8e4m3fn", (n,))
zero = const(0)


def function(body: Stmt, *more: Any) -> Function:
    return Function("f", (A, B, Q, x, *more), body)


def store(value: Expr = x, *indices: Expr) -> Store:
    return Store(B, indices or (zero,), value)


def loop(body: Stmt, var: Var | None = None, **fields: Any) -> For:
    return For(
        Var("i") if var is None else var,
        fields.pop("extent", n),
        fields.pop("kind", "serial"),
        body,
        **fields,
    )


def block(**fields: Any) -> Block:
    v = Var("v")
    given: dict[str, Any] = {
        "name": "b",
        "iters": (Iter(v, n, "spatial"),),
        "bindings": (zero,),
        "body": Store(B, (v,), x),
        "writes": (Region(B, (Range(v, const(1)),)),),
    } | fields
    return Block(**given)


def _outside_loop() -> Stmt:
    i = Var("i")
    return Seq((loop(store(), i), store(x, i)))


def _twice_bound() -> Stmt:
    i = Var("i")
    return loop(loop(store(), i), i)


def _same_statement_twice() -> Stmt:
    s = store()
    return Seq((s, s))


def _loop_in_block() -> Stmt:
    i = Var("i")
    inside = block(body=Store(B, (i,), x), writes=(Region(B, (Range(zero, n),)),))
    return loop(inside, i)


def _freed_buffer() -> Stmt:
    t = Buffer("T", "f32", (4,))
    return Seq((Alloc((t,), store()), store(t[zero])))


def _init_that_reduces() -> Stmt:
    k = Var("k")
    iters = (Iter(k, n, "reduce"),)
    writes = (Region(B, (Range(zero, n),)),)
    return block(iters=iters, init=Store(B, (k,), x), body=Store(B, (zero,), x), writes=writes)


narrow = Var("narrow", "i32")
lanes = Ramp(zero, const(1), 4)
eight = Load(Q, (zero,))

CASES: list[tuple[Stmt, str]] = [
    (store(Var("y", "f32")), "y in `y` is not defined here"),
    (_outside_loop(), "i in `i` is not defined here"),
    (_twice_bound(), "i is defined here for the second time"),
    (_same_statement_twice(), "the same statement object stands twice"),
    (_loop_in_block(), "i in `i` is a loop outside the block; bind it to a variable of the block"),
    (_freed_buffer(), "the buffer T is not defined here"),
    (Store(Buffer("Z", "f32", ()), (), x), "the buffer Z is not defined here"),
    (store(x, zero, zero), "B has 1 dimension but 2 indices"),
    (store(Load(A, (zero,))), "A has 2 dimensions but 1 indices"),
    (store(x, x), "the index `x` of B is f32, not an integer"),
    (store(const(1)), "the value stored to B, `1` is i64, not f32"),
    (store(x, lanes), "the value stored to B, `x` is f32, not f32x4"),
    (Store(B, (lanes,), Broadcast(x, 4), const(True)), "the mask `True` of B is bool, not boolx4"),
    (Store(A, (lanes, Ramp(zero, zero, 8)), Broadcast(x, 8)), "has 4 lanes, another 8"),
    (If(zero, store()), "the condition `0` is i64, not bool"),
    (While(x, store()), "the condition `x` is f32, not bool"),
    (Assert(lanes < 3, "m"), "is boolx4, not bool"),
    (Assert(zero < 1, "{} {}", (zero,)), "the message has 2 places, 1 values"),
    (Assert(zero < 1, "{}", (x,)), "the value in the message `x` is f32, not an integer"),
    (Let(Var("v", "f64"), x, store()), "the value of v, `x` is f32, not f64"),
    (Evaluate(x), "`x` is no call of an intrinsic"),
    (Evaluate(Call("magic", (), x.dtype)), "magic is no known intrinsic"),
    (Evaluate(Call("exp", (x, x), x.dtype)), "exp takes 1 operands, not 2"),
    (Evaluate(Call("address_of", (x,), x.dtype)), "address_of takes an element of a buffer"),
    (store(Cast(x.dtype, Binary("add", eight, eight))), "add computes with `Q[0]`"),
    (store(Cast(x.dtype, Unary("neg", eight))), "such types are only stored and converted"),
    (store(Cast(x.dtype, Call("exp", (eight,), eight.dtype))), "exp computes with `Q[0]`"),
    (store(x, Ramp(lanes, lanes, 4)), "needs a scalar base and two lanes or more"),
    (store(x, Ramp(zero, Const(1, "i32"), 4)), "needs a base and a stride of one integer type"),
    (store(Broadcast(x, 1)), "needs a scalar and two lanes or more"),
    (loop(store(), extent=x), "the extent `x` is f32, not an integer"),
    (loop(store(), narrow), "narrow is i32, its extent i64"),
    (loop(store(), kind="wild"), "there are no wild loops"),
    (loop(store(), kind="thread"), "thread loops, and only they, name an axis"),
    (loop(store(), axis="x"), "thread loops, and only they, name an axis"),
    (block(bindings=()), "block b has 1 variables but 0 bindings"),
    (block(bindings=(x,)), "the value of v, `x` is f32, not i64"),
    (block(iters=(Iter(Var("w"), n, "odd"),)), "there are no odd variables of blocks"),  # type: ignore[arg-type]
    (block(predicate=zero), "the predicate `0` is i64, not bool"),
    (block(writes=()), "block b writes B but does not declare it"),
    (block(body=store(A[zero, zero])), "block b reads A but does not declare it"),
    (block(body=store(B[zero])), "block b reads B but does not declare it"),
    (block(body=store(), writes=(Region(B, (Range(const(1), const(3)),)),)),
     "block b writes B outside the region that it declares"),
    (block(reads=(Region(A, (Range(zero, n),)),)), "the region of A has 1 ranges"),
    (block(reads=(Region(B, (Range(x, n),)),)), "the start of a region of B, `x` is f32"),
    (block(reads=(Region(Buffer("Z", "f32", ()), ()),)), "the buffer Z is not defined here"),
    (Seq((block(), block())), "there are two blocks called b"),
    (_init_that_reduces(), "the init of block b depends on k, which reduces"),
    (Alloc((Buffer("T", "f32", (Var("m"),)),), store()), "m in `m` is not defined here"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message"), CASES, ids=[m for _, m in CASES])
def test_refusals(body: Stmt, message: str) -> None:
    with pytest.raises(UserError) as caught:
        verify(function(body))
    assert message in str(caught.value)
    assert "function f is not well formed" in str(caught.value)
    assert "^" in caught.value.listing


def test_parameters() -> None:
    with pytest.raises(UserError, match="the parameter x stands twice"):
        verify(function(store(), x))
    odd = Buffer("O", "f32", (Var("m", "i32"),))
    with pytest.raises(UserError, match="the symbolic dimension m is i32"):
        verify(function(store(), odd))


def test_all_faults_are_shown_at_once() -> None:
    with pytest.raises(UserError, match=r"and 1 more") as caught:
        verify(function(Seq((store(const(1)), If(zero, store())))))
    assert caught.value.listing.count("^ ") == 2


def test_deep_nests_are_refused_without_recursion() -> None:
    def nested(levels: int) -> Stmt:
        body: Stmt = store()
        for _ in range(levels - 1):
            body = loop(body)
        return body

    verify(function(nested(MAX_NESTING)))
    for levels in (MAX_NESTING + 1, 5000):
        with pytest.raises(UserError, match="nests statements too deeply"):
            verify(function(nested(levels)))


def test_deep_and_shared_expressions_are_fine() -> None:
    deep: Expr = x
    for _ in range(3000):
        deep = deep + deep
    verify(function(store(deep)))


def test_what_is_well_formed_passes() -> None:
    verify(
        parse_function("""
def f(A: f32[m, k], B: f32[k], Q: f8e4m3fn[k], x: f32):
    T = alloc(f32[k])
    for i in range(m):
        with block("outer", vi=spatial(m, i)):
            reads(A[vi, 0:k])
            writes(B[vi])
            for j in range(k):
                with block("inner", vj=reduce(k, j)):
                    where(j < 3)
                    reads(A[vi, vj])
                    writes(B[vi])
                    with init():
                        B[vi] = 0.0
                    B[vi] = B[vi] + A[vi, vj]
    for i in range(k):
        Q[i] = f8e4m3fn(x) if i > 3 else Q[0]
        T[i] = f32(Q[i])
    prefetch(address_of(T[0]))
""")
    )


def test_names_of_types_in_messages_are_short() -> None:
    assert str(DType.of("float8_e4m3fn")) == "f8e4m3fn"
