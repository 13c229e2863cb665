"""Script functions, against NumPy through the interpreter."""

# Annotations that name dimensions are strange to linters; see `test_linters_are_content`.
# ruff: noqa: F821
# pyright: basic, reportUndefinedVariable=false, reportInvalidTypeForm=false
# pyright: reportGeneralTypeIssues=false, reportInvalidTypeArguments=false, reportCallIssue=false
# pyright: reportPossiblyUnboundVariable=false, reportUnusedExpression=false

import math
from typing import Annotated, Any

import numpy as np
import pytest

import tilewright.tensor.language as tl
from tilewright.ir import (
    Block,
    Buffer,
    For,
    Function,
    Let,
    Store,
    function_text,
    interpret,
    parse_function,
    same_function,
    walk,
)
from tilewright.support.errors import UserError
from tilewright.tensor import alloc, block, f32, i32, i64, let, parallel, script
from tilewright.tensor.language import init, reduce, spatial

RNG = np.random.default_rng(3)
KERNEL = (3, 2)
SCALE = 0.5


def check(function: Function, *args: Any, **named: Any) -> None:
    """Run it, and run what its text reads back to, on the same arguments."""
    again = parse_function(function_text(function))
    assert same_function(function, again), function_text(function)
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    interpret(again, *copies, **named)
    interpret(function, *args, **named)
    for ours, theirs in zip(args, copies, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@script
def insertion_sort(A: "f32[n]"):
    """Sort in place."""
    for i in range(1, A.shape[0]):
        key = A[i]
        j = i - 1
        while j >= 0 and A[j] > key:
            A[j + 1] = A[j]
            j -= 1
        A[j + 1] = key


def test_sort() -> None:
    a = RNG.standard_normal(25).astype("f4")
    expected = np.sort(a)
    check(insertion_sort, a)
    np.testing.assert_array_equal(a, expected)
    assert function_text(insertion_sort).startswith("def insertion_sort(A: f32[n]):\n    for i in")


def test_prefix_sum() -> None:
    @script
    def prefix_sum(A: "f64[n]", B: "f64[n]"):
        total: f64 = 0.0
        for i in range(A.shape[0]):
            total += A[i]
            B[i] = total

    a, b = RNG.standard_normal(20), np.zeros(20)
    check(prefix_sum, a, b)
    np.testing.assert_allclose(b, np.cumsum(a))


def test_non_maximum_suppression() -> None:
    @script
    def nms(boxes: "f32[n, 4]", threshold: "f32", keep: "i64[n]", count: "i64[1]"):
        alive = alloc(bool[n])
        for i in range(n):
            alive[i] = True
        kept = 0
        for i in range(n):
            if not alive[i]:
                continue
            keep[kept] = i
            kept += 1
            area = (boxes[i, 2] - boxes[i, 0]) * (boxes[i, 3] - boxes[i, 1])
            for j in range(i + 1, n):
                left, top = max(boxes[i, 0], boxes[j, 0]), max(boxes[i, 1], boxes[j, 1])
                right = min(boxes[i, 2], boxes[j, 2])
                bottom = min(boxes[i, 3], boxes[j, 3])
                overlap = max(right - left, 0) * max(bottom - top, 0)
                other = (boxes[j, 2] - boxes[j, 0]) * (boxes[j, 3] - boxes[j, 1])
                if overlap > threshold * (area + other - overlap):
                    alive[j] = False
        count[0] = kept

    corners = RNG.uniform(0, 4, (30, 2))
    boxes = np.concatenate([corners, corners + RNG.uniform(1, 3, (30, 2))], 1).astype("f4")
    keep, count = np.zeros(30, "i8"), np.zeros(1, "i8")
    check(nms, boxes, 0.4, keep, count)
    assert list(keep[: count[0]]) == _nms(boxes, 0.4)
    assert 0 < count[0] < 30


def _nms(boxes: Any, threshold: float) -> list[int]:
    kept: list[int] = []
    for i, box in enumerate(boxes):
        if all(_iou(box, boxes[k]) <= threshold for k in kept):
            kept.append(i)
    return kept


def _iou(a: Any, b: Any) -> float:
    size = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    overlap = float(size[0] * size[1])
    both = float(np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]))
    return overlap / (both - overlap)


