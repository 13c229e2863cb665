"""Operators of all families under the rules for GPUs: everything is in a launch, no race, and the
results are those of NumPy; for sizes that are known and for symbolic ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from tests.graph import harness
from tests.schedule.gpu.launches import execute_native

RNG = np.random.default_rng(3)
X = RNG.standard_normal((3, 4, 5)).astype("f4")
ROWS = RNG.standard_normal((6, 70)).astype("f4")
IMAGE = RNG.standard_normal((2, 4, 9, 9)).astype("f4")
FLAGS = RNG.random(40) < 0.4
#: Weights of a state of 6 elements, for 5 steps of a batch of 3, some of which end before.
GATES = RNG.standard_normal((5, 3, 6)).astype("f4")
STATE = RNG.integers(-127, 128, (1, 6, 6), "i1")
LENGTHS = np.array([5, 2, 4], "i4")
SCALES = np.abs(RNG.standard_normal((1, 6))).astype("f4") / 127


@pytest.fixture(autouse=True)
def on_a_gpu() -> Iterator[None]:
    with patch.object(harness, "_run", execute_native):
        yield


CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    # element by element, and moving elements
    ("add", [X, X[0, 0]], {}),
    ("exp", [X], {}),
    ("where", [X > 0, X, X[..., :1]], {}),
    ("cast", [X], {"dtype": "int32"}),
    ("transpose", [X], {"axes": [2, 0, 1]}),
    ("concat", [X, X], {"axis": 1}),
    ("pad", [X], {"before": [0, 1, 0], "after": [2, 0, 1]}),
    ("tile", [X], {"repeats": [1, 2, 1]}),
    # reductions
    ("sum", [X], {"axes": [0, 2]}),
    ("mean", [ROWS], {"axes": [1]}),
    ("max", [X], {"axes": [0, 1, 2]}),
    ("argmax", [ROWS], {"axis": 0}),
    ("softmax", [ROWS], {"axis": -1}),
    ("log_softmax", [X], {"axis": 1}),
    ("layer_norm", [ROWS, ROWS[0], ROWS[1]], {}),
    ("rms_norm", [ROWS, ROWS[0]], {}),
    ("instance_norm", [IMAGE, X[0, 0, :4], X[1, 0, :4]], {}),
    ("cumsum", [X], {"axis": 1}),
    # products
    ("matmul", [ROWS, ROWS.T.copy()], {}),
    ("matmul", [X, X.transpose(0, 2, 1).copy()], {}),
    ("conv", [IMAGE, RNG.standard_normal((8, 4, 3, 3)).astype("f4")], {"pads": [1, 1, 1, 1]}),
    ("conv", [IMAGE, RNG.standard_normal((4, 1, 3, 3)).astype("f4")], {"groups": 4}),
    ("max_pool", [IMAGE], {"kernel": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("avg_pool", [IMAGE], {"kernel": [2, 2]}),
    # step by step; lengths are smaller numbers than sizes
    ("rnn_scan", [GATES, STATE, LENGTHS, None, SCALES], {}),
    # by index, in order, and of a number that depends on data
    ("gather", [X, np.array([[1, -1], [0, 2]])], {"axis": 1}),
    ("gather_nd", [X, RNG.integers(0, 3, (6, 2))], {}),
    ("scatter_elements", [ROWS, RNG.permutation(6)[:, None], ROWS[:, :1].copy()], {"axis": 0}),
    ("scatter_nd", [X, np.array([[1], [0]]), X[:2].copy()], {}),
    ("sort", [ROWS], {"axis": -1}),
    ("top_k", [ROWS], {"k": 5}),
    ("non_zero", [X > 0], {}),
    ("unique", [RNG.integers(0, 9, 30)], {}),
    ("true_places", [FLAGS], {}),
    ("det", [X[:, :4, :4].copy()], {}),
]


@pytest.mark.parametrize(("name", "inputs", "attrs"), CASES, ids=[c[0] for c in CASES])
def test_operators(name: str, inputs: list[Any], attrs: dict[str, Any]) -> None:
    is_symbolic = name not in ("pad", "tile", "top_k", "concat", "gather_nd", "scatter_elements")
    harness.check(name, inputs, symbolic=is_symbolic, rtol=1e-4, atol=1e-5, **attrs)
