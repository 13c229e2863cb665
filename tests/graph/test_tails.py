"""Kernels end where what they give is narrow: what follows goes with what reads it."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder, Module, passes
from tilewright.graph.ir import Fused
from tilewright.target import Target


def sums(narrow: str, *, read_twice: bool = False) -> Module:
    """Two products, of which the first is rounded to a narrow type on its way to their sum."""
    b = Builder()
    x = b.input("x", "f32", (5, 7))
    first, second = (b.matmul(x, b.input(name, "f32", (7, 6))) for name in "vw")
    rounded = b.mul(b.cast(b.cast(first, dtype=narrow), dtype="f32"), np.float32(0.5))
    made = b.add(rounded, b.relu(second))
    b.output(*([made, b.transpose(rounded, axes=(1, 0))] if read_twice else [made]))
    return b.build()


def kernels(module: Module) -> list[list[str]]:
    """The types that each kernel gives."""
    fused = passes.fuse(Target.of("llvm"))(module)
    return [[v.dtype.name for v in b.outputs] for b in fused.main.body if isinstance(b.expr, Fused)]


@pytest.mark.parametrize("narrow", ["f16", "i8"])
def test_what_lies_between_two_kernels_is_narrow(narrow: str) -> None:
    name = {"f16": "float16", "i8": "int8"}[narrow]
    assert kernels(sums(narrow)) == [[name], ["float32"]]


def test_nothing_is_moved_where_nothing_is_narrower() -> None:
    assert kernels(sums("f64")) == [["float32"], ["float32"]]


def test_what_others_read_stays() -> None:
    assert ["float32"] in kernels(sums("f16", read_twice=True))[:1]


@pytest.mark.parametrize("narrow", ["f16", "i8", "f64"])
def test_answers(narrow: str) -> None:
    chance = np.random.default_rng(3)
    x, v, w = (chance.standard_normal(s).astype("f4") for s in ((5, 7), (7, 6), (7, 6)))
    (found,) = tw.compile(sums(narrow)).run([x, v, w])
    rounded = (x @ v).astype({"f16": "f2", "i8": "i1", "f64": "f8"}[narrow]).astype("f4")
    want = rounded * np.float32(0.5) + np.maximum(x @ w, 0)
    # A number between two of the narrow type may be rounded to either.
    step = {"f16": 2e-3, "i8": 0.5, "f64": 1e-5}[narrow]
    assert np.abs(found - want).max() <= step
    assert np.abs(found - want).mean() <= step / 10