def test_break_and_continue() -> None:
    @script
    def odd_sum_until(A: "i64[n]", stop: "i64", out: "i64[3]"):
        turns = 0
        total = 0
        i = 0
        while True:
            if i == A.shape[0]:
                break
            x = A[i]
            i += 1
            if x % 2 == 0:
                continue
            for k in range(x):
                if k == 2:
                    break
                turns += 1
            if x == stop:
                total = total * 100
                break
            total += x
        out[0], out[1], out[2] = total, i, turns

    out = np.zeros(3, "i8")
    check(odd_sum_until, np.array([1, 2, 3, 4, 7, 9]), 7, out)
    assert list(out) == [400, 5, 5]
    check(odd_sum_until, np.array([1, 2, 3]), 7, out)
    assert list(out) == [4, 3, 3]


def test_ranges_step_and_count_once() -> None:
    @script
    def ranges(A: "i64[40]", m: "i64"):
        at = 0
        for i in range(10, 0, -3):
            A[at] = i
            at += 1
        for i in range(m, 12, 4):
            A[at] = i
            at += 1
        end = at + 2
        for _i in range(end):
            end += 1
            at += 1
        A[at] = -5

    a = np.zeros(40, "i8")
    check(ranges, a, 3)
    expected = [10, 7, 4, 1, 3, 7, 11]
    assert list(a[:7]) == expected
    assert a[7 + 9] == -5


def test_what_the_code_around_knows() -> None:
    dtype, flag = f32, True
    width = KERNEL[1]

    @script
    def scaled(A: dtype[width, "m"], B: "f32[width, m]", K: i32[KERNEL[0]]):
        for i in range(width):
            for j in range(A.shape[1]):
                value = dtype(i) * SCALE
                if flag and width == 2:
                    B[i, j] = A[i, j] * (math.pi if j % 2 == 0 else 2) + value
                else:
                    B[i, j] = undefined
        for k in range(KERNEL[0]):
            K[k] = KERNEL[0] * 10 + width if k > 0 else -1

    assert [str(d) for p in scaled.buffers for d in p.shape] == ["2", "m", "2", "m", "3"]
    a, b, k = RNG.standard_normal((2, 5)).astype("f4"), np.zeros((2, 5), "f4"), np.zeros(3, "i4")
    check(scaled, a, b, k)
    factor = np.array([np.pi, 2, np.pi, 2, np.pi], "f4")
    np.testing.assert_allclose(b, a * factor + np.array([[0], [0.5]]), rtol=1e-6)
    assert list(k) == [-1, 32, 32]


def test_linters_are_content() -> None:
    @script
    def rows(A=f32["m", "n"], B=f32["m"], scale=f32):
        m, n = A.shape
        n = A.shape[1]
        for i in range(m):
            for j in range(n):
                domain = A.shape
                with block("B", spatial(m, i), reduce(domain[1], j)) as (vi, vj):
                    with init():
                        B[vi] = 0
                    B[vi] += A[vi, vj] * scale

    a, b = RNG.standard_normal((3, 5)).astype("f4"), np.zeros(3, "f4")
    check(rows, a, b, 2)
    np.testing.assert_allclose(b, 2 * a.sum(1), rtol=1e-5)


def test_annotations_of_every_kind() -> None:
    matrix = f32["m", 4]

    @script
    def f(A: tl.f32["n"], B: Annotated[Any, "f32[n, 2]"], C: matrix, x: f32, y: "i64", Z: f32[()]):
        A[0] = B[0, 0] + C[0, 0] + x + f32(y) + Z

    assert function_text(f).splitlines()[0] == (
        "def f(A: f32[n], B: f32[n, 2], C: f32[m, 4], x: f32, y: i64, Z: f32[()]):"
    )


@script
def axpy(X: "f32[n]", Y: "f32[n]", a: "f32"):
    for i in parallel(X.shape[0]):
        with block("axpy", v=spatial(X.shape[0], i)):
            Y[v] += a * X[v]


