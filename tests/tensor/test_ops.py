"""Operators of graphs as definitions over tensors (`tw.ops`), against NumPy, at small odd sizes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tilewright import ops, te
from tilewright.support.errors import UserError

Array = np.ndarray[Any, Any]


def given(x: Array, name: str = "X") -> te.Tensor:
    return te.placeholder(x.shape, x.dtype, name=name)


def f32(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype("float32")


# ---- references ---------------------------------------------------------------------------------


def windows(
    x: Array,
    kernel: tuple[int, int],
    strides: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilations: tuple[int, int] = (1, 1),
    fill: float = 0.0,
) -> Array:
    """The windows of N×C×H×W as N×C×H'×W'×KH×KW."""
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)), constant_values=fill)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, reach, axis=(2, 3))  # type: ignore[call-overload]
    return view[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]


def conv_reference(x: Array, w: Array, groups: int = 1, **options: Any) -> Array:
    seen = windows(x, w.shape[2:], **options)
    per_group = np.split(seen, groups, axis=1)
    weights = np.split(w, groups, axis=0)
    parts = [np.einsum("ncyxhw,ochw->noyx", v, k) for v, k in zip(per_group, weights, strict=True)]
    return np.concatenate(parts, axis=1)


def blocked(x: Array, block: int) -> Array:
    n, c, h, w = x.shape
    return x.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2).copy()


# ---- matrices -----------------------------------------------------------------------------------


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_matmul(check: Any, rng: Any, transpose_a: bool, transpose_b: bool) -> None:
    a, b = f32(rng, 3, 5), f32(rng, 5, 4)
    x, y = (a.T.copy() if transpose_a else a), (b.T.copy() if transpose_b else b)
    A, B = given(x, "A"), given(y, "B")
    made = ops.matmul(A, B, transpose_a=transpose_a, transpose_b=transpose_b)
    check([A, B], [x, y], made, a @ b)


def test_matmul_widens(check: Any, rng: Any) -> None:
    a = rng.integers(-128, 127, (3, 7)).astype("int8")
    b = rng.integers(-128, 127, (7, 2)).astype("int8")
    A, B = given(a), given(b)
    expected = a.astype("int32") @ b.astype("int32")
    check([A, B], [a, b], ops.matmul(A, B, dtype="int32"), expected)


def test_matmul_broadcasts_batches(check: Any, rng: Any) -> None:
    a, b = f32(rng, 2, 1, 3, 4), f32(rng, 3, 4, 2)
    A, B = given(a), given(b)
    check([A, B], [a, b], ops.matmul(A, B), a @ b)


def test_batch_matmul(check: Any, rng: Any) -> None:
    a, b = f32(rng, 3, 2, 5), f32(rng, 3, 4, 5)
    A, B = given(a), given(b)
    check([A, B], [a, b], ops.matmul(A, B, transpose_b=True), a @ b.transpose(0, 2, 1))


def test_matmul_with_a_symbolic_batch(check: Any, rng: Any) -> None:
    a, b = f32(rng, 3, 5), f32(rng, 5, 4)
    A, B = te.placeholder((te.var("n"), 5), name="A"), given(b, "B")
    check([A, B], [a, b], ops.matmul(A, B), a @ b)


def test_dense(check: Any, rng: Any) -> None:
    x, w, b = f32(rng, 3, 5), f32(rng, 4, 5), f32(rng, 4)
    X, W, B = given(x), given(w, "W"), given(b, "B")
    check([X, W, B], [x, w, b], ops.dense(X, W, B), x @ w.T + b)


def test_matmul_names_what_differs() -> None:
    A, B = te.placeholder((3, 5)), te.placeholder((4, 6))
    with pytest.raises(UserError, match="the rows and columns that are multiplied differ: 5 and 4"):
        ops.matmul(A, B)
    with pytest.raises(UserError, match="vectors and matrices, not scalars"):
        ops.matmul(te.placeholder((), name="v"), B)


# ---- convolutions -------------------------------------------------------------------------------

CONVOLUTIONS: list[dict[str, Any]] = [
    {},
    {"strides": (2, 2), "pads": (1, 1, 1, 1)},
    {"strides": (1, 2), "pads": (0, 1, 2, 3), "dilations": (2, 1)},
]


def channels_last(x: Array) -> Array:
    """N×C×H×W as N×1×H×W×C."""
    return x.transpose(0, 2, 3, 1)[:, None].copy()


@pytest.mark.parametrize("options", CONVOLUTIONS)
def test_conv(check: Any, rng: Any, options: Any) -> None:
    x, w = f32(rng, 2, 3, 7, 6), f32(rng, 4, 3, 3, 2)
    X, W = given(x), given(w, "W")
    check([X, W], [x, w], ops.conv(X, W, **options), conv_reference(x, w, **options))


@pytest.mark.parametrize("options", CONVOLUTIONS)
def test_conv_with_channels_last(check: Any, rng: Any, options: Any) -> None:
    x, w = f32(rng, 2, 3, 7, 6), f32(rng, 4, 3, 3, 2)
    expected = channels_last(conv_reference(x, w, **options))
    x, w = channels_last(x), w.transpose(0, 2, 3, 1).copy()
    X, W = given(x), given(w, "W")
    check([X, W], [x, w], ops.conv_last(X, W, **options), expected)


def test_conv_in_groups(check: Any, rng: Any) -> None:
    x, w = f32(rng, 1, 6, 5, 4), f32(rng, 4, 3, 2, 3)
    expected = conv_reference(x, w, groups=2)
    X, W = given(x), given(w, "W")
    check([X, W], [x, w], ops.conv(X, W, groups=2), expected)
    x, w = channels_last(x), w.transpose(0, 2, 3, 1).copy()
    Last, Weight = given(x), given(w, "W")
    result = ops.conv_last(Last, Weight, groups=2)
    check([Last, Weight], [x, w], result, channels_last(expected))


@pytest.mark.parametrize("options", CONVOLUTIONS)
def test_conv_blocked(check: Any, rng: Any, options: Any) -> None:
    """Packed by our own layout changes, with channels that do not fill the last block."""
    x, w = f32(rng, 1, 5, 7, 6), f32(rng, 6, 5, 3, 2)
    X, W = given(x), given(w, "W")
    packed = ops.pack_conv_weights(W, in_block=2, out_block=4)
    result = ops.conv_blocked(ops.to_blocked(X, block=2), packed, **options)
    expected = conv_reference(x, w, **options)
    check([X, W], [x, w], ops.from_blocked(result, channels=6), expected)


def test_conv_accumulates_in_the_type_asked_for(check: Any, rng: Any) -> None:
    x = rng.integers(0, 255, (1, 4, 4, 4)).astype("uint8")
    w = rng.integers(-128, 127, (2, 4, 3, 3)).astype("int8")
    X, W = given(x), given(w)
    expected = conv_reference(x.astype("int32"), w.astype("int32"))
    check([X, W], [x, w], ops.conv(X, W, dtype="int32"), expected)


@pytest.mark.parametrize("multiplier", [1, 2])
def test_depthwise(check: Any, rng: Any, multiplier: int) -> None:
    x, w = f32(rng, 1, 3, 6, 5), f32(rng, 3 * multiplier, 1, 3, 3)
    options: Any = {"groups": 3, "strides": (2, 1), "pads": (1, 1, 1, 1)}
    X, W = given(x), given(w, "W")
    check([X, W], [x, w], ops.conv(X, W, **options), conv_reference(x, w, **options))


def test_depthwise_blocked(check: Any, rng: Any) -> None:
    x, w = f32(rng, 1, 4, 6, 5), f32(rng, 4, 1, 3, 3)
    expected = blocked(conv_reference(x, w, groups=4, pads=(1, 1, 1, 1)), 2)
    x = blocked(x, 2)
    w = w.reshape(2, 2, 3, 3).transpose(0, 2, 3, 1).copy()
    X, W = given(x), given(w, "W")
    check([X, W], [x, w], ops.depthwise_blocked(X, W, pads=[1] * 4), expected)


def test_convolutions_refuse_what_does_not_fit() -> None:
    X, W = te.placeholder((1, 4, 2, 2)), te.placeholder((6, 4, 3, 3))
    with pytest.raises(UserError, match="no place for the window: it spans 3 of 2"):
        ops.conv(X, W)
    with pytest.raises(UserError, match="in 2 groups, differ: 4 and 8"):
        ops.conv(X, W, pads=[1] * 4, groups=2)
    with pytest.raises(UserError, match="do not fit"):
        ops.conv_blocked(X, W)
    with pytest.raises(UserError, match="the window cannot slide"):
        ops.conv(X, W, strides=[0, 1])
    with pytest.raises(UserError, match="there are 3 pads for 2 spatial axes, not 4"):
        ops.conv(X, W, pads=(1, 2, 3))


# ---- pooling ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dilations", [(1, 1), (2, 1)])
def test_max_pool(check: Any, rng: Any, dilations: tuple[int, int]) -> None:
    x = f32(rng, 2, 3, 7, 6) - 10
    options: Any = {"strides": (2, 2), "pads": (1, 0, 1, 1), "dilations": dilations}
    expected = windows(x, (3, 2), fill=-np.inf, **options).max(axis=(-2, -1))
    X = given(x)
    check([X], [x], ops.max_pool(X, kernel=(3, 2), **options), expected)


@pytest.mark.parametrize("dilations", [(1, 1), (2, 1)])
@pytest.mark.parametrize("count_include_pad", [False, True])
def test_avg_pool(
    check: Any, rng: Any, dilations: tuple[int, int], count_include_pad: bool
) -> None:
    x = f32(rng, 1, 2, 7, 6)
    options: Any = {"strides": (1, 2), "pads": (1, 0, 2, 1), "dilations": dilations}
    total = windows(x, (3, 2), **options).sum(axis=(-2, -1))
    count = windows(np.ones_like(x), (3, 2), **options).sum(axis=(-2, -1))
    expected = total / (6 if count_include_pad else count)
    X = given(x)
    options |= {"kernel": (3, 2), "count_include_pad": count_include_pad}
    result = ops.avg_pool(X, **options)
    check([X], [x], result, expected)


# ---- normalisation and activations --------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_softmax(check: Any, rng: Any, axis: int) -> None:
    x = f32(rng, 3, 5, 2) * 60
    powers = np.exp(x - x.max(axis=axis, keepdims=True))
    X = given(x)
    check([X], [x], ops.softmax(X, axis=axis), powers / powers.sum(axis=axis, keepdims=True))


@pytest.mark.parametrize("axis", [1, -1])
def test_layer_norm(check: Any, rng: Any, axis: int) -> None:
    x = f32(rng, 3, 2, 5)
    g, b = f32(rng, *x.shape[axis:]), f32(rng, *x.shape[axis:])
    axes = tuple(range(axis % 3, 3))
    mean, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    normal = (x - mean) / np.sqrt(variance + 1e-5)
    X, G, B = given(x), given(g, "G"), given(b, "B")
    check([X, G, B], [x, g, b], ops.layer_norm(X, G, B, axis=axis), normal * g + b)
    check([X], [x], ops.layer_norm(X, axis=axis), normal)
    check([X, B], [x, b], ops.layer_norm(X, None, B, axis=axis), normal + b)


def test_activations(check: Any, rng: Any) -> None:
    x = f32(rng, 4, 5)
    X = given(x)
    erf = np.vectorize(math.erf)
    check([X], [x], ops.relu(X), np.maximum(x, 0))
    check([X], [x], ops.gelu(X), (x * (1 + erf(x / math.sqrt(2))) / 2).astype("float32"))
    inner = np.sqrt(np.float32(2 / math.pi)) * (x + np.float32(0.044715) * x**3)
    check([X], [x], ops.gelu(X, approximate="tanh"), x * (1 + np.tanh(inner)) / 2)
    with pytest.raises(UserError, match="fast"):
        ops.gelu(X, approximate="fast")


def test_relu_keeps_nan(check: Any) -> None:
    x = np.array([-1, np.nan, 2], "float32")
    X = given(x)
    check([X], [x], ops.relu(X), np.array([0, np.nan, 2], "float32"))


def test_elementwise_broadcasts(check: Any, rng: Any) -> None:
    a, b = f32(rng, 3, 1, 2), f32(rng, 4, 1)
    A, B = given(a), given(b)
    check([A, B], [a, b], ops.add(A, B), a + b)
    with pytest.raises(UserError, match=r"shapes \[3\] and \[4\] cannot be broadcast"):
        ops.add(te.placeholder((3,)), te.placeholder((4,)))


# ---- reductions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("axes", [None, (0,), (-1,), (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(check: Any, rng: Any, axes: Any, keepdims: bool) -> None:
    x = f32(rng, 3, 4, 2)
    X = given(x)
    for name in ("sum", "mean", "max", "min"):
        result = getattr(ops, name)(X, axes=axes, keepdims=keepdims)
        check([X], [x], result, getattr(np, name)(x, axis=axes, keepdims=keepdims))


def test_mean_over_a_symbolic_extent(check: Any, rng: Any) -> None:
    x = f32(rng, 5, 3)
    X = te.placeholder((te.var("n"), 3))
    check([X], [x], ops.mean(X, axes=[0]), x.mean(axis=0))


def test_reductions_name_a_missing_axis() -> None:
    with pytest.raises(UserError, match="there is no axis 2: the tensor has 2 dimensions"):
        ops.sum(te.placeholder((2, 2)), axes=[2])


# ---- shape --------------------------------------------------------------------------------------


def test_pad(check: Any, rng: Any) -> None:
    x = f32(rng, 2, 3)
    X = given(x)
    expected = np.pad(x, ((0, 1), (2, 0)), constant_values=5)
    check([X], [x], ops.pad(X, 5, before=(0, 2), after=(1, 0)), expected)
    check([X], [x], ops.pad(X, before=(1, 1), after=(1, 1)), np.pad(x, 1))
    check([X], [x], ops.pad(X, before=(1, -1), after=(0, 0)), np.pad(x[:, 1:], ((1, 0), (0, 0))))
    with pytest.raises(UserError, match="1 and 1 pads are given for 2 dimensions"):
        ops.pad(X, before=(1,), after=(1,))


def test_transpose(check: Any, rng: Any) -> None:
    x = f32(rng, 2, 3, 4)
    X = given(x)
    check([X], [x], ops.transpose(X), x.T)
    check([X], [x], ops.transpose(X, axes=(1, -1, 0)), x.transpose(1, 2, 0))
    with pytest.raises(UserError, match="name one axis twice"):
        ops.transpose(X, axes=(0, 0, 1))


@pytest.mark.parametrize("axis", [0, -1])
def test_concat(check: Any, rng: Any, axis: int) -> None:
    parts = [f32(rng, *(2, 3)[:1], 3) for _ in range(3)]
    tensors = [given(p, f"P{n}") for n, p in enumerate(parts)]
    check(tensors, parts, ops.concat(*tensors, axis=axis), np.concatenate(parts, axis))


def test_concat_of_different_extents(check: Any, rng: Any) -> None:
    a, b = f32(rng, 2, 1), f32(rng, 2, 4)
    A, B = te.placeholder((2, te.var("m")), name="A"), te.placeholder((2, te.var("n")), name="B")
    check([A, B], [a, b], ops.concat(A, B, axis=1), np.concatenate([a, b], 1))
    with pytest.raises(UserError, match="2 and 3"):
        ops.concat(A, te.placeholder((3, 1)), axis=1)


@pytest.mark.parametrize("shape", [(4, 6), (2, 12), (24,), (2, 3, 2, 2), (1, 2, 3, 1, 4), (3, -1)])
def test_reshape(check: Any, rng: Any, shape: tuple[int, ...]) -> None:
    x = f32(rng, 2, 3, 4)
    X = given(x)
    check([X], [x], ops.reshape(X, shape=shape), x.reshape(shape))


def test_reshape_of_scalars_and_symbolic_extents(check: Any, rng: Any) -> None:
    x, one = f32(rng, 5, 3, 4), f32(rng, 1, 1)
    n = te.var("n")
    X, One = te.placeholder((n, 3, 4)), given(one)
    check([X], [x], ops.reshape(X, shape=(n, -1)), x.reshape(5, 12))
    check([X], [x], ops.reshape(X, shape=(-1, 4)), x.reshape(15, 4))
    check([One], [one], ops.reshape(One, shape=()), one.reshape(()))
    flat = ops.reshape(X, shape=(n, 12))
    assert "n" not in str(flat.op.values[0]).split("[")[1].split(",")[0]  # type: ignore[attr-defined]


def test_reshape_refuses_another_size() -> None:
    X = te.placeholder((2, 3), name="X")
    with pytest.raises(UserError, match=r"X: f32\[2, 3\] cannot have the shape \[4, 2\]"):
        ops.reshape(X, shape=(4, 2))
    with pytest.raises(UserError, match="6 elements cannot be divided by 4"):
        ops.reshape(X, shape=(4, -1))
    with pytest.raises(UserError, match="more than one extent is -1"):
        ops.reshape(X, shape=(-1, -1))


@pytest.mark.parametrize("mode", ["check", "clip"])
def test_take(check: Any, rng: Any, mode: Any) -> None:
    x = f32(rng, 3, 5, 2)
    far = {"check": [0, -1, 4, -5], "clip": [-9, 2, 4, 9]}[mode]
    i = np.array([far, far[::-1]], "int32")
    X, At = given(x), given(i, "At")
    numpy_mode = "raise" if mode == "check" else mode
    expected = np.take(x, i, axis=1, mode=numpy_mode)
    check([X, At], [x, i], ops.take(X, At, axis=1, mode=mode), expected)
    with pytest.raises(UserError, match="there is no mode 'wrap'"):
        ops.take(X, At, mode="wrap")
    with pytest.raises(UserError, match="takes integer tensors"):
        ops.take(X, X)


# ---- what definitions are made of ---------------------------------------------------------------


def test_operators_that_are_made_of_others(check: Any, rng: Any) -> None:
    x = f32(rng, 2, 3, 4, 5)
    X = given(x)
    check([X], [x], ops.flatten(X), x.reshape(2, 60))
    check([X], [x], ops.global_avg_pool(X), x.mean(axis=(2, 3), keepdims=True))


def test_several_results(check: Any, rng: Any) -> None:
    x = f32(rng, 1, 2, 4, 4)
    X = given(x)
    best, places = ops.max_pool(X, kernel=(4, 4), return_indices=True)
    flat = x.reshape(2, 16)
    at = (flat.argmax(1) + np.array([0, 16])).reshape(1, 2, 1, 1)
    check([X], [x], [best, places], flat.max(1).reshape(1, 2, 1, 1), at)
    assert len(ops.split(X, axis=2, sizes=[1, 3])) == 2


def test_numbers_are_operands_too(check: Any, rng: Any) -> None:
    x = f32(rng, 3)
    X = given(x)
    check([X], [x], ops.mul(ops.add(X, 1.5), 0.25), (x + 1.5) / 4)


def test_results_have_names() -> None:
    X = te.placeholder((4, 4), name="X")
    assert ops.relu(X).name == "relu"
    named = ops.softmax(X, name="P")
    assert named.name == named.op.name == "P"
    with pytest.raises(UserError, match="cannot be called Y: it is not one"):
        ops.max_pool(te.placeholder((1, 1, 4, 4)), kernel=(2, 2), return_indices=True, name="Y")


def test_what_has_no_definition_is_refused() -> None:
    X = te.placeholder((4, 4), name="X")
    with pytest.raises(UserError, match="cumsum has no definition over tensors"):
        ops.cumsum(X)
    with pytest.raises(UserError, match="top_k has no definition over tensors"):
        ops.top_k(X, k=2)
    with pytest.raises(UserError, match="add takes tensors and numbers, not c: f32"):
        ops.add(X, np.ones((4, 4), np.float32))
    with pytest.raises(UserError, match="unknown operator matmull"):
        ops.matmull(X, X)
    with pytest.raises(UserError, match="sum has no attribute axis"):
        ops.sum(X, axis=1)


def test_all_are_listed() -> None:
    assert {"matmul", "conv", "softmax", "flatten"} <= set(dir(ops))
    assert "cumsum" not in dir(ops) and "exp(x)" in (ops.softmax.__doc__ or "")
