"""Operators that move elements: shapes, parts, borders, copies, orders; against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.graph.harness import check
from tilewright.graph import Builder, evaluate, find_op
from tilewright.ir import Const, Expr
from tilewright.support.errors import UserError

RNG = np.random.default_rng(5)
X = RNG.standard_normal((3, 4, 5)).astype("f4")
IMAGE = RNG.standard_normal((1, 2, 5, 7)).astype("f4")
END = 2**63 - 1


def inferred(name: str, dtype: str, dims: tuple[Any, ...], /, **attrs: Any) -> str:
    """The type of the result for an operand of this type."""
    b = Builder("main")
    result = b.emit(name, b.input("x", dtype, dims), **attrs)
    return str(result.type)


# ---- shapes -------------------------------------------------------------------------------------


def test_reshape() -> None:
    check("reshape", [X], shape=[6, -1])
    check("reshape", [X], shape=[2, 3, 10], symbolic=False)
    check("reshape", [X[:0]], shape=[-1, 7])
    check("reshape", [X[0, 0, 0]], shape=[1, 1], symbolic=False)
    check("reshape", [X.astype(ml_dtypes.int4)], shape=[-1], symbolic=False)


def test_reshape_of_symbolic_shapes() -> None:
    assert inferred("reshape", "f32", ("n", 3, 4), shape=[-1, 12]) == "f32[n, 12]"
    assert inferred("flatten", "f32", ("n", 3, 4)) == "f32[n, 12]"
    assert inferred("squeeze", "f32", (1, "n", 1)) == "f32[n]"
    with pytest.raises(UserError, match="keep the number of elements"):
        inferred("reshape", "f32", (2, 3), shape=[4])
    with pytest.raises(UserError, match="more than one extent is -1"):
        inferred("reshape", "f32", (2, 3), shape=[-1, -1])
    with pytest.raises(UserError, match="is left out, and one element differ: 4 and 1"):
        inferred("squeeze", "f32", (2, 4), axes=[-1])


def test_shapes_that_follow() -> None:
    for axis in (0, 2, -1):
        check("flatten", [X], axis=axis, symbolic=axis == 2)
    check("squeeze", [X[:, :1]], axes=[-2])
    check("unsqueeze", [X], axes=[0, -1])


@pytest.mark.parametrize("axes", [None, (0, -1, 1)])
def test_transpose(axes: Any) -> None:
    check("transpose", [X], axes=axes)


def test_depth_and_space() -> None:
    deep = RNG.standard_normal((2, 8, 3, 5)).astype("f4")
    for mode in ("DCR", "CRD"):
        check("depth_to_space", [deep], block=2, mode=mode, symbolic=mode == "DCR")
    check("space_to_depth", [deep[:, :, :2, :4]], block=2)


# ---- parts --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        (1, END, 1),
        (-2, END, 1),
        (1, -1, 1),
        (0, 3, 2),
        (4, 2, 1),
        (-100, 100, 3),
        (-1, -END, -1),
        (100, 0, -2),
        (-2, -100, -1),
    ],
)
def test_slice(start: int, end: int, step: int) -> None:
    check("slice", [X], starts=[start], ends=[end], axes=[-1], steps=[step])


def test_slices_of_several_axes() -> None:
    check("slice", [X], starts=[0, -1], ends=[2, -END], axes=[0, 2], steps=[1, -1])
    check("slice", [X], starts=[1, 1], ends=[END, 3], symbolic=False)


def test_slices_of_symbolic_extents_stay_plain() -> None:
    def size(start: int, end: int, step: int = 1) -> str:
        text = inferred("slice", "f32", ("n",), starts=[start], ends=[end], steps=[step])
        return text[4:-1]

    assert size(0, END) == "n"
    assert size(1, END) == "max(n - 1, 0)"
    assert size(-3, END) == "min(n, 3)"
    assert size(0, END, 2) == "(n + 1) // 2"
    assert size(-1, -END, -1) == "n"


def test_slice_with_bounds_that_are_dimensions() -> None:
    b = Builder("main")
    x, y = b.input("x", "f32", ("n",)), b.input("y", "f32", ("m",))
    (m,) = y.shape
    b.output(b.slice(x, starts=[0], ends=[m], axes=[0]), b.slice(x, starts=[-m], ends=[END]))
    x_, y_ = np.arange(9, dtype="f4"), np.zeros(4, "f4")
    head, tail = evaluate(b.function(), [x_, y_])
    np.testing.assert_array_equal(head, x_[:4])
    np.testing.assert_array_equal(tail, x_[-4:])


def test_split_and_concat() -> None:
    check("split", [X], sizes=[1, 0, 3], axis=-2)
    check("concat", [X, X[:, :2], X[:, :0]], axis=1)
    check("concat", [X[:0], X[:0]], axis=0, symbolic=False)
    with pytest.raises(UserError, match="do not make up 4"):
        inferred("split", "f32", (4,), sizes=[1, 2])


# ---- copies -------------------------------------------------------------------------------------


def test_expand_and_tile() -> None:
    check("expand", [X[:, :1]], shape=[2, 1, 4, 5])
    check("expand", [X[:, :1]], shape=[3, 0, 1], symbolic=False)
    check("tile", [X], repeats=[2, 1, 3])
    check("tile", [X], repeats=[0, 1, 3], symbolic=False)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pad(mode: str) -> None:
    value = np.array(7.5, "f4")
    check("pad", [X, value], before=[1, 0, 2], after=[0, 3, 1], mode=mode)
    check("pad", [X, value], before=[-1, 0, 12], after=[0, 9, -2], mode=mode)
    check("pad", [X[:1]], before=[2, 0, 2], after=[2, 0, 0], mode=mode, symbolic=False)


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.int4, "bool", "int64"])
def test_pad_of_other_types(dtype: Any) -> None:
    check("pad", [X.astype(dtype)], before=[2, 0, 2], after=[2, 0, 0], symbolic=False)


def test_pad_of_nothing() -> None:
    check("pad", [X[:0]], before=[2, 0, 2], after=[2, 0, 0])
    with pytest.raises(UserError, match="nothing to fill its border with"):
        inferred("pad", "f32", (0,), before=[1], after=[0], mode="edge")


@pytest.mark.parametrize("shape", [(2, 7), (1, 1), (9, 2)])
def test_center_crop_pad(shape: tuple[int, int]) -> None:
    check("center_crop_pad", [X], shape=shape, axes=[-2, -1], symbolic=shape == (2, 7))


# ---- orders -------------------------------------------------------------------------------------


def test_flip_and_roll() -> None:
    check("flip", [X])
    check("flip", [X], axes=[-1], symbolic=False)
    check("roll", [X], shifts=[2, -7], axes=[0, 2])


def test_reverse_sequence() -> None:
    check("reverse_sequence", [X, np.array([1, 0, 2, 3])])
    lengths = np.array([1, 5, 2, 3])
    check("reverse_sequence", [X, lengths], time_axis=2, symbolic=False)
    with pytest.raises(UserError, match="longer than 3"):
        check("reverse_sequence", [X, lengths], symbolic=False)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_scans(name: str) -> None:
    for exclusive, reverse in [(0, 0), (1, 0), (0, 1), (1, 1)]:
        check(name, [X], axis=1, exclusive=exclusive, reverse=reverse, symbolic=bool(reverse))
    check(name, [X.astype("i4")], axis=-1)
    check(name, [X[:, :0]], axis=1, exclusive=True, symbolic=False)


# ---- made tensors -------------------------------------------------------------------------------


def test_full_and_ramp() -> None:
    check("full", [np.array([2], "i8")], shape=[2, 0, 3])
    check("full", [np.array(2.5, "f2")], shape=[7], symbolic=False)
    check("ramp", [np.array(2.5, "f4"), np.array(-0.5, "f4")], size=9)


@pytest.mark.parametrize("bounds", [(0, 10, 3), (10, 0, -3), (5, 0, 1), (0.1, 1.05, 0.1)])
def test_range(bounds: tuple[float, ...]) -> None:
    dtype = "f4" if isinstance(bounds[0], float) else "i4"
    expected = np.arange(*bounds, dtype=dtype)
    check("range", [np.array(v, dtype) for v in bounds], expected=expected, symbolic=False)


def test_range_of_known_bounds_has_a_known_size() -> None:
    b = Builder("main")
    (n,) = b.input("x", "f32", ("n",)).shape
    size = b.size_of(b.input("y", "f32", (n, 2)))
    ramp = b.range(b.constant(0, "int64"), size, b.constant(2, "int64"))
    assert str(ramp.type) in ("i64[n]", "i64[max(n, 0)]")


def test_matrices() -> None:
    check("eye", [], rows=3, columns=5, k=-1, dtype="f32", symbolic=False)
    check("trilu", [X], k=-1, symbolic=False)
    check("trilu", [X], k=2, upper=False)


def test_one_hot() -> None:
    values = np.array([2, 5], "f4")
    indices = np.array([[0, 3, -1], [7, -8, 2]])
    for axis in (-1, 0):
        check("one_hot", [indices, values], depth=4, axis=axis, symbolic=axis == 0)
    check("one_hot", [indices.astype("f4"), values], depth=4, axis=1, symbolic=False)


def test_shapes_as_tensors() -> None:
    check("shape_of", [X], start=1)
    check("shape_of", [X[0, 0, 0]], symbolic=False)
    check("size_of", [X])


def test_shape_arithmetic_is_known() -> None:
    b = Builder("main")
    x = b.input("x", "f32", ("n", 4))
    shape = b.shape_of(x)
    doubled = b.concat(b.mul(b.gather(shape, np.array([0])), np.array([2])), shape, axis=0)
    last = b.squeeze(b.slice(doubled, starts=[-1], ends=[END]), axes=[0])
    assert doubled.known is not None and last.known is not None
    (n,) = {v for v in doubled.known.ravel() if not isinstance(v, Const | None)} - {x.shape[0] * 2}
    assert n is x.shape[0] and isinstance(last.known[()], Expr)
    assert int(last.known[()].value) == 4  # type: ignore[attr-defined]


# ---- sizes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["nearest", "cubic"])
@pytest.mark.parametrize(
    "coordinates",
    [
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "tf_half_pixel_for_nn",
    ],
)
def test_resize(mode: str, coordinates: str) -> None:
    symbolic = coordinates == "half_pixel"
    how: Any = {"mode": mode, "coordinates": coordinates, "axes": [2, 3]}
    check("resize", [IMAGE], scales=[0.75, 1.4], symbolic=symbolic, **how)
    if coordinates in ("align_corners", "pytorch_half_pixel") and mode == "cubic":
        check("resize", [IMAGE], sizes=[1, 1], symbolic=False, **how)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_crop_and_resize(mode: str) -> None:
    roi = np.array([0.1, -0.2, 0.9, 1.3], "f4")
    how: Any = {"mode": mode, "coordinates": "tf_crop_and_resize", "axes": [2, 3]}
    check("resize", [IMAGE, roi], sizes=[4, 4], extrapolation=3.0, **how)
    check("resize", [IMAGE, roi], sizes=[1, 4], extrapolation=3.0, symbolic=False, **how)


@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest(nearest: str) -> None:
    check("resize", [IMAGE], scales=[1, 1, 2, 3], nearest=nearest, symbolic=False)
    line = np.arange(4, dtype="f4").reshape(1, 1, 1, 4)
    expected = {"floor": [0, 0, 1, 1, 2, 2, 3, 3], "ceil": [0, 1, 1, 2, 2, 3, 3, 3]}
    if nearest in expected:
        how: Any = {"axes": [3], "coordinates": "asymmetric", "nearest": nearest}
        wanted = np.array(expected[nearest], "f4").reshape(1, 1, 1, 8)
        check("resize", [line], scales=[2.0], expected=wanted, symbolic=False, **how)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_weights(mode: str) -> None:
    how: Any = {"mode": mode, "axes": [2, 3]}
    check("resize", [IMAGE], antialias=True, sizes=[2, 3], symbolic=mode == "linear", **how)
    check("resize", [IMAGE], exclude_outside=True, sizes=[8, 3], symbolic=False, **how)
    dtype = {"linear": "i1", "cubic": "f2"}[mode]
    check("resize", [(IMAGE * 50).astype(dtype)], sizes=[8, 3], symbolic=False, **how)


@pytest.mark.parametrize(("policy", "shape"), [("not_larger", (6, 8)), ("not_smaller", (9, 13))])
def test_resize_keeps_the_aspect(policy: str, shape: tuple[int, int]) -> None:
    how: Any = {"mode": "linear", "policy": policy, "symbolic": policy == "not_larger"}
    (result,) = check("resize", [IMAGE], sizes=[9, 8], axes=[2, 3], **how)
    assert result.shape[2:] == shape


def test_resize_of_nothing_and_to_nothing() -> None:
    check("resize", [IMAGE], sizes=[0, 3], axes=[2, 3], mode="linear", symbolic=False)
    check("resize", [IMAGE[:0]], scales=[1, 1, 2, 2], symbolic=False)
    with pytest.raises(UserError, match="one for each of 4 axes"):
        find_op("resize").infer(*_bound("resize", sizes=[2]))


def _bound(name: str, **attrs: Any) -> Any:
    b = Builder("main")
    return find_op(name).bind([b.input("x", "f32", (1, 2, 3, 4))], attrs)
