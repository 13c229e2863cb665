"""Elements that are known at compile time are those that their element type holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder, evaluate


def folded(op: str, *arrays: Any, **attrs: Any) -> Any:
    """An operator on constants, which the compiler computes, and the evaluator in the same way."""
    b = Builder()
    x = b.input("x", "float32", (1,))
    b.output(b.emit(op, *map(b.constant, arrays), **attrs), x)
    module, inputs = b.build(), [np.zeros(1, np.float32)]
    found, wanted = tw.compile(module).run(inputs)[0], evaluate(module, inputs)[0]
    assert found.dtype == wanted.dtype
    assert found.tobytes() == wanted.tobytes()
    return found


@pytest.mark.parametrize(
    ("op", "dtype", "a", "b", "wanted"),
    [
        ("add", "uint8", 250, 10, 4),
        ("sub", "uint8", 3, 5, 254),
        ("sub", "uint32", 3, 5, 2**32 - 2),
        ("sub", "uint64", 3, 5, 2**64 - 2),
        ("mul", "int32", 1 << 20, 1 << 20, 0),
        ("div", "int8", -128, -1, -128),
        ("maximum", "uint64", 2**63, 3, 2**63),
    ],
)
def test_arithmetic_wraps_around(op: str, dtype: str, a: int, b: int, wanted: int) -> None:
    assert folded(op, np.array([a], dtype), np.array([b], dtype)).tolist() == [wanted]


@pytest.mark.parametrize(
    ("op", "number", "wanted"), [("neg", -128, -128), ("abs", -128, -128), ("bitwise_not", 3, -4)]
)
def test_one_operand_wraps_around(op: str, number: int, wanted: int) -> None:
    assert folded(op, np.array([number], np.int8)).tolist() == [wanted]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32", "uint64", "bool"])
def test_casts_of_floats_stay_within_the_type(dtype: str) -> None:
    folded("cast", np.array([1e30, -1e30, 300, -2.7, np.nan, np.inf], np.float32), dtype=dtype)


def test_casts_of_integers_wrap_around() -> None:
    x = np.array([300, -1, 7])
    assert folded("cast", x, dtype="uint8").tolist() == [44, 255, 7]
    assert folded("cast", x, dtype="uint64").tolist() == [300, 2**64 - 1, 7]


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_casts_to_small_floats(dtype: str, saturate: bool) -> None:
    x = np.array([1e6, -1e6, np.inf, 3], np.float32)
    folded("cast", x, dtype=dtype, saturate=saturate)


def test_a_size_in_a_type_that_is_too_narrow_for_it() -> None:
    b = Builder()
    x = b.input("x", "float32", ("n",))
    narrow = b.cast(b.shape_of(x), dtype="uint8")
    b.output(b.cast(narrow, dtype="int32"))
    module = b.build()
    for count in (7, 300):
        inputs = [np.zeros(count, np.float32)]
        assert tw.compile(module).run(inputs)[0].tolist() == [count % 256]
        assert tw.compile(module, shapes={"x": [count]}).run(inputs)[0].tolist() == [count % 256]
