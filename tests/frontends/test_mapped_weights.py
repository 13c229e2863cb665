"""Reading a file leaves its weights where they are: the process does not grow by them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_PATH = Path(__file__).parents[2] / "benchmarks" / "reading.py"


def _benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("reading", _PATH)
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    sys.modules["reading"] = made
    spec.loader.exec_module(made)
    return made


reading = _benchmark()
#: Matrices of 4 MB.
COUNT, WIDTH = 12, 1024


@pytest.mark.parametrize("name", reading.FORMATS)
def test_weights_are_mapped(name: str, tmp_path: Path) -> None:
    folder, needed, write = reading.FORMATS[name]
    pytest.importorskip(needed)
    steps = [np.full((WIDTH, WIDTH), k, np.float32) for k in range(COUNT)]
    path, options = write(tmp_path, steps)
    _, own, _, nodes = reading.reading(folder, path, options)
    assert nodes >= COUNT
    # All of the weights are 48 MB.
    assert own < 20
