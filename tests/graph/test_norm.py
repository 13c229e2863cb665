"""Normalisations against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.graph.harness import check
from tests.graph.interpreted import check_definition
from tilewright.graph import Builder
from tilewright.support.errors import UserError

RNG = np.random.default_rng(9)
LOOSE: Any = {"rtol": 1e-4, "atol": 1e-5}


def normal(*shape: int, dtype: Any = "f4") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def positive(*shape: int) -> Any:
    return np.abs(normal(*shape)) + 0.5


def test_batch_norm() -> None:
    x, params = normal(2, 3, 5, 7), [normal(3), normal(3), normal(3), positive(3)]
    check("batch_norm", [x, *params], **LOOSE)
    check_definition("batch_norm", [x[:, :, 0, 0], *params], epsilon=0.1, **LOOSE)
    check_definition("batch_norm", [x.astype("f2"), *params], symbolic=False)
    check("batch_norm_training", [x, *params], momentum=0.7, symbolic=False, **LOOSE)
    check_definition("batch_norm_training", [x[..., 0], *params], **LOOSE)


def test_instance_and_group_norm() -> None:
    x, s, b = normal(2, 4, 3, 5), normal(4), normal(4)
    check("instance_norm", [x, s, b], symbolic=False, **LOOSE)
    check_definition("instance_norm", [x[..., 0], s, b], epsilon=0.1, **LOOSE)
    check("group_norm", [x, s, b], groups=2, symbolic=False, **LOOSE)
    check_definition("group_norm", [x, s, b], groups=2, **LOOSE)
    check_definition("group_norm", [x[:, :, 0, 0], s, b], groups=1, **LOOSE)
    check_definition("group_norm", [x.astype("f2"), s, b], groups=4, symbolic=False, atol=2e-3)


def test_mean_variance_norm_and_lrn() -> None:
    x = normal(2, 3, 4, 5)
    check("mean_variance_norm", [x], symbolic=False, **LOOSE)
    check_definition("mean_variance_norm", [x], axes=[-1], **LOOSE)
    for size in (1, 2, 3, 5):
        check_definition("lrn", [x], size=size, alpha=0.5, beta=0.6, bias=2.0, **LOOSE)
    check("lrn", [x], size=3, symbolic=False)


def test_layer_norm() -> None:
    x, s, b = normal(3, 4, 17), normal(17), normal(17)
    check("layer_norm", [x, s, b], **LOOSE)
    check_definition("layer_norm", [x], **LOOSE)
    check_definition("layer_norm", [x, None, b], return_stats=True, **LOOSE)
    check_definition("layer_norm", [x, s], epsilon=0.1, symbolic=False, **LOOSE)
    check_definition("layer_norm", [x, normal(4, 17), normal(4, 17)], axis=1, **LOOSE)
    half = [a.astype("f2") for a in (x, s, b)]
    check_definition("layer_norm", half, return_stats=True, symbolic=False, rtol=1e-3, atol=1e-3)
    check("layer_norm", [x, s, b], return_stats=True, symbolic=False, **LOOSE)


def test_rms_and_lp_norm() -> None:
    x = normal(3, 4, 9)
    check("rms_norm", [x, normal(9)], symbolic=False, **LOOSE)
    check_definition("rms_norm", [x], axis=-2, **LOOSE)
    check_definition("rms_norm", [x.astype("f2"), normal(9)], symbolic=False, atol=1e-3)
    x[0] = 0
    for p in (1, 2):
        check_definition("lp_norm", [x], p=p)
        check_definition("lp_norm", [x], p=p, axis=1)
    check("lp_norm", [x], symbolic=False)


def test_what_is_refused() -> None:
    b = Builder()
    x, three = b.input("x", "f32", ("n", 4, 8)), b.input("s", "f32", (3,))
    with pytest.raises(UserError, match="s and the channels of x differ: 3 and 4"):
        b.instance_norm(x, three, three)
    with pytest.raises(UserError, match="channels in groups: 4 is not a multiple of 3"):
        b.group_norm(x, np.ones(4, "f4"), np.ones(4, "f4"), groups=3)
    with pytest.raises(UserError, match="cannot be broadcast"):
        b.layer_norm(x, three)
    with pytest.raises(UserError, match="no 3-norm"):
        b.lp_norm(x, p=3)
