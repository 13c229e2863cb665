"""Definitions and arrays that several tests of this room start from."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import Block, Function, walk
from tilewright.tensor import te

Array = np.ndarray[Any, Any]


def blocks(function: Function) -> list[Block]:
    return [s for s in walk(function.body) if isinstance(s, Block)]


def f32(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype("float32")


def matmul(m: Any = 3, n: Any = 4, depth: Any = 5) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    A, B = te.placeholder((m, depth), name="A"), te.placeholder((depth, n), name="B")
    k = te.reduce_axis(depth, name="k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return A, B, C
