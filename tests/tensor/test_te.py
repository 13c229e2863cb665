"""Compute definitions: what they mean, what they look like as loops, what they refuse."""

from __future__ import annotations

import gc
import pickle
import sys
from typing import Any

import numpy as np
import pytest

from tilewright.ir import (
    Alloc,
    Block,
    Buffer,
    Evaluate,
    For,
    Function,
    Load,
    Seq,
    Store,
    evaluate,
    interpret,
    stmt_text,
    verify,
    walk,
)
from tilewright.support.errors import UserError
from tilewright.tensor import te

Array = np.ndarray[Any, Any]


def blocks(function: Function) -> list[Block]:
    return [s for s in walk(function.body) if isinstance(s, Block)]


def f32(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype("float32")


def matmul(m: Any = 3, n: Any = 4, depth: Any = 5) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    A, B = te.placeholder((m, depth), name="A"), te.placeholder((depth, n), name="B")
    k = te.reduce_axis(depth, name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C


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


def test_reductions_against_numpy(check: Any, rng: Any) -> None:
    x = f32(rng, 4, 5)
    X, k = te.placeholder((4, 5), name="X"), te.reduce_axis(5)
    for name in ("sum", "prod", "min", "max"):
        reduce = getattr(te, name)
        T = te.compute((4,), lambda i, reduce=reduce: reduce(X[i, k], axis=k))
        check([X], [x], T, getattr(np, name)(x, axis=1))
    some = te.compute((4,), lambda i: te.any(X[i, k] > 1.0, axis=k))
    every = te.compute((4,), lambda i: te.all(X[i, k] > -1.0, axis=k))
    check([X], [x], [some, every], (x > 1).any(axis=1), (x > -1).all(axis=1))


def test_reductions_over_several_axes_where_something_holds(check: Any, rng: Any) -> None:
    x = f32(rng, 4, 5)
    X, r, c = te.placeholder((4, 5)), te.reduce_axis(4, "r"), te.reduce_axis((1, 4), "c")
    total = te.compute((), lambda: te.sum(X[r, c], axis=[r, c], where=X[r, c] > 0.0))
    inner = x[:, 1:4]
    check([X], [x], total, np.where(inner > 0, inner, 0).sum())
    most = te.compute((), lambda: te.max(X[r, c], axis=[r, c], where=r > c))
    rows, columns = np.mgrid[0:4, 1:4]
    check([X], [x], most, inner[rows > columns].max())


def test_identities_are_infinite_for_floats_and_the_limits_for_integers(check: Any) -> None:
    for dtype, low, high in (
        ("float32", -np.inf, np.inf),
        ("float16", -np.inf, np.inf),
        ("int8", -128, 127),
        ("uint8", 0, 255),
        ("bool", False, True),
    ):
        X, k = te.placeholder((2,), dtype), te.reduce_axis(2)
        most = te.compute((), lambda X=X, k=k: te.max(X[k], axis=k, where=k > 5))
        least = te.compute((), lambda X=X, k=k: te.min(X[k], axis=k, where=k > 5))
        x = np.ones(2, dtype)
        check([X], [x], [most, least], np.array(low, dtype), np.array(high, dtype))


def test_an_empty_reduction_gives_its_identity(check: Any) -> None:
    X, k = te.placeholder((3, 0)), te.reduce_axis(0)
    total = te.compute((3,), lambda i: te.sum(X[i, k], axis=k))
    check([X], [np.zeros((3, 0), "float32")], total, np.zeros(3, "float32"))


def test_nan_wins_min_and_max(check: Any) -> None:
    x = np.array([1, np.nan, 3], "float32")
    X, k = te.placeholder((3,)), te.reduce_axis(3)
    results = [
        te.compute((), lambda: te.min(X[k], axis=k)),
        te.compute((), lambda: te.max(X[k], axis=k)),
    ]
    check([X], [x], results, np.float32(np.nan), np.float32(np.nan))


@pytest.mark.parametrize("name", ["argmin", "argmax"])
@pytest.mark.parametrize(
    "x",
    [
        [3, 1, 3, 1],
        [1, np.nan, 5, np.nan],
        [-np.inf, -np.inf, -np.inf, -np.inf],
        [np.inf, np.inf, np.inf, np.inf],
    ],
)
def test_arg_reductions_take_the_first_and_nan(check: Any, name: str, x: list[float]) -> None:
    values = np.array(x, "float32")
    X, k = te.placeholder((4,)), te.reduce_axis(4)
    index, value = te.compute((), lambda: getattr(te, name)(X[k], axis=k, with_value=True))
    at = getattr(np, name)(values)
    check([X], [values], [index, value], at, values[at])
    alone = te.compute((), lambda: getattr(te, name)(X[k], axis=k))
    check([X], [values], alone, at)


def test_an_arg_reduction_does_not_depend_on_the_order() -> None:
    """Schedules reorder reductions: combining from the right gives the same pair."""
    X, k = te.placeholder((4,)), te.reduce_axis(4)
    reduction = te.argmax(X[k], axis=k)
    pairs = [(te.const(n), te.const(v)) for n, v in enumerate([2.0, 7.0, 7.0, float("nan")])]
    for a in pairs[:3]:
        for b in pairs[:3]:
            forward = [evaluate(e, {}) for e in reduction.combine(a, b)]
            assert forward == [evaluate(e, {}) for e in reduction.combine(b, a)]
    assert int(evaluate(reduction.combine(pairs[3], pairs[1])[0], {})) == 3
    assert int(evaluate(reduction.combine(pairs[1], pairs[3])[0], {})) == 3


def test_arg_reductions_over_several_axes_and_by_an_index(check: Any, rng: Any) -> None:
    x = f32(rng, 3, 4)
    X, r, c = te.placeholder((3, 4)), te.reduce_axis(3, "r"), te.reduce_axis(4, "c")
    flat = te.compute((), lambda: te.argmin(X[r, c], axis=[r, c]))
    check([X], [x], flat, np.argmin(x))
    row = te.compute((), lambda: te.argmin(X[r, c], axis=[r, c], index=r.astype("int32")))
    check([X], [x], row, np.int32(np.argmin(x) // 4))


def test_a_reducer_of_ones_own(check: Any, rng: Any) -> None:
    x = f32(rng, 6)
    X, k = te.placeholder((6,)), te.reduce_axis(6)
    norm = te.comm_reducer(lambda a, b: a + te.abs(b), 0, name="norm")
    check([X], [x], te.compute((), lambda: norm(X[k], axis=k)), np.abs(x).sum())


def test_a_reducer_of_several_values_is_simultaneous(check: Any, rng: Any) -> None:
    """Complex products: each new part needs both old ones."""
    re, im = f32(rng, 5), f32(rng, 5)
    R, J, k = te.placeholder((5,), name="R"), te.placeholder((5,), name="J"), te.reduce_axis(5)
    times = te.comm_reducer(
        lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]),
        lambda d, _: (1, 0),
        name="times",
    )
    x, y = te.compute((), lambda: times((R[k], J[k]), axis=k), name="product")
    expected = np.prod(re + 1j * im)
    check([R, J], [re, im], [x, y], np.float32(expected.real), np.float32(expected.imag))


def test_several_reductions_in_one_pass(check: Any, rng: Any) -> None:
    x = f32(rng, 3, 5)
    X, k = te.placeholder((3, 5)), te.reduce_axis(5)
    total, most = te.compute((3,), lambda i: (te.sum(X[i, k], k), te.max(X[i, k], axis=k)))
    assert len(blocks(te.function([X], [total, most]))) == 1
    check([X], [x], [total, most], x.sum(axis=1), x.max(axis=1))


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


# ---- scans --------------------------------------------------------------------------------------


def test_a_running_sum(check: Any, rng: Any) -> None:
    x, m, n = f32(rng, 6, 3), te.var("m"), te.var("n")
    X, state = te.placeholder((m, n), name="X"), te.placeholder((m, n), name="state")
    init = te.compute((1, n), lambda _, i: X[0, i])
    update = te.compute((m, n), lambda t, i: state[t - 1, i] + X[t, i])
    total = te.scan(init, update, state, inputs=[X])
    check([X], [x], total, np.cumsum(x, axis=0))
    kinds = [[i.kind for i in b.iters] for b in blocks(te.function([X], total))]
    assert kinds[-1] == ["ordered", "spatial"]


def test_a_scan_looks_back_as_far_as_it_is_started(check: Any) -> None:
    state = te.placeholder((9,), "int64")
    init = te.compute((2,), lambda t: t)
    update = te.compute((9,), lambda t: state[t - 1] + state[t - 2])
    check([], [], te.scan(init, update, state), np.array([0, 1, 1, 2, 3, 5, 8, 13, 21]))


def test_several_states_and_steps_in_between(check: Any, rng: Any) -> None:
    """A rotation by a matrix: two states that need each other, through a reduction."""
    a, steps = f32(rng, 2, 2), 5
    A = te.placeholder((2, 2), name="A")
    x, y = te.placeholder((steps,), name="x"), te.placeholder((steps,), name="y")
    one = te.compute((1,), lambda _: 1.0)
    pair = te.compute((steps, 2), lambda t, i: te.if_then_else(i == 0, x[t - 1], y[t - 1]))
    k = te.reduce_axis(2)
    turned = te.compute((steps, 2), lambda t, i: te.sum(A[i, k] * pair[t, k], axis=k))
    first, second = te.compute((steps,), lambda t: (turned[t, 0], turned[t, 1]))
    xs, ys = te.scan([one, one], [first, second], [x, y])
    expected = [np.ones(2, "float32")]
    for _ in range(steps - 1):
        expected.append(a @ expected[-1])
    check([A], [a], [xs, ys], *np.array(expected).T)


def test_scans_refuse_what_is_not_known_yet() -> None:
    X, state = te.placeholder((6,), name="X"), te.placeholder((6,), name="state")
    init = te.compute((1,), lambda t: X[t])
    now = te.compute((6,), lambda t: state[t] + X[t], name="now")
    with pytest.raises(
        UserError, match=r"te.compute now.* reads `state\[t\]`: that step of te.scan"
    ):
        te.scan(init, now, state)
    far = te.compute((6,), lambda t: state[t - 2])
    with pytest.raises(UserError, match=r"that is 2 steps back, but te.scan scan starts with 1"):
        te.scan(init, far, state)
    half = te.compute((6,), lambda t: state[t - 1] * 0.5)
    late = te.compute((6,), lambda t: half[t - 1])
    with pytest.raises(UserError, match="only states are kept"):
        te.scan(init, late, state)


def test_scans_refuse_states_that_do_not_fit() -> None:
    X, state = te.placeholder((6,), name="X"), te.placeholder((6,), name="state")
    init = te.compute((1,), lambda t: X[t])
    update = te.compute((6,), lambda t: state[t - 1] + X[t])
    with pytest.raises(UserError, match="has 1 inits, 1 updates, 2 states"):
        te.scan(init, update, [state, X])
    with pytest.raises(UserError, match="state compute, which is no placeholder"):
        te.scan(init, update, update)
    with pytest.raises(UserError, match="of different shapes"):
        te.scan(init, te.compute((5,), lambda t: state[t]), state)
    with pytest.raises(UserError, match="mixes types for the state state"):
        te.scan(te.compute((1,), lambda t: t), update, state)
    with pytest.raises(UserError, match="reads X, which is not among its inputs"):
        te.scan(te.compute((1,), lambda t: 0.0), update, state, inputs=[])
    short = te.compute((3,), lambda i: state[i])
    with pytest.raises(UserError, match="its first dimension is not the 6 steps"):
        te.scan(init, te.compute((6,), lambda t: short[0]), state)


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


# ---- what it refuses ----------------------------------------------------------------------------


def test_wrong_indices() -> None:
    A = te.placeholder((2, 3), name="A")
    with pytest.raises(UserError, match=r"tensor A .* with 1 indices: its rank is 2: f32\[2, 3\]"):
        A[0]
    with pytest.raises(UserError, match=r"tensor A cannot be indexed by `0.5`: it is f32"):
        A[0, 0.5]


def test_operators_on_whole_tensors() -> None:
    A = te.placeholder((2, 3), name="A")
    for use in (
        lambda: A + 1,
        lambda: 1 - A,
        lambda: A * A,
        lambda: A > 0,
        lambda: te.exp(A),
        lambda: A == 0,
        lambda: bool(A),
        lambda: te.compute((2,), lambda i: A),
    ):
        with pytest.raises(UserError, match="tensor A cannot be used as a number"):
            use()
    with pytest.raises(UserError, match="cannot be iterated over"):
        list(A)


def test_reductions_inside_expressions() -> None:
    A, k = te.placeholder((2, 3), name="A"), te.reduce_axis(3, name="k")
    for use in (
        lambda i: te.sum(A[i, k], axis=k) + 1.0,
        lambda i: A[i, 0] * te.sum(A[i, k], axis=k),
        lambda i: te.exp(te.max(A[i, k], axis=k)),
        lambda i: te.if_then_else(i > 0, te.sum(A[i, k], axis=k), 0.0),
        lambda i: te.sum(te.sum(A[i, k], axis=k), axis=k),
        lambda i: A[te.argmax(A[i, k], axis=k), 0],
    ):
        with pytest.raises(UserError, match=r"remedy: give it a te.compute of its own"):
            te.compute((2,), use)


def test_reductions_of_the_wrong_type() -> None:
    A, k = te.placeholder((3,), name="A"), te.reduce_axis(3, name="k")
    with pytest.raises(UserError, match=r"te.any cannot reduce .* it is f32, not bool"):
        te.any(A[k], axis=k)
    with pytest.raises(UserError, match=r"te.sum cannot reduce .* it is bool"):
        te.sum(A[k] > 0.0, axis=k)
    small = te.placeholder((3,), "float8_e5m2", name="small")
    with pytest.raises(UserError, match="f8e5m2 is only for storage"):
        te.sum(small[k], axis=k)
    with pytest.raises(UserError, match="gives i64 for values of f32"):
        te.comm_reducer(lambda a, b: a.astype("int64"), 0, name="bad")(A[k], axis=k)
    with pytest.raises(UserError, match="has 1 identities for 2 values"):
        te.comm_reducer(lambda a, b: a, 0)((A[k], A[k]), axis=k)
    with pytest.raises(UserError, match="does not combine 2 values"):
        te.comm_reducer(lambda a, b: a[0], (0, 0))((A[k], A[k]), axis=k)


def test_reductions_over_no_axis() -> None:
    A, k = te.placeholder((3,), name="A"), te.reduce_axis(3, name="k")
    for axis in (None, 0, [], te.var("n")):
        with pytest.raises(UserError, match=r"te.sum cannot reduce over .*\n.*te.reduce_axis"):
            te.sum(A[k], axis=axis)
    with pytest.raises(UserError, match="names an axis twice"):
        te.sum(A[k], axis=[k, k])
    with pytest.raises(UserError, match=r"te.max needs either two values or an axis"):
        te.max(A[k])
    with pytest.raises(UserError, match=r"te.max needs either two values or an axis"):
        te.max(A[k], A[k], axis=k)
    with pytest.raises(UserError, match="takes no `where`"):
        te.min(A[k], 0.0, where=k > 1)
    with pytest.raises(UserError, match="reduce axis k has the negative extent -2"):
        te.reduce_axis((5, 3))


def test_mixed_and_missing_results() -> None:
    A = te.placeholder((3,), name="A")
    k, r = te.reduce_axis(3, name="k"), te.reduce_axis(3, name="r")
    with pytest.raises(UserError, match="reductions together with other values"):
        te.compute((), lambda: (te.sum(A[k], axis=k), 0.0))
    with pytest.raises(UserError, match="reductions over different axes: k; r"):
        te.compute((), lambda: (te.sum(A[k], axis=k), te.sum(A[r], axis=r)))
    with pytest.raises(UserError, match=r"te.compute gone has no value"):
        te.compute((3,), lambda i: None, name="gone")
    with pytest.raises(UserError, match="is no expression"):
        te.compute((3,), lambda i: "one")
    with pytest.raises(UserError, match="has 1 dimensions, but its function takes 2 indices"):
        te.compute((3,), lambda i, j: A[i])
    with pytest.raises(UserError, match="has 2 dimensions, but its function takes 1 indices"):
        te.compute((3, 3), lambda i: A[i])
    with pytest.raises(UserError, match=r"has 1 dimensions, but names \['a', 'b'\]"):
        te.compute((3,), lambda i: A[i], axis_names=["a", "b"])


def test_extents_are_known_whole_numbers() -> None:
    A = te.placeholder((3,), "int64", name="A")
    with pytest.raises(UserError, match=r"x has the extent 1.5"):
        te.placeholder((1.5,), name="x")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="negative extent -1"):
        te.placeholder(-1)
    with pytest.raises(UserError, match="it is i32, but extents are int64"):
        te.placeholder((te.var("n", "int32"),))
    with pytest.raises(UserError, match="depends on the elements of a tensor"):
        te.compute((A[0],), lambda i: i)


def test_buffers_that_are_no_tensors() -> None:
    raw = Buffer("raw", "float32", (3,))
    with pytest.raises(UserError, match=r"te.compute compute reads buffer raw: it is no tensor"):
        te.compute((3,), lambda i: raw[i])


def test_functions_of_the_wrong_tensors() -> None:
    A, B, C = matmul()
    with pytest.raises(
        UserError, match=r"is not given A, B: te.compute C, .*test_te.py:\d+, reads"
    ):
        te.function([], C, name="f")
    with pytest.raises(UserError, match="has C both as an input and as an output"):
        te.function([A, B, C], C)
    with pytest.raises(UserError, match="cannot compute A: it is a placeholder"):
        te.function([B], A)
    with pytest.raises(UserError, match="has A twice among its inputs"):
        te.function([A, A, B], C)
    with pytest.raises(UserError, match="has C twice among its outputs"):
        te.function([A, B], [C, C])
    with pytest.raises(UserError, match="has no outputs"):
        te.function([A, B], [])
    with pytest.raises(UserError, match="cannot take 3"):
        te.function([A, 3], C)  # type: ignore[list-item]
    with pytest.raises(UserError, match="cannot compute 3: it is no tensor"):
        te.function([A, B], [3])  # type: ignore[list-item]


def test_a_given_tensor_is_not_computed_beside_its_sibling() -> None:
    A = te.placeholder((3,), name="A")
    low, high = te.compute((3,), lambda i: (A[i] - 1.0, A[i] + 1.0), name="band")
    D = te.compute((3,), lambda i: low[i] + high[i])
    with pytest.raises(UserError, match="takes band_0 as an input: it also has to compute it"):
        te.function([A, low], D)


def test_variables_that_nothing_binds() -> None:
    A, k = te.placeholder((3,), name="A"), te.reduce_axis(3, name="k")
    loose = te.compute((3,), lambda i: A[k], name="loose")
    with pytest.raises(UserError, match="cannot compute loose: nothing gives k a value"):
        te.function([A], loose)
    scale = te.var("scale", "float32")
    with pytest.raises(UserError, match="nothing gives scale a value"):
        te.function([A], te.compute((3,), lambda i: A[i] * scale))
    n = te.var("n")
    inner = te.compute((n,), lambda i: A[0])
    with pytest.raises(UserError, match="nothing gives n a value"):
        te.function([A], te.compute((3,), lambda i: inner[i]))


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
