"""Damaged and malicious files: each is converted, or refused with a `UserError`, soon."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.frontends.hostile.damage import damaged
from tests.frontends.onnx.hostile.damage import bend
from tests.frontends.onnx.hostile.seeds import network, program
from tests.frontends.onnx.models import info, make, node
from tilewright.frontends import from_onnx
from tilewright.support.errors import UserError

MODELS = [network, program]


def refused(data: bytes) -> bool:
    """Whether a file is refused; anything but a `UserError` is a fault, and so is a long time."""
    start = time.process_time()
    try:
        from_onnx(data)
        return False
    except UserError:
        return True
    finally:
        assert time.process_time() - start < 10


@pytest.mark.parametrize("make_model", MODELS)
def test_the_models_are_sound_before_they_are_damaged(make_model: Callable[[], Any]) -> None:
    assert not refused(make_model().SerializeToString())


@pytest.mark.parametrize("make_model", MODELS)
def test_damaged_bytes(make_model: Callable[[], Any]) -> None:
    data, rng = make_model().SerializeToString(), random.Random(1)
    outcomes = [refused(damaged(data, rng)) for _ in range(700)]
    assert sum(outcomes) > 100


@pytest.mark.parametrize("make_model", MODELS)
def test_files_that_lie(make_model: Callable[[], Any]) -> None:
    rng = random.Random(2)
    outcomes: list[bool] = []
    for _ in range(400):
        model = make_model()
        for _ in range(rng.choice([1, 1, 2, 3])):
            bend(model, rng)
        outcomes.append(refused(model.SerializeToString()))
    assert sum(outcomes) > 100


def test_memory_stays_bounded() -> None:
    """Dimensions that no machine could hold, where a careless reader would allocate them."""
    huge = 1 << 30
    absurd = [
        [node("ConstantOfShape", ["s"], ["y"])],
        [node("Expand", ["x", "s"], ["y"])],
        [node("Tile", ["x", "s"], ["y"])],
        [node("Split", ["x"], [f"y{k}" for k in range(3)], num_outputs=huge)],
        [node("ConstantOfShape", ["s"], ["t"]), node("ReduceSum", ["x", "t"], ["y"])],
    ]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for nodes in absurd:
        constants = {"s": np.array([huge, huge])}
        model = make(nodes, [info("x", shape=[1, 1])], [nodes[-1].output[0]], constants)
        refused(model.SerializeToString())
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert growth < 200 * 1024, f"it grew by {growth >> 10} MiB"