def test_functions_are_written_out_where_they_are_called() -> None:
    @script
    def twice(X: "f32[m]", Y: "f32[m]", T: "f32[4]"):
        axpy(X, Y, 2)
        axpy(X, Y, a=X[0])
        axpy(X, T, 1.0)

    names = [s.name for s in walk(twice.body) if isinstance(s, Block)]
    assert names == ["axpy", "axpy_1", "axpy_2"]
    x, y, t = RNG.standard_normal(4).astype("f4"), np.ones(4, "f4"), np.zeros(4, "f4")
    check(twice, x, y, t)
    np.testing.assert_allclose(y, 1 + 2 * x + x[0] * x, rtol=1e-6)
    np.testing.assert_array_equal(t, x)
    with pytest.raises(UserError, match="axpy takes Y: f32"):
        interpret(twice, np.ones(5, "f4"), np.ones(5, "f4"), t)


def test_blocks_find_their_regions() -> None:
    @script
    def rows(A: "f32[m, n]", B: "f32[m]"):
        for i in range(A.shape[0]):
            for j in range(A.shape[1]):
                with block("B", vi=spatial(A.shape[0], i), vj=reduce(A.shape[1], j)):
                    with init():
                        B[vi] = 0
                    B[vi] += A[vi, vj]

    (found,) = [s for s in walk(rows.body) if isinstance(s, Block)]
    assert [r.buffer.name for r in found.reads] == ["A"]
    assert [r.buffer.name for r in found.writes] == ["B"]
    a, b = RNG.standard_normal((3, 5)).astype("f4"), np.zeros(3, "f4")
    check(rows, a, b)
    # Terms of about one may cancel.
    np.testing.assert_allclose(b, a.sum(1, dtype="f8"), rtol=1e-5, atol=1e-6)


def test_names_that_are_assigned_once_are_fixed() -> None:
    @script
    def f(A: "f32[n]"):
        once = A[0]
        more = 0.0
        more += once
        A[-1] = more

    lets = [s.var.name for s in walk(f.body) if isinstance(s, Let)]
    stores = [s.buffer.name for s in walk(f.body) if isinstance(s, Store)]
    assert lets == ["once"]
    assert stores == ["more", "more", "A"]
    check(f, a := np.arange(1, 4).astype("f4"))
    assert list(a) == [1, 2, 1]


def test_values_are_taken_before_they_are_stored() -> None:
    @script
    def fibonacci(out: "i64[n]"):
        a = 0
        b = 1
        for i in range(out.shape[0]):
            out[i] = a
            a, b = b, a + b

    check(fibonacci, out := np.zeros(10, "i8"))
    assert list(out) == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]


def test_conversions_and_intrinsics() -> None:
    @script
    def f(A: "f32[n]", B: "i32[n]"):
        for i in range(A.shape[0]):
            x = A[i].astype(i32) + i32(i)
            B[i] = x if 0 <= x < 3 else abs(x)
            A[i] = tl.exp(float(i)) + max(A[i], 0, 1) + math.sqrt(4)

    a, b = np.array([-5, 0.5, 2], "f4"), np.zeros(3, "i4")
    check(f, a, b)
    assert list(b) == [5, 1, 4]
    expected = np.exp([0, 1, 2]) + np.array([3, 3, 4])
    np.testing.assert_allclose(a, expected, rtol=1e-6)


def test_assertions_carry_values() -> None:
    @script
    def f(A: "f32[n]", m: "i64"):
        assert m > 0
        assert m < A.shape[0], f"{m} is beyond {A.shape[0]}"
        A[m] = 1.0

    check(f, np.zeros(4, "f4"), 2)
    with pytest.raises(UserError, match="9 is beyond 4"):
        interpret(f, np.zeros(4, "f4"), 9)
    with pytest.raises(UserError, match="m > 0 does not hold"):
        interpret(f, np.zeros(4, "f4"), 0)


def test_name_and_attributes() -> None:
    @script(name="other", attrs={"kind": "demo"})
    def f(A: "f32[n]"):
        T = alloc(f32[4], scope="local")
        fixed = let(A[0])
        T[0] = fixed
        A[0] = T[0]

    assert f.name == "other"
    assert f.attrs == {"kind": "demo"}
    spans = [s.span for s in walk(f.body) if isinstance(s, Store)]
    assert spans[0] is not None and spans[0].file.endswith("test_script.py")
    assert 'T = alloc(f32[4], scope="local")' in _line(spans[0].line - 2)


def _line(number: int) -> str:
    with open(__file__, encoding="utf-8") as file:
        return file.read().splitlines()[number - 1]


