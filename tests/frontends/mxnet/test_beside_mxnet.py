"""All operators beside MXNet itself, where `TILEWRIGHT_MXNET_PYTHON` names a Python that has it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tilewright.frontends import read_model
from tilewright.graph import evaluate

PYTHON = os.environ.get("TILEWRIGHT_MXNET_PYTHON", "")


@pytest.mark.skipif(not PYTHON, reason="TILEWRIGHT_MXNET_PYTHON names no Python that has MXNet")
def test_beside_mxnet(tmp_path: Path) -> None:
    script = Path(__file__).with_name("peer.py")
    subprocess.run([*PYTHON.split(), str(script), str(tmp_path)], check=True, timeout=600)
    cases = sorted(tmp_path.glob("*.npz"))
    faults = [f"{c.stem}: {fault}" for c in cases if (fault := difference(c))]
    assert len(cases) > 150 and not faults, "\n".join(faults)


def difference(case: Path) -> str:
    """How our answer differs from MXNet's, if it does."""
    with np.load(case) as data:
        inputs = {k: data[k] for k in data.files if not k.startswith("_")}
        wanted = [data[f"_{k}"] for k in range(len(data.files) - len(inputs))]
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
