"""Reductions, softmax and activations against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.graph.harness import check
from tests.graph.interpreted import check_definition
from tilewright.graph import Builder, parse_module
from tilewright.graph.ops.elementwise.activation import ACTIVATIONS
from tilewright.graph.ops.reduce.reduce import REDUCTIONS
from tilewright.support.errors import UserError

RNG = np.random.default_rng(5)
SPECIAL = np.array([0.0, -0.0, 1.5, -1.5, 0.5, -0.5, 30, -30, np.inf, -np.inf, np.nan], "f4")
ALL = sorted([*REDUCTIONS, "mean", "log_sum_exp"])


def normal(*shape: int, dtype: Any = "f4") -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def operand(name: str, *shape: int) -> Any:
    x = normal(*shape)
    if name in ("any", "all"):
        return x > 0
    return np.abs(x) if name == "log_sum" else x


@pytest.mark.parametrize("name", ALL)
def test_reductions(name: str) -> None:
    x = operand(name, 3, 4, 5)
    check(name, [x], axes=[-1], symbolic=name == "sum")
    check(name, [x], axes=[1], symbolic=name == "max")
    check_definition(name, [x], axes=[-1])
    check_definition(name, [x], axes=[0, -1], keepdims=True)
    check_definition(name, [x])
    check_definition(name, [x[:2, 0, 0]], axes=[])


@pytest.mark.parametrize("name", ALL)
def test_reductions_of_nothing(name: str) -> None:
    check_definition(name, [operand(name, 2, 0, 3)], axes=[1], symbolic=False)
    check_definition(name, [operand(name, 2, 0)], axes=[0])
    if name in ("sum", "max"):
        check(name, [operand(name, 2, 0, 3)], axes=[1])


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "l1", "sum_square", "l2"])
@pytest.mark.parametrize("dtype", ["int32", "int8", "uint8", "int64"])
def test_reductions_of_integers(name: str, dtype: str) -> None:
    x = RNG.integers(0 if dtype == "uint8" else -5, 5, (3, 7)).astype(dtype)
    check_definition(name, [x], axes=[1], symbolic=False)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "log_sum_exp", "l2"])
@pytest.mark.parametrize("dtype", ["float16", ml_dtypes.bfloat16, "float64"])
def test_reductions_of_other_floats(name: str, dtype: Any) -> None:
    check_definition(name, [normal(3, 65, dtype=dtype)], axes=[1], symbolic=False)


def test_reductions_keep_nan_and_infinity() -> None:
    x = np.array([[1, np.nan, 2], [np.inf, 1, 2], [-np.inf, -np.inf, -np.inf]], "f4")
    for name in ("sum", "max", "min", "log_sum_exp", "mean"):
        check(name, [x], axes=[1], symbolic=False)
    check("max", [np.array([[True, False], [False, False]])], axes=[1], symbolic=False)
    check("min", [np.array([[True, False], [True, True]])], axes=[1], symbolic=False)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_arg_reductions(name: str) -> None:
    x = RNG.integers(0, 3, (3, 4, 5)).astype("f4")
    for last in (False, True):
        check_definition(name, [x], axis=1, last=last, keepdims=True)
        check_definition(name, [x], axis=-1, last=last)
    check_definition(name, [x.astype("i4")], axis=0, symbolic=False)
    check(name, [x], axis=-1, last=True, symbolic=name == "argmax")
    check(name, [np.array([1, np.nan, 3, np.nan], "f4")], expected=np.int64(1), symbolic=False)


def test_nothing_has_no_greatest_element() -> None:
    b = Builder()
    with pytest.raises(UserError, match="elements along axis 1, of which one is sought"):
        b.argmax(b.input("x", "float32", [3, 0]), axis=1)
    check("argmax", [normal(0, 3)], axis=1, symbolic=False)
    text = "def main(x: f32[3, n]):\n    y = argmax(x, axis=1)\n    return y\n"
    model = tw.compile(parse_module(text), threads=1)
    assert model.run([normal(3, 1)])[0].tolist() == [0, 0, 0]
    with pytest.raises(UserError, match="argmax: elements along axis 1"):
        model.run([normal(3, 0)])


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "hardmax"])
def test_softmax(name: str) -> None:
    check(name, [normal(3, 17)], symbolic=name == "softmax")
    check_definition(name, [normal(3, 4, 5)], axis=1)
    check_definition(name, [normal(5) * 1000], axis=0, symbolic=False)
    check_definition(name, [normal(2, 0)], axis=1, symbolic=False)
    check_definition(name, [normal(4, 33, dtype="float16")], axis=0, symbolic=False)
    check_definition(name, [np.array([[1, 2, -np.inf], [2, 2, 1]], "f4")], symbolic=False)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_activations(name: str) -> None:
    check_definition(name, [normal(3, 7) * 3], atol=1e-5)
    check(name, [np.concatenate([SPECIAL, normal(30)])], symbolic=False, atol=1e-5)
    others = dict.fromkeys(ACTIVATIONS[name].parameters, 0.7)
    check_definition(name, [normal(5, dtype="float16")], symbolic=False, **others)


def test_gelu_prelu_clip() -> None:
    check("gelu", [normal(3, 5)], symbolic=False)
    check_definition("gelu", [normal(3, 5)])
    check_definition("gelu", [normal(3, 5)], approximate="tanh")
    check("prelu", [normal(2, 3, 4), normal(3, 1)])
    check_definition("prelu", [RNG.integers(-5, 5, (4,)), np.array([3])], symbolic=False)
    low, high = np.float32(-0.5), np.float32(0.5)
    check("clip", [normal(3, 5), low, high], symbolic=False)
    check_definition("clip", [normal(3, 5), low, high])
    check_definition("clip", [normal(3, 5), None, high], symbolic=False)
    check_definition("clip", [normal(3, 5), low], symbolic=False)
    check_definition("clip", [np.array([1, np.nan, 9], "f4"), high, low], symbolic=False)
    check_definition("clip", [np.arange(9, dtype="i1"), np.int8(3), np.int8(5)], symbolic=False)


def test_what_is_refused() -> None:
    b = Builder()
    x = b.input("x", "f32", ("n", 3))
    with pytest.raises(UserError, match="there is no axis 2"):
        b.sum(x, axes=[2])
    with pytest.raises(UserError, match="name one axis twice"):
        b.mean(x, axes=[1, -1])
    with pytest.raises(UserError, match="takes bool tensors"):
        b.any(x)
    with pytest.raises(UserError, match="no approximation 'erf'"):
        b.gelu(x, approximate="erf")
