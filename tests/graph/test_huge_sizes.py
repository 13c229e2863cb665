"""Sizes that do not fit 64 bits: refused by name, never wrapped around."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.frontends.onnx.models import info, make, node
from tests.networks import random
from tilewright.support.errors import UserError

MAX = 2**63 - 1
X = random(4)
IMAGE = random(1, 1, 4, 4)
_KERNEL = {"w": np.ones((1, 1, 2, 2), np.float32)}


def numbers(*values: int) -> Any:
    return np.array(values, np.int64)


def refuse(nodes: list[Any], given: Any, constants: dict[str, Any], *, symbolic: bool) -> str:
    """What is said to constants like these; in a model of fixed or of symbolic size."""
    shape: list[Any] = ["n", *given.shape[1:]] if symbolic else list(given.shape)
    with pytest.raises(UserError) as refused:
        tw.compile(make(nodes, [info("x", shape=shape)], ["y"], constants)).run([given])
    return str(refused.value)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("op", "inputs", "constants"),
    [
        ("Tile", ["x", "r"], {"r": numbers(2**62 + 1)}),
        ("Tile", ["x", "r"], {"r": numbers(2**62)}),
        ("Pad", ["x", "p"], {"p": numbers(MAX, MAX)}),
        ("Pad", ["x", "p"], {"p": numbers(MAX, 0)}),
        ("Expand", ["x", "s"], {"s": numbers(2**62, 4)}),
    ],
)
def test_sizes_out_of_constants(
    op: str, inputs: list[str], constants: dict[str, Any], symbolic: bool
) -> None:
    refuse([node(op, inputs)], X, constants, symbolic=symbolic)


def test_the_operator_is_named() -> None:
    told = refuse([node("Tile", ["x", "r"])], X, {"r": numbers(2**62 + 1)}, symbolic=False)
    assert "does not fit 64 bits" in told and "tile" in told


@pytest.mark.parametrize("pads", [[MAX] * 4, [2**62] * 4, [MAX, 0, 0, 0]])
@pytest.mark.parametrize("op", ["Conv", "MaxPool", "AveragePool", "ConvTranspose"])
def test_pads_of_windows(op: str, pads: list[int]) -> None:
    if op == "ConvTranspose":
        pads = [-p for p in pads]
    extra: dict[str, Any] = {} if "Conv" in op else {"kernel_shape": [2, 2]}
    inputs = ["x", "w"] if "Conv" in op else ["x"]
    constants = _KERNEL if "Conv" in op else {}
    refuse([node(op, inputs, pads=pads, **extra)], IMAGE, constants, symbolic=False)


@pytest.mark.parametrize("step", [MAX, -MAX, -MAX - 1, 2**62, 2**40, -7])
@pytest.mark.parametrize("how", ["constant", "symbolic", "given"])
def test_long_steps_of_slices_take_one_element(step: int, how: str) -> None:
    bounds = {"s": numbers(0 if step > 0 else 3), "e": numbers(4 if step > 0 else -100)}
    constants = {**bounds, "a": numbers(0), "t": numbers(step)}
    shape: list[Any] = ["n"] if how == "symbolic" else [4]
    inputs = [info("x", shape=shape)]
    feeds: list[Any] = [X]
    if how == "given":
        inputs += [info(k, "int64", [1]) for k in constants]
        feeds += list(constants.values())
        constants = {}
    proto = make([node("Slice", ["x", "s", "e", "a", "t"])], inputs, ["y"], constants)
    (found,) = tw.compile(proto).run(feeds)
    np.testing.assert_array_equal(found, X[:1] if step > 0 else X[3:])


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("Tile", {"r": numbers(2**62 + 1)}),
        ("Tile", {"r": numbers(MAX)}),
        ("Pad", {"p": numbers(-MAX - 1, -MAX - 1)}),
        ("Pad", {"p": numbers(MAX, MAX)}),
        ("Expand", {"s": numbers(2**62, 4)}),
    ],
)
def test_sizes_that_are_known_when_the_program_runs(op: str, inputs: dict[str, Any]) -> None:
    given = [info("x", shape=["n"]), *(info(k, "int64", list(v.shape)) for k, v in inputs.items())]
    model = tw.compile(make([node(op, ["x", *inputs])], given, ["y"]))
    with pytest.raises(UserError):
        model.run([X, *inputs.values()])


@pytest.mark.parametrize(
    "ends", [(0, MAX, 1), (-MAX - 1, MAX, 1), (MAX, -MAX - 1, -1), (-MAX - 1, MAX, 2**40)]
)
def test_ranges_too_long(ends: tuple[int, int, int]) -> None:
    parts = {k: np.int64(v) for k, v in zip("abc", ends, strict=True)}
    inputs = [info(k, "int64", []) for k in parts]
    model = tw.compile(make([node("Range", list(parts))], inputs, ["y"]))
    with pytest.raises(UserError):
        model.run(list(parts.values()))
    assert model.run([np.int64(MAX - 3), np.int64(MAX), np.int64(2)])[0].tolist() == [
        MAX - 3,
        MAX - 1,
    ]


def test_attributes_far_out() -> None:
    image = [info("x", shape=[1, 3, 2, 2])]
    wide = tw.compile(make([node("LRN", ["x"], size=2**40)], image, ["y"]))
    fit = tw.compile(make([node("LRN", ["x"], size=7, alpha=7e-4 / 2**40)], image, ["y"]))
    x = random(1, 3, 2, 2)
    np.testing.assert_allclose(wide.run([x])[0], fit.run([x])[0], rtol=1e-6)
    inputs = [info("x", shape=[4, 4]), info("k", "int64", [])]
    trilu = tw.compile(make([node("Trilu", ["x", "k"])], inputs, ["y"]))
    x = random(4, 4)
    for k in (MAX, -MAX - 1, 2**62, -5, 1):
        wanted = np.triu(x, max(min(k, 9), -9))
        np.testing.assert_array_equal(trilu.run([x, np.int64(k)])[0], wanted)
