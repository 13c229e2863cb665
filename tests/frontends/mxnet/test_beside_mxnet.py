"""All operators, and networks from published definitions, beside MXNet itself, where
`TILEWRIGHT_MXNET_PYTHON` names a Python that has it (`make test-published` makes one)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.frontends.mxnet.zoo import DETECTORS, NETWORKS
from tests.frontends.nearness import assert_all_near
from tilewright.frontends import read_model
from tilewright.graph import evaluate

PYTHON = os.environ.get("TILEWRIGHT_MXNET_PYTHON", "")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that MXNet answers."""
    if not PYTHON:
        pytest.skip("TILEWRIGHT_MXNET_PYTHON names no Python that has MXNet")
    folder = tmp_path_factory.mktemp("mxnet")
    script = Path(__file__).with_name("peer.py")
    subprocess.run([*PYTHON.split(), str(script), str(folder)], check=True, timeout=600)
    return folder


def test_operators(answers: Path) -> None:
    cases = sorted(c for c in answers.glob("*.npz") if not c.name.startswith("zoo_"))
    faults = [f"{c.stem}: {fault}" for c in cases if (fault := difference(c))]
    assert len(cases) > 150 and not faults, "\n".join(faults)


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(answers: Path, name: str) -> None:
    inputs, wanted = _read(answers / f"zoo_{name}.npz")
    shapes = {k: list(v.shape) for k, v in inputs.items()}
    model = tw.compile(answers / f"zoo_{name}-symbol.json", shapes=shapes)
    found = model.run(inputs)
    if name in DETECTORS:
        found, wanted = _by_class(*found), _by_class(*wanted)
    assert_all_near(found, wanted)


def _by_class(classes: Any, scores: Any, boxes: Any) -> list[Any]:
    """What is found by class, and by score within a class: rounding may exchange others."""
    order = np.lexsort((-scores[0, :, 0], classes[0, :, 0]))
    return [part[:, order] for part in (classes, scores, boxes)]


def difference(case: Path) -> str:
    """How our answer differs from MXNet's, if it does."""
    inputs, wanted = _read(case)
    try:
        shapes = {k: list(v.shape) for k, v in inputs.items()}
        module = read_model(case.with_name(f"{case.stem}-symbol.json"), shapes)
        given = {p.name: inputs[p.name].astype(p.dtype.numpy) for p in module.main.params}
        found = evaluate(module, given)
        for f, w in zip(found, wanted, strict=True):
            np.testing.assert_allclose(f, w, rtol=1e-3, atol=1e-4)
    except (AssertionError, Exception) as error:
        return f"{type(error).__name__}: {str(error)[:600]}"
    return ""


def _read(case: Path) -> tuple[dict[str, Any], list[Any]]:
    """What MXNet was given, and what it answered."""
    with np.load(case) as data:
        inputs = {k: data[k] for k in data.files if not k.startswith("_")}
        return inputs, [data[f"_{k}"] for k in range(len(data.files) - len(inputs))]
