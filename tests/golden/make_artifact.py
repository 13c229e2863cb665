"""Writes tests/golden/v1.twm: one small model for the least machines of two kinds.

The file stays as it is: artifacts of version 1 must load for as long as that version is read. This
script tells how it came to be.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tilewright as tw
from tilewright.graph import Builder, Module

TRIPLES = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")


def network() -> Module:
    b = Builder()
    x = b.input("x", "f32", ("n", 6))
    w = (np.arange(24, dtype=np.float32) - 12).reshape(6, 4)
    b.output(b.relu(b.matmul(x, w) + np.float32(0.5)))
    return b.build()


if __name__ == "__main__":
    models = [tw.compile(network(), target=f"llvm -mtriple={t} -num-cores=1") for t in TRIPLES]
    tw.save(models, Path(__file__).parent / "v1.twm")
