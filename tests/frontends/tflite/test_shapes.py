"""Operators on shapes, parts, places and axes, beside NumPy and LiteRT."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontends.tflite.cases import (
    Case,
    Fixed,
    case,
    fixed,
    flags,
    floats,
    integers,
    scalar,
)
from tests.frontends.tflite.peer import lite, ours, require_close

X = floats(2, 3, 4)
I32, I64 = np.int32, np.int64


def top(x: Any) -> list[Any]:
    order = np.argsort(-x, axis=-1, kind="stable")[..., :2]
    return [np.take_along_axis(x, order, -1), order.astype(I32)]


def batches_to_space(x: Any) -> Any:
    n, h, w, c = x.shape
    y = x.reshape(2, 2, n // 4, h, w, c).transpose(2, 3, 0, 4, 1, 5)
    return y.reshape(n // 4, 2 * h, 2 * w, c)[:, 1:, :-1]


def space_to_batches(x: Any) -> Any:
    y = np.pad(x, ((0, 0), (1, 1), (0, 0), (0, 0)))
    n, h, w, c = y.shape
    y = y.reshape(n, h // 2, 2, w // 2, 2, c).transpose(2, 4, 0, 1, 3, 5)
    return y.reshape(4 * n, h // 2, w // 2, c)


def depth_to_space(x: Any) -> Any:
    n, h, w, c = x.shape
    y = x.reshape(n, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(n, 2 * h, 2 * w, c // 4)


def space_to_depth(x: Any) -> Any:
    n, h, w, c = x.shape
    y = x.reshape(n, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(n, h // 2, w // 2, 4 * c)


def scattered(i: Any, u: Any, _: Any) -> Any:
    y = np.zeros((5, 3), np.float32)
    np.add.at(y, i[:, 0], u)
    return y


def written(x: Any, u: Any, i: Any) -> Any:
    y = x.copy()
    r, c = np.clip(i, 0, np.array(x.shape) - u.shape)
    y[r : r + u.shape[0], c : c + u.shape[1]] = u
    return y


def first_seen(x: Any) -> list[Any]:
    _, first, inverse = np.unique(x, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return [x[np.sort(first)], np.argsort(order)[inverse].astype(I32)]


def strided(starts: Any, ends: Any, steps: Any, index: Any, **masks: Any) -> Case:
    operands = [X, fixed(*starts), fixed(*ends), fixed(*steps)]
    return case("STRIDED_SLICE", operands, lambda x, *_: x[index], **masks)


CASES: dict[str, Case] = {
    "reshape": case("RESHAPE", [X, fixed(4, -1)], lambda x, s: x.reshape(s), shape=[4, -1]),
    "reshape_by_option": case("RESHAPE", [X], lambda x: x.reshape(6, 4), shape=[6, 4]),
    "squeeze": case("SQUEEZE", [floats(1, 3, 1, 2)], np.squeeze),
    "squeeze_one": case("SQUEEZE", [floats(1, 3, 1)], lambda x: x[..., 0], dims=[-1]),
    "expand_dims": case("EXPAND_DIMS", [X, scalar(-1)], lambda x, _: x[..., None]),
    "transpose": case("TRANSPOSE", [X, fixed(2, 0, 1)], np.transpose),
    "shape": case("SHAPE", [X], lambda x: np.array(x.shape, I32), type=2),
    "rank": case("RANK", [X], lambda x: np.array(x.ndim, I32)),
    "broadcast_to": case(
        "BROADCAST_TO",
        [floats(3, 1), fixed(2, 3, 4)],
        lambda x, s: np.broadcast_to(x, s),
        version=2,
    ),
    "broadcast_args": case(
        "BROADCAST_ARGS", [fixed(3, 1), fixed(2, 1, 4)], lambda *_: np.array([2, 3, 4], I32)
    ),
    "fill": case("FILL", [fixed(2, 3), floats()], lambda s, v: np.full(s, v)),
    "range": case(
        "RANGE", [scalar(2), scalar(11), scalar(3)], lambda *r: np.arange(*r).astype(I32)
    ),
    "tile": case("TILE", [X, fixed(1, 2, 3)], np.tile),
    "slice": case("SLICE", [X, fixed(0, 1, 2), fixed(2, 2, -1)], lambda x, *_: x[:, 1:3, 2:]),
    "strided": strided([0, 2, 1], [2, 0, 4], [1, -1, 2], np.s_[0:2, 2:0:-1, 1:4:2]),
    "strided_masks": strided(
        [1, 0, 0], [2, 9, 9], [1, 1, -1], np.s_[:, 0, ::-1], begin=5, end=5, shrink=2
    ),
    "strided_last": strided([0, -1], [2, 0], [1, 1], np.s_[0:2, -1], shrink=2),
    "strided_new": strided(
        [0, 0, 1], [0, 0, 3], [1, 1, 1], np.s_[None, ..., 1:3], new_axis=1, ellipsis=2
    ),
    "split": case("SPLIT", [scalar(1), floats(2, 6)], lambda _, x: np.split(x, 3, 1), count=3),
    "split_v": case(
        "SPLIT_V",
        [floats(2, 6), fixed(1, -1, 2), scalar(1)],
        lambda x, *_: np.split(x, [1, 4], 1),
        count=3,
    ),
    "unpack": case("UNPACK", [X], lambda x: list(np.moveaxis(x, 1, 0)), count=3, axis=1),
    "pack": case("PACK", [X, X], lambda a, b: np.stack([a, b], 1), count=2, axis=1),
    "concat": case(
        "CONCATENATION", [X, floats(2, 1, 4)], lambda a, b: np.concatenate([a, b], 1), axis=1
    ),
    "pad": case("PAD", [X, Fixed(np.array([[0, 0], [1, 2], [0, 3]], I32))], np.pad),
    "pad_v2": case(
        "PADV2",
        [X, Fixed(np.array([[0, 0], [1, 2], [0, 3]], I32)), Fixed(np.float32(5))],
        lambda x, p, v: np.pad(x, p, constant_values=v),
    ),
    "mirror_reflect": case(
        "MIRROR_PAD",
        [X, Fixed(np.array([[0, 0], [1, 2], [0, 3]], I32))],
        lambda x, p: np.pad(x, p, "reflect"),
        mode=0,
    ),
    "mirror_symmetric": case(
        "MIRROR_PAD",
        [X, Fixed(np.array([[0, 0], [1, 2], [0, 3]], I32))],
        lambda x, p: np.pad(x, p, "symmetric"),
        mode=1,
    ),
    "reverse": case("REVERSE_V2", [X, fixed(1)], lambda x, _: x[:, ::-1]),
    "reverse_sequence": case(
        "REVERSE_SEQUENCE",
        [floats(2, 4), fixed(2, 3)],
        lambda x, _: np.stack([x[0][[1, 0, 2, 3]], x[1][[2, 1, 0, 3]]]),
        time=1,
        batch=0,
    ),
    "depth_to_space": case("DEPTH_TO_SPACE", [floats(1, 2, 3, 8)], depth_to_space, block_size=2),
    "space_to_depth": case("SPACE_TO_DEPTH", [floats(1, 4, 6, 3)], space_to_depth, block_size=2),
    "space_to_batch": case(
        "SPACE_TO_BATCH_ND",
        [floats(2, 4, 6, 3), fixed(2, 2), Fixed(np.array([[1, 1], [0, 0]], I32))],
        lambda x, *_: space_to_batches(x),
    ),
    "batch_to_space": case(
        "BATCH_TO_SPACE_ND",
        [floats(8, 3, 2, 3), fixed(2, 2), Fixed(np.array([[1, 0], [0, 1]], I32))],
        lambda x, *_: batches_to_space(x),
    ),
    "gather": case("GATHER", [X, fixed(2, 0)], lambda x, i: x[:, i], axis=1),
    "gather_batches": case(
        "GATHER",
        [X, Fixed(np.array([[0, 2, 1], [3, 3, 0]], I32))],
        lambda x, i: np.stack([x[k][:, i[k]] for k in range(2)]),
        axis=2,
        batch_dims=1,
    ),
    "gather_nd": case(
        "GATHER_ND",
        [X, Fixed(np.array([[0, 1], [1, 2]], I32))],
        lambda x, i: x[i[:, 0], i[:, 1]],
    ),
    "scatter_nd": case(
        "SCATTER_ND", [Fixed(np.array([[1], [3], [1]], I32)), floats(3, 3), fixed(5, 3)], scattered
    ),
    "one_hot": case(
        "ONE_HOT",
        [integers(2, 3, low=0, high=4), scalar(4), scalar(5, "float32"), scalar(-1, "float32")],
        lambda i, *_: np.where(np.eye(4, dtype=bool)[i], 5, -1).astype(np.float32),
        axis=-1,
    ),
    "where": case("WHERE", [flags(3, 4)], lambda x: np.argwhere(x).astype(I64)),
    "unique": case("UNIQUE", [integers(9, low=0, high=4)], first_seen, type=2),
    "matrix_diag": case(
        "MATRIX_DIAG", [floats(2, 3)], lambda x: x[..., None] * np.eye(3, dtype="f")
    ),
    "matrix_set_diag": case(
        "MATRIX_SET_DIAG",
        [floats(2, 3, 3), floats(2, 3)],
        lambda x, d: np.where(np.eye(3, dtype=bool), d[..., None], x),
    ),
    "segment_sum": case(
        "SEGMENT_SUM", [floats(4, 2), fixed(0, 0, 1, 2)], lambda x, _: np.add.reduceat(x, [0, 2, 3])
    ),
    "unsorted_segment_max": case(
        "UNSORTED_SEGMENT_MAX",
        [floats(4, 2), fixed(1, 0, 1, 0), scalar(2)],
        lambda x, *_: np.stack([x[1::2].max(0), x[::2].max(0)]),
    ),
    "dynamic_update_slice": case(
        "DYNAMIC_UPDATE_SLICE", [floats(4, 5), floats(2, 3), integers(2, low=1, high=4)], written
    ),
    "sum": case("SUM", [X, fixed(0, 2)], lambda x, _: x.sum((0, 2))),
    "mean": case("MEAN", [X, fixed(-1)], lambda x, _: x.mean(-1, keepdims=True), keep_dims=True),
    "prod": case("REDUCE_PROD", [X, fixed(1)], lambda x, _: x.prod(1)),
    "max": case("REDUCE_MAX", [X, fixed(1)], lambda x, _: x.max(1)),
    "min": case("REDUCE_MIN", [X, fixed(1)], lambda x, _: x.min(1)),
    "any": case("REDUCE_ANY", [flags(3, 4), fixed(1)], lambda x, _: x.any(1)),
    "all": case("REDUCE_ALL", [flags(3, 4), fixed(1)], lambda x, _: x.all(1)),
    "arg_max": case("ARG_MAX", [X, scalar(1)], lambda x, _: x.argmax(1).astype(I32), type=2),
    "arg_min": case("ARG_MIN", [X, scalar(-1)], lambda x, _: x.argmin(-1), type=4),
    "top_k": case("TOPK_V2", [X, scalar(2)], lambda x, _: top(x)),
    "cumsum": case("CUMSUM", [X, scalar(1)], lambda x, _: x.cumsum(1)),
    "cumsum_exclusive": case(
        "CUMSUM",
        [X, scalar(2)],
        lambda x, _: np.flip(np.cumsum(np.flip(x, 2), 2), 2) - x,
        exclusive=True,
        reverse=True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_beside_numpy(name: str) -> None:
    c = CASES[name]
    require_close(ours(c.data, *c.inputs), c.wanted)


@pytest.mark.parametrize("name", CASES)
def test_beside_litert(name: str) -> None:
    c = CASES[name]
    require_close(ours(c.data, *c.inputs), lite(c.data, *c.inputs))
