"""Compute definitions: what they look like as loops, and what they mean."""

from __future__ import annotations

import gc
import pickle
import sys
from typing import Any

import numpy as np
import pytest

from tests.tensor.definitions import blocks, f32, matmul
from tilewright.ir import (
    Alloc,
    Block,
    Buffer,
    Evaluate,
    For,
    Load,
    Seq,
    Store,
    interpret,
    stmt_text,
    verify,
    walk,
)
from tilewright.support.errors import UserError
from tilewright.tensor import te

# ---- what it looks like -------------------------------------------------------------------------


def test_the_loops_of_a_reduction_with_an_epilogue(golden: Any) -> None:
    n = te.var("n")
    A, B, C = matmul(n, 8, 16)
    D = te.compute((n, 8), lambda i, j: te.maximum(C[i, j], 0.0), name="D")
    golden(str(te.function([A, B], D, name="dense")), "tensor/dense")


def test_the_loops_of_a_scan(golden: Any) -> None:
    m = te.var("m")
    X, state = te.placeholder((m, 4), name="X"), te.placeholder((m, 4), name="state")
    init = te.compute((1, 4), lambda _, i: X[0, i], name="first")
    half = te.compute((m, 4), lambda t, i: state[t - 1, i] * 0.5, name="half")
    update = te.compute((m, 4), lambda t, i: half[t, i] + X[t, i], name="next")
    golden(str(te.function([X], te.scan(init, update, state, name="decay"))), "tensor/scan")


def test_the_loops_of_an_arg_reduction(golden: Any) -> None:
    A, k = te.placeholder((3, 4), name="A"), te.reduce_axis(4, name="k")
    best = te.compute((3,), lambda i: te.argmax(A[i, k], axis=k), name="best")
    golden(str(te.function([A], best)), "tensor/argmax")


def test_axes_are_named_after_the_parameters() -> None:
    A = te.placeholder((2, 3), name="A")
    assert [v.name for v in te.compute((2, 3), lambda row, col: A[row, col]).axes] == ["row", "col"]
    assert [v.name for v in te.compute((2, 3), lambda *i: A[i]).axes] == ["i0", "i1"]
    assert [v.name for v in te.compute((2, 3), lambda r, *i: A[(r, *i)]).axes] == ["r", "i0"]
    assert [v.name for v in te.compute((2, 3), lambda _, j: A[0, j]).axes] == ["i0", "j"]
    assert [v.name for v in te.compute((2, 3), lambda i, j, T=A: T[i, j]).axes] == ["i", "j"]
    named = te.compute((2, 3), lambda *i: A[i], axis_names=["p", "q"])
    assert [v.name for v in named.axes] == ["p", "q"]


def test_a_function_takes_inputs_then_outputs_and_allocates_the_rest() -> None:
    A, B, C = matmul()
    D = te.compute((3, 4), lambda i, j: C[i, j] + 1.0, name="D")
    function = te.function([A, B], [D], name="both")
    assert [p.name for p in function.params] == ["A", "B", "D"]
    assert isinstance(function.body, Alloc)
    assert [b.name for b in function.body.buffers] == ["C"]
    assert function.name == "both"


def test_functions_share_nothing_but_dimensions() -> None:
    A, B, C = matmul(te.var("n"))
    one, two = te.function([A, B], C), te.function([A, B], C)
    assert not set(one.params) & set(two.params)
    assert all(type(p) is Buffer for p in one.params)
    own = [{*(i.var for b in blocks(f) for i in b.iters)} for f in (one, two)]
    assert not own[0] & own[1]
    assert one.dims == two.dims


def test_a_reduce_axis_used_twice_gives_two_iterators() -> None:
    A, k = te.placeholder((4,), name="A"), te.reduce_axis(4)
    total = te.compute((), lambda: te.sum(A[k], axis=k), name="total")
    most = te.compute((), lambda: te.max(A[k], axis=k), name="most")
    first, second = blocks(te.function([A], [total, most]))
    assert first.iters[0].var is not second.iters[0].var


def test_block_names_are_unique() -> None:
    A = te.placeholder((2,), name="A")
    B = te.compute((2,), lambda i: A[i] + 1.0, name="x")
    C = te.compute((2,), lambda i: B[i] * 2.0, name="x")
    D = te.compute((2,), lambda i: C[i] * B[i], name="x")
    assert [b.name for b in blocks(te.function([A], D))] == ["x", "x_1", "x_2"]


def test_attributes_become_annotations() -> None:
    A = te.placeholder((2,))
    B = te.compute((2,), lambda i: A[i], attrs={"layout": "dense"})
    assert blocks(te.function([A], B))[0].annotations == {"layout": "dense"}


