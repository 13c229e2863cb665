"""Elementwise functions made of expressions, compiled and run beside `ir.evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen.c.compiler import find_compiler
from tilewright.ir import (
    Buffer,
    DType,
    Expr,
    For,
    Function,
    Stmt,
    Store,
    Var,
    const,
    evaluate,
    interpret,
    parse_function,
    seq,
    substitute,
)

Array = np.ndarray[Any, Any]
Env = Mapping[Var, Array]
Compare = Callable[..., None]


def elementwise(exprs: Sequence[Expr], inputs: Sequence[Var], lanes: int) -> Function:
    """out_k[i] = exprs[k] over in_v[i] for the variables; `lanes` at a time."""
    n, i, lane = Var("n"), Var("i"), Var("lane")
    at = i if lanes == 1 else i * lanes + lane
    sources = {v: Buffer(f"in_{v.name}", v.dtype, (n,)) for v in inputs}
    outs = [Buffer(f"out_{k}", e.dtype, (n,)) for k, e in enumerate(exprs)]
    values = {v: b[at] for v, b in sources.items()}
    stores = [Store(o, (at,), substitute(e, values)) for o, e in zip(outs, exprs, strict=True)]
    body: Stmt = seq(*stores)
    if lanes > 1:
        body = For(lane, const(lanes), "vectorized", body)
    return Function("f", (*sources.values(), *outs), For(i, n // lanes, "serial", body))


#: Every test of expressions and statements runs through both back ends.
BACKENDS = [
    "llvm",
    pytest.param("c", marks=pytest.mark.skipif(not find_compiler(), reason="no C compiler")),
]


@pytest.fixture(params=BACKENDS)
def backend(request: Any) -> str:
    return request.param


def compiled(exprs: Sequence[Expr], env: Env, lanes: int, **options: Any) -> list[Array]:
    (size,) = {len(a) for a in env.values()}
    assert size % lanes == 0
    # As `evaluate` computes: it knows nothing of what machines do with denormals.
    module = tw.build(elementwise(exprs, list(env), lanes), denormals="keep", **options)
    outs = [np.zeros(size, e.dtype.numpy) for e in exprs]
    module(*env.values(), *outs)
    return outs


def differ(got: Array, wanted: Array, dtype: DType, *, signed_zeros: bool = True) -> Array:
    """Where two arrays have other bits; one NaN is like another."""
    bits = np.dtype(f"u{got.dtype.itemsize}")
    wrong = got.view(bits) != np.ascontiguousarray(wanted).view(bits)
    if not dtype.is_float:
        return wrong
    with np.errstate(invalid="ignore"):
        a, b = got.astype(np.float64), wanted.astype(np.float64)
    wrong &= ~(np.isnan(a) & np.isnan(b))
    return wrong if signed_zeros else wrong & (a != b)


@pytest.fixture
def compare(backend: str) -> Compare:
    """`compare(exprs, env, lanes)`: compiled code gives what `evaluate` says, bit for bit."""

    def check(exprs: Sequence[Expr], env: Env, lanes: int, *, signed_zeros: bool = True) -> None:
        (size,) = {len(a) for a in env.values()}
        for expr, got in zip(exprs, compiled(exprs, env, lanes, target=backend), strict=True):
            wanted = np.broadcast_to(evaluate(expr, env), (size,))
            wrong = differ(got, wanted, expr.dtype, signed_zeros=signed_zeros)
            if wrong.any():
                k = int(np.argmax(wrong))
                given = ", ".join(f"{v.name} = {a[k]!r}" for v, a in env.items())
                pytest.fail(f"{expr} is {got[k]!r}, not {wanted[k]!r}, at {given}; lanes {lanes}")

    return check


@pytest.fixture
def agrees(backend: str) -> Callable[..., tw.Module]:
    """`agrees(text, *arrays)`: compiled, the function does to the arrays what `interpret` does.

    Whole numbers are what arrays should hold: then sums are exact in any order.
    """

    def check(text: str, *args: Any, **options: Any) -> tw.Module:
        function = parse_function(text)
        options = {"target": backend, **options}
        module = tw.build(tw.Schedule(function), **options)
        given, wanted = ([copy(a) for a in args] for _ in range(2))
        module(*given)
        interpret(function, *wanted)
        for param, got, right in zip(function.params, given, wanted, strict=True):
            np.testing.assert_array_equal(got, right, err_msg=param.name)
        return module

    return check


def copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
