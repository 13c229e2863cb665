"""Large products whose rows are no whole vectors: operands are padded before them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.compile import graph_passes
from tilewright.graph import Builder, PassContext, PassVerifier, run_passes
from tilewright.graph import Module as Graph
from tilewright.graph.ir import Call
from tilewright.graph.passes import pad_operands
from tilewright.target import Target

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pad_operands.__globals__, "_LEAST", 1)


def numbers(*shape: int) -> Array:
    drawn = np.random.default_rng(sum(shape)).integers(-3, 4, shape)
    return drawn.astype("float16")


def product(a: tuple[int, ...], b: Any, **flags: bool) -> Graph:
    """Of two inputs, or of an input and a constant."""
    builder = Builder()
    x = builder.input("x", "f16", a)
    y = builder.input("y", "f16", b) if isinstance(b, tuple) else builder.constant(b)
    builder.output(builder.matmul(x, y, **flags))
    return builder.build()


def names(graph: Graph, target: str = "simt") -> list[str]:
    with PassContext(instruments=[PassVerifier()]):
        made = run_passes(graph, graph_passes(Target.of(target)))
    return [b.expr.op.name for b in made.main.body if isinstance(b.expr, Call)]


@pytest.mark.parametrize(
    ("a", "b", "flags", "wanted"),
    [
        ((33, 35), (35, 39), "", ["pad", "pad", "matmul", "slice"]),
        ((33, 32), (32, 39), "", ["pad", "matmul", "slice"]),
        ((33, 35), (39, 35), "b", ["pad", "pad", "matmul"]),
        ((35, 33), (35, 40), "a", ["pad", "matmul", "slice"]),
        ((2, 33, 35), (2, 35, 40), "", ["pad", "pad", "matmul"]),
        ((3, 17, 35), (35, 9), "", ["pad", "pad", "matmul", "slice"]),
        ((33, 32), (32, 40), "", ["matmul"]),
        ((35, 33), (39, 35), "ab", ["pad", "pad", "matmul", "slice"]),
        ((1, 1), (1, 1), "", ["pad", "pad", "matmul", "slice"]),
    ],
)
def test_products(a: tuple[int, ...], b: tuple[int, ...], flags: str, wanted: list[str]) -> None:
    graph = product(a, b, transpose_a="a" in flags, transpose_b="b" in flags)
    assert names(graph) == wanted
    x, y = numbers(*a), numbers(*b)
    left = x.swapaxes(-1, -2) if "a" in flags else x
    right = y.swapaxes(-1, -2) if "b" in flags else y
    (found,) = tw.compile(graph, target="simt").run([x, y])
    np.testing.assert_array_equal(found, left.astype("f4") @ right.astype("f4"))


def test_constants_are_padded_once() -> None:
    x, w = numbers(33, 32), numbers(32, 39)
    graph = product((33, 32), w)
    assert "pad" not in names(graph)
    (found,) = tw.compile(graph, target="simt").run([x])
    np.testing.assert_array_equal(found, x.astype("f4") @ w.astype("f4"))


def test_infinity_is_not_multiplied_by_padding() -> None:
    """Both operands end in zeros."""
    x, y = numbers(16, 35), numbers(35, 16)
    x[3, 34], y[34, 5] = np.inf, np.nan
    (found,) = tw.compile(product((16, 35), (35, 16)), target="simt").run([x, y])
    with np.errstate(invalid="ignore"):
        want = x.astype("f4") @ y.astype("f4")
    np.testing.assert_array_equal(found, want.astype("f2"))


@pytest.mark.parametrize("target", ["cuda -arch=sm_70", "llvm"])
def test_without_tensor_instructions_nothing_is_padded(target: str) -> None:
    assert "pad" not in names(product((33, 35), (35, 39)), target)


def test_sizes_that_are_free_are_left_alone() -> None:
    builder = Builder()
    x, y = builder.input("x", "f16", ("n", 35)), builder.input("y", "f16", (35, 39))
    builder.output(builder.matmul(x, y))
    assert "pad" not in names(builder.build())