def test_loops_and_blocks_carry_the_line_of_the_definition() -> None:
    A = te.placeholder((2,))
    line = sys._getframe().f_lineno + 1
    B = te.compute((2,), lambda i: A[i])
    spans = [s.span for s in walk(te.function([A], B).body) if isinstance(s, For | Block | Store)]
    assert len(spans) == 3
    assert all(span is not None and span.line == line for span in spans)
    assert all(span is not None and span.file == __file__ for span in spans)


def test_a_tensor_says_what_it_is() -> None:
    A, _, C = matmul(te.var("n"))
    assert repr(A) == "Tensor(A: f32[n, 5], te.placeholder(A))"
    assert repr(C) == "Tensor(C: f32[n, 4], te.compute(C, reads A, B))"
    assert (C.name, C.ndim, C.dtype.name, len(C.axes)) == ("C", 2, "float32", 2)
    load = C[0, 1]
    assert isinstance(load, Load)
    assert load.buffer is C.buffer
    assert C == C and A != C
    assert A in [C, A]


# ---- what it means ------------------------------------------------------------------------------


def test_matmul(check: Any, rng: Any) -> None:
    a, b = f32(rng, 3, 5), f32(rng, 5, 4)
    for sizes in ((), (te.var("m"), te.var("n"), te.var("k"))):
        *inputs, C = matmul(*sizes)
        check(inputs, [a, b], C, a @ b)


def test_a_tensor_without_dimensions(check: Any, rng: Any) -> None:
    x = f32(rng, 5)
    X, k = te.placeholder((5,), name="X"), te.reduce_axis(5)
    total = te.compute((), lambda: te.sum(X[k], axis=k), name="total")
    share = te.compute((5,), lambda i: X[i] / total + total * 2.0 - (1.0 - total), name="share")
    check([X], [x], [total, share], x.sum(), x / x.sum() + 2 * x.sum() - (1 - x.sum()))
    three = te.compute((), lambda: total > 0.0)
    check([X], [x], three, x.sum() > 0)


def test_numbers_are_elements(check: Any) -> None:
    for value, dtype in ((1, "int64"), (2.5, "float32"), (True, "bool")):
        T = te.compute((3,), lambda i, value=value: value)
        assert T.dtype.name == dtype
        check([], [], T, np.full(3, value, dtype))


def test_several_outputs(check: Any, rng: Any) -> None:
    x = f32(rng, 4)
    X = te.placeholder((4,), name="X")
    low, high = te.compute((4,), lambda i: (X[i] - 1.0, X[i] + 1.0), name="band")
    assert (low.name, high.name) == ("band_0", "band_1")
    check([X], [x], [low, high], x - 1, x + 1)
    check([X], [x], high, x + 1)
    (single,) = te.compute((4,), lambda i: (X[i],))
    check([X], [x], single, x)


def test_padding_is_lazy(check: Any, rng: Any) -> None:
    x, n = f32(rng, 5), te.var("n")
    A = te.placeholder((n,), name="A")
    P = te.compute(
        (n + 2,), lambda i: te.if_then_else(te.all_of(i >= 1, i < n + 1), A[i - 1], 0.0), name="P"
    )
    check([A], [x], P, np.pad(x, 1))


def test_mathematics(check: Any, rng: Any) -> None:
    x = np.abs(f32(rng, 7)) * 0.9 % 1
    X = te.placeholder((7,))
    for name in "exp log sqrt tanh sin atan floor ceil abs exp2 log1p asinh isnan".split():
        Y = te.compute((7,), lambda i, name=name: getattr(te, name)(X[i]))
        reference = {"asinh": np.arcsinh, "atan": np.arctan}.get(name) or getattr(np, name)
        check([X], [x], Y, reference(x))
    i = np.arange(7)
    cases = [
        (lambda e, i: te.pow(e, 2.0), x**2),
        (lambda e, i: te.min(e, 0.5) + te.max(0.5, e), np.minimum(x, 0.5) + np.maximum(x, 0.5)),
        (lambda e, i: te.sigmoid(e), 1 / (1 + np.exp(-x))),
        (lambda e, i: te.clip(e, 0.2, 0.4), np.clip(x, 0.2, 0.4)),
        (lambda e, i: te.cast(i, "float32") + te.fma(e, 2.0, 1.0), (i + x * 2 + 1).astype("f4")),
        (lambda e, i: te.truncmod(i - 3, 2), np.fmod(i - 3, 2)),
        (lambda e, i: te.floormod(i - 3, 2), (i - 3) % 2),
        (lambda e, i: te.logical_not(e > 0.5), ~(x > 0.5)),
    ]
    for formula, expected in cases:
        Z = te.compute((7,), lambda i, formula=formula: formula(X[i], i))
        check([X], [x], Z, expected)


