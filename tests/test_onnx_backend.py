"""ONNX's interface for back ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import tilewright.onnx_backend as backend
from tests.frontends.onnx.models import info, make, node
from tests.networks import random
from tilewright.support.errors import UserError

X = random(3, 4)


def test_a_model_is_prepared_once_and_run_often() -> None:
    model = make([node("Relu", ["x"]), node("Neg", ["x"], ["z"])], [info("x", shape=[3, 4])], "yz")
    prepared = backend.prepare(model)
    for given in ([X], {"x": X}, X):
        outputs: Any = prepared.run(given)
        np.testing.assert_array_equal(outputs.y, np.maximum(X, 0))
        np.testing.assert_array_equal(outputs[1], -X)
    np.testing.assert_array_equal(backend.run_model(model, [X], opt_level=0)[1], -X)


def test_one_node_is_run() -> None:
    add = helper.make_node("Add", ["a", "b"], ["c"])
    for given in ([X, X], {"a": X, "b": X}):
        np.testing.assert_array_equal(backend.run_node(add, given)[0], X + X)
    twice = helper.make_node("Add", ["a", "a"], ["c"])
    np.testing.assert_array_equal(backend.run_node(twice, X, opset_version=13)[0], X + X)
    with pytest.raises(UserError, match="the node takes a, b"):
        backend.run_node(add, [X])


def test_devices() -> None:
    assert backend.supports_device("CPU") and backend.supports_device("CPU:0")
    assert not backend.supports_device("CUDA:0") and not backend.supports_device("CPU:1")
    model = make([node("Relu", ["x"])], [info("x", shape=[3])], ["y"])
    with pytest.raises(UserError, match="device CUDA"):
        backend.prepare(model, "CUDA")
