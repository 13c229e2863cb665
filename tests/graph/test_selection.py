"""Elements by index, in order, and of a number that depends on data; against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.graph.harness import check
from tilewright.graph import Builder, evaluate
from tilewright.kernels.pipeline import host_code
from tilewright.support.errors import UserError

RNG = np.random.default_rng(6)
X = RNG.standard_normal((3, 4, 5)).astype("f4")
SPECIAL = np.array([[0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 3, -np.nan, 0.0, 2]], "f4")

# ---- gather -------------------------------------------------------------------------------------


def test_gather() -> None:
    check("gather", [X, np.array([[1, -1], [0, 2]])], axis=1)
    check("gather", [X, np.array(2, "i4")], axis=-1)
    check("gather", [X, np.zeros(0, "u1")], axis=0, symbolic=False)
    check("gather", [X, np.array([9, -9, 1])], axis=1, mode="clip")
    check("gather", [X.astype(ml_dtypes.float8_e5m2), np.array([2, 0])], symbolic=False)


def test_constant_indices_are_checked_once() -> None:
    from tilewright.graph.passes import legalize

    b = Builder("main")
    x = b.input("x", "f32", (3, "n"))
    b.output(b.gather(x, np.array([0, -1])), b.gather(x, np.array([1]), axis=1))
    text = str(legalize(b.build()))
    assert 'take(x, i64([0, 2]), mode="hold")' in text.replace("'", '"')
    # How many columns there are is not known yet.
    assert "take(x, i64([1]), axis=1)" in text


def test_gather_elements_and_gather_nd() -> None:
    check("gather_elements", [X, RNG.integers(-4, 4, (2, 6, 5))], axis=1, symbolic=False)
    check("gather_elements", [X, RNG.integers(-9, 9, (3, 4, 2))], axis=-1, mode="clip")
    check("gather_nd", [X, RNG.integers(-3, 3, (6, 2, 2))], symbolic=False)
    check("gather_nd", [X, RNG.integers(-3, 3, (3, 2, 1))], batch_dims=1, symbolic=False)
    check("gather_nd", [X, np.zeros((4, 0), "i8")], symbolic=False)


def stops(name: str, arrays: list[Any], **attrs: Any) -> str:
    """What an operator says that cannot go on when it runs."""
    from tests.graph.harness import natively
    from tilewright.graph import find_op

    op = find_op(name)
    args, full = op.bind(arrays, attrs)
    with pytest.raises(UserError) as caught:
        natively(op, args, full)
    with pytest.raises(UserError):
        op.evaluate(args, full)
    return str(caught.value)


def test_indices_out_of_range_stop_the_program() -> None:
    message = "index {} is out of bounds for dimension {}"
    assert message.format(4, 1) in stops("gather", [X, np.array([0, 4])], axis=1)
    assert message.format(-4, 0) in stops("gather", [X, np.array([-4])])
    assert message.format(5, 2) in stops("gather_elements", [X, np.full((3, 4, 5), 5)], axis=2)
    assert message.format(7, 0) in stops("gather_nd", [X, np.array([[7, 0]])])
    updates = np.zeros((1, 5), "f4")
    assert message.format(4, 1) in stops("scatter_nd", [X, np.array([[0, 4]]), updates])


# ---- scatter ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
def test_scatter(reduction: str) -> None:
    indices, updates = RNG.integers(-4, 4, (2, 6, 5)), RNG.standard_normal((2, 6, 5)).astype("f4")
    check(
        "scatter_elements",
        [X, indices, updates],
        axis=1,
        reduction=reduction,
        symbolic=reduction == "add",
    )
    rows, values = RNG.integers(-3, 3, (6, 2)), RNG.standard_normal((6, 5)).astype("f4")
    check("scatter_nd", [X, rows, values], reduction=reduction, symbolic=False)


def test_scatter_of_nothing_and_of_everything() -> None:
    nothing = np.zeros((0, 6, 5), "i4")
    check("scatter_elements", [X.astype("i8"), nothing, nothing.astype("i8")], symbolic=False)
    all_of_it = RNG.standard_normal((2, 3, 4, 5)).astype("f4")
    check("scatter_nd", [X, np.zeros((2, 0), "i8"), all_of_it], reduction="add", symbolic=False)


@pytest.mark.parametrize("circular", [False, True])
def test_tensor_scatter(circular: bool) -> None:
    cache = RNG.standard_normal((2, 3, 7, 4)).astype("f4")
    update = RNG.standard_normal((2, 3, 2, 4)).astype("f4")
    check("tensor_scatter", [cache, update, np.array([5, 6])], circular=circular)
    check("tensor_scatter", [cache, update], circular=circular, symbolic=False)


# ---- order --------------------------------------------------------------------------------------


@pytest.mark.parametrize("descending", [False, True])
def test_sort(descending: bool) -> None:
    x = RNG.integers(-9, 9, (3, 70, 2)).astype("f4")
    check("sort", [x], axis=1, descending=descending)
    check("sort", [x[:, :0]], axis=1, descending=descending, symbolic=False)
    values, places = check("sort", [SPECIAL], descending=descending, symbolic=False)
    # NaN is above all; equal elements keep their order.
    assert np.isnan(values[0, :2] if descending else values[0, -2:]).all()
    zeros = places[0][values[0] == 0]
    np.testing.assert_array_equal(zeros, [0, 1, 9])


@pytest.mark.parametrize(
    "dtype", ["f8", "f2", ml_dtypes.bfloat16, "i8", "u8", "u4", "i1", "bool", ml_dtypes.int4]
)
def test_sort_keys_of_all_types(dtype: Any) -> None:
    x = RNG.integers(0, 200, (2, 9)).astype(dtype)
    if dtype == "u8":
        x[:, ::2] += np.uint64(1 << 63)
    if dtype == "i8":
        x[:, ::2] -= 1 << 62
    for descending in (False, True):
        (keys,) = check("sort_key", [x], descending=descending, symbolic=False)
        by_key = np.take_along_axis(x, np.argsort(keys, 1), 1).astype("f8")
        assert (np.diff(by_key) <= 0 if descending else np.diff(by_key) >= 0).all()


@pytest.mark.parametrize("largest", [False, True])
def test_top_k(largest: bool) -> None:
    x = RNG.integers(-9, 9, (3, 70, 2)).astype("f4")
    check("top_k", [x], k=5, axis=1, largest=largest)
    check("top_k", [x], k=70, axis=1, largest=largest, symbolic=False)
    check("top_k", [x.astype("i4")], k=0, axis=0, largest=largest, symbolic=False)


# ---- numbers of elements that depend on data ----------------------------------------------------


def test_non_zero() -> None:
    x = RNG.integers(-1, 2, (3, 4, 5)).astype("f4")
    check("non_zero", [x], expected=np.array(np.nonzero(x)))
    check("non_zero", [x[:0] > 0], symbolic=False)
    check("non_zero", [np.array(3)], symbolic=False)


def test_compress() -> None:
    check("compress", [X, np.array([1, 0, 1], bool)], axis=1)
    check("compress", [X, np.array([1, 0, 1] * 20, bool)], symbolic=False)
    check("compress", [X, np.zeros(3, bool)], axis=0, symbolic=False)


@pytest.mark.parametrize("ordered", [True, False])
def test_unique(ordered: bool) -> None:
    x = RNG.integers(-2, 3, (3, 4, 5))
    results = check("unique", [x], ordered=ordered, symbolic=ordered)
    if ordered:
        wanted = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
        for got, want in zip(results, wanted, strict=True):
            np.testing.assert_array_equal(got, want.ravel())
    check("unique", [SPECIAL], ordered=ordered, symbolic=False)
    rows = np.array([[1, 2], [1, 2], [0, 3], [1, 1], [0, 3]])
    check("unique", [rows.T], axis=1, ordered=ordered, symbolic=False)
    check("unique", [x[:0]], ordered=ordered, symbolic=False)
    check("unique", [np.zeros((0, 2, 3))], axis=2, ordered=ordered, symbolic=False)


def test_a_size_that_depends_on_data_goes_on() -> None:
    b = Builder("main")
    x = b.input("x", "f32", ("n",))
    places = b.squeeze(b.non_zero(x), axes=[0])
    b.output(b.reshape(b.gather(x, places), shape=[-1, 1]), b.shape_of(places))
    kept, shape = evaluate(b.function(), [np.array([0, 3, 0, 4], "f4")])
    np.testing.assert_array_equal(kept, [[3], [4]])
    np.testing.assert_array_equal(shape, [2])


def test_what_frees_memory_does_not_grow_with_each_place_that_may_fail() -> None:
    def merged_values(count: int) -> int:
        b = Builder()
        for k in range(count):
            b.output(b.add(b.non_zero(b.input(f"x{k}", "f32", ("n",))), np.array(1)))
        model = tw.compile(b.build())
        assert isinstance(model, tw.Model)
        return host_code(model.ir(), tw.Target.of("llvm"), "flush").text().count(" phi ")

    assert merged_values(8) == merged_values(2)