def test_a_reduce_axis_is_an_index_like_any_other(check: Any) -> None:
    k = te.reduce_axis((2, 6), name="k")
    T = te.compute((3,), lambda i: te.sum(2 * k - k // 2 + (i - k) % 3, axis=k, where=k != 4))
    ks, i = np.array([2, 3, 5]), np.arange(3)[:, None]
    check([], [], T, (2 * ks - ks // 2 + (i - ks) % 3).sum(axis=1))
    U = te.compute((3,), lambda i: te.any(i == k, axis=k))
    check([], [], U, np.array([False, False, True]))


def test_scalars_are_inputs() -> None:
    X, scale = te.placeholder((3,)), te.var("scale", "float32")
    Y = te.compute((3,), lambda i: X[i] * scale)
    function = te.function([X, scale], Y)
    x, y = np.arange(3, dtype="float32"), np.zeros(3, "float32")
    interpret(function, x, 2.5, y)
    np.testing.assert_array_equal(y, x * 2.5)


def test_a_defined_tensor_can_be_given_instead(check: Any, rng: Any) -> None:
    A, B, C = matmul()
    D = te.compute((3, 4), lambda i, j: C[i, j] + 1.0, name="D")
    c = f32(rng, 3, 4)
    check([C], [c], D, c + 1)
    check([C, A, B], [c, f32(rng, 3, 5), f32(rng, 5, 4)], D, c + 1)


# ---- extern -------------------------------------------------------------------------------------


def test_a_c_function_is_called_with_addresses() -> None:
    n = te.var("n")
    A = te.placeholder((n, 4), name="A")
    B = te.extern(
        (n, 4), [A], lambda ins, outs: te.call_extern("fill", *ins, *outs, n), name="filled"
    )
    C = te.compute((n, 4), lambda i, j: B[i, j] + 1.0, name="C")
    function = te.function([A], C)
    verify(function)
    block = blocks(function)[0]
    assert isinstance(block.body, Evaluate)
    assert stmt_text(block).splitlines() == [
        'with block("filled"):',
        "    reads(A[0:n, 0:4])",
        "    writes(filled[0:n, 0:4])",
        "    extern.fill(address_of(A[0, 0]), address_of(filled[0, 0]), n)",
    ]


def test_a_body_of_statements(check: Any, rng: Any) -> None:
    x = f32(rng, 3)
    A = te.placeholder((3,), name="A")

    def swap_ends(ins: Any, outs: Any) -> Seq:
        (a,), (b, c) = ins, outs
        ends = [Store(b, (te.const(n),), a[2 - n]) for n in range(3)]
        return Seq((*ends, Store(c, (), a[0])))

    B, first = te.extern([(3,), ()], [A], swap_ends, name="swapped")
    check([A], [x], [B, first], x[::-1], x[0])
    check([A], [x], [B, first], x[::-1], x[0])


def test_extern_refuses_what_it_cannot_call() -> None:
    A = te.placeholder((3,), name="A")
    with pytest.raises(UserError, match="'a b' cannot be the name of a C function"):
        te.call_extern("a b")
    te.call_extern("answers_i32")
    with pytest.raises(UserError, match="it was called for i32 before"):
        te.call_extern("answers_i32", dtype="float64")
    with pytest.raises(
        UserError, match=r"te.extern extern.* has no body: its function returned None"
    ):
        te.function([A], te.extern((3,), [A], lambda i, o: None))
    with pytest.raises(UserError, match="no element type"):
        te.extern((3,), [], lambda i, o: te.call_extern("f"))
    with pytest.raises(UserError, match="2 shapes but 1 types"):
        te.extern([(3,), (3,)], [A], lambda i, o: te.call_extern("f"), dtype=["int8"])
    with pytest.raises(UserError, match="which is no tensor"):
        te.extern((3,), [3], lambda i, o: te.call_extern("f"))  # type: ignore[list-item]


# ---- size ---------------------------------------------------------------------------------------


def test_a_chain_of_ten_thousand() -> None:
    first = last = te.placeholder((1,), name="A")
    for _ in range(10_000):
        last = te.compute((1,), lambda i, before=last: before[i] + 1.0)
    function = te.function([first], last)
    assert len(blocks(function)) == 10_000
    del first, last
    gc.collect()


def test_functions_hold_on_to_no_definitions() -> None:
    A, B, C = matmul()
    data = pickle.dumps(te.function([A, B], C).params)
    assert b"te.tensor" not in data
    assert sys.getsizeof(data) < 2000