# ---- refusals -----------------------------------------------------------------------------------


def _undefined(A: "f32[n]"):
    A[0] = missing


def _gone(A: "f32[n]"):
    if A[0] > 1:
        x = 1.0
    A[0] = x


def _mixed(A: "f32[n]", k: "i64"):
    A[0] = A[1] + k


def _narrow(A: "f32[n]", B: "f64[n]"):
    A[0] = B[0]


def _changed_type(A: "f32[n]"):
    x = 0
    x = A[0]
    A[0] = x


def _returns(A: "f32[n]"):
    return A[0]


def _assigns_loop(A: "f32[n]"):
    for i in range(3):
        i += 1
    A[0] = 1.0


def _recursive(A: "f32[n]"):
    _recursive(A)


def _parallel_break(A: "f32[n]"):
    for i in parallel(4):
        if A[i] > 0:
            break


def _number_condition(A: "i64[n]"):
    if A[0]:
        A[0] = 1


def _object(A: "f32[n]"):
    A[0] = RNG


def _untyped(A):
    A[0] = 1.0


def _no_effect(A: "f32[n]"):
    A[0]


def _zero_step(A: "f32[n]"):
    for i in range(0, 4, 0):
        A[i] = 1.0


def _wrong_call(A: "f32[n]"):
    axpy(A, A)


def _wrong_buffer(A: "f64[n]"):
    axpy(A, A, 1)


def _call_as_value(A: "f32[n]"):
    A[0] = axpy(A, A, 1)


def _shape_from_memory(A: "i64[n]"):
    m = 0
    m += A[0]
    T = alloc(f32[m])
    T[0] = 1.0


def _lambda(A: "f32[n]"):
    A[0] = (lambda: 1)()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_undefined, "missing is not defined here"),
        (_gone, "x ended with the suite that assigns it; assign it before that"),
        (_mixed, "cannot combine `A[1]` and `k` by add: one is f32, the other i64"),
        (_narrow, "A is f32, the value f64"),
        (_changed_type, "x is i64, the value f32"),
        (_returns, "a script function returns nothing"),
        (_assigns_loop, "i cannot be assigned to"),
        (_recursive, "_recursive calls itself"),
        (_parallel_break, "a parallel loop cannot be left early"),
        (_number_condition, "A[0] is i64, not bool"),
        (_object, "RNG cannot be used in a script: it is Generator"),
        (_untyped, "A has no type"),
        (_no_effect, "this line has no effect"),
        (_zero_step, "a step of 0 leads nowhere"),
        (_wrong_call, "axpy takes 3 arguments, not 2"),
        (_wrong_buffer, "A does not fit the parameter X: f32[n]"),
        (_call_as_value, "axpy returns nothing"),
        (_shape_from_memory, "a shape cannot depend on memory"),
        (_lambda, "cannot be called"),
    ],
)
def test_refusals_point_to_the_source(function: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        script(function)
    assert message in str(caught.value)
    line = int(str(caught.value).split("test_script.py:")[1].split(":")[0])
    assert _line(line).strip() == caught.value.listing.splitlines()[0].strip()
    assert "^" in caught.value.listing


def test_functions_without_source_are_refused() -> None:
    with pytest.raises(UserError, match="cannot read the source of len"):
        script(len)


def test_words_complain_outside() -> None:
    with pytest.raises(UserError, match=r"alloc\(…\) was called outside a script function"):
        alloc(f32[4])
    with pytest.raises(UserError, match=r"i64\(…\) was called outside"):
        i64(3)
    assert repr(f32["n", 4]) == "f32[n, 4]"
    assert Buffer("B", f32, (4,)).dtype.short == "f32"


def test_loops_of_every_kind() -> None:
    @script
    def f(A: "f32[4]"):
        for i in tl.vectorized(4):
            A[i] = 1.0
        for i in tl.unrolled(4):
            A[i] += 1.0
        for i in tl.thread(4, "threadIdx.x"):
            A[i] += 1.0

    loops = [(s.kind, s.axis) for s in walk(f.body) if isinstance(s, For)]
    assert loops == [("vectorized", ""), ("unrolled", ""), ("thread", "threadIdx.x")]
    check(f, a := np.zeros(4, "f4"))
    assert list(a) == [3] * 4
