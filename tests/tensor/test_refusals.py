"""What compute definitions refuse, and the words they do it with."""

from __future__ import annotations

import pytest

from tests.tensor.definitions import matmul
from tilewright.ir import (
    Buffer,
)
from tilewright.support.errors import UserError
from tilewright.tensor import te


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
    with pytest.raises(UserError, match="x has the shape None"):
        te.placeholder(None, name="x")  # type: ignore[arg-type]
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
        UserError, match=r"is not given A, B: te.compute C, .*definitions.py:\d+, reads"
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
    for name in ("", "llvm.exp.f32"):
        with pytest.raises(UserError, match=f"te.function cannot be called '{name}'"):
            te.function([A, B], C, name=name)
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
