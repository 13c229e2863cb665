"""Every layer beside Keras itself, where it is installed; both file formats."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frontends.keras.peer_cases import cases
from tilewright.frontends.keras import from_keras
from tilewright.graph import evaluate

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
keras: Any = pytest.importorskip("keras")
CASES = cases(keras)
#: `.h5` files of Keras 3 lose what these need.
_ONLY_NEW = {"rnn_of_cells"}


def arrays(model: Any, seed: int = 0) -> list[Any]:
    """Inputs for a model; what is open is 3."""
    rng = np.random.default_rng(seed)
    made = []
    for x in model.inputs:
        shape = [3 if d is None else d for d in x.shape]
        if x.dtype == "bool":
            made.append(rng.integers(0, 2, shape).astype(bool) | (np.arange(shape[-1]) == 0))
        elif "int" in x.dtype:
            made.append(rng.integers(0, 3, shape).astype(x.dtype))
        else:
            made.append(rng.standard_normal(shape).astype(x.dtype))
    return made


def randomized(model: Any) -> Any:
    """The model with weights that are not zeros and ones."""
    rng = np.random.default_rng(1)
    for v in model.weights:
        if np.issubdtype(np.dtype(v.dtype), np.floating):
            low = 0.5 if "variance" in v.name else -0.5
            v.assign(rng.uniform(low, 1, v.shape))
    return model


def expected(model: Any, given: list[Any]) -> list[Any]:
    names = [x.name for x in model.inputs]
    is_dict = isinstance(getattr(model, "_inputs_struct", None), dict)
    result = model(dict(zip(names, given, strict=True)) if is_dict else given, training=False)
    flat = result if isinstance(result, list | tuple) else [result]
    return [np.asarray(v) for v in flat]


@pytest.mark.parametrize("name", CASES)
def test_layers(name: str, tmp_path: Path) -> None:
    model = randomized(CASES[name]())
    given = arrays(model)
    wanted = expected(model, given)
    for ending in ("keras",) if name in _ONLY_NEW else ("keras", "h5"):
        path = tmp_path / f"model.{ending}"
        model.save(path)
        found = evaluate(from_keras(path), given)
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
