"""Compiles a small classifier and writes it as a library for C."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright.graph import Builder


def classifier() -> tw.graph.Module:
    """Two layers on rows of 24 features, any number of rows."""
    rng = np.random.default_rng(0)
    b = Builder()
    x = b.input("x", "f32", ("rows", 24))
    hidden = b.relu(b.matmul(x, rng.standard_normal((24, 40)).astype(np.float32)))
    b.output(b.softmax(b.matmul(hidden, rng.standard_normal((40, 10)).astype(np.float32))))
    return b.build()


def main(folder: Path) -> None:
    model = tw.compile(classifier())
    model.export_library(folder / "classifier.a", folder / "classifier.h")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
