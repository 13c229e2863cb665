"""Models of one operator, with what NumPy makes of it.

A case is written as the operator, its operands and a function of arrays. Operands are arrays, which
become inputs, or `fixed(...)`, which become constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.frontends.tflite.writer import Writer

_RNG = np.random.default_rng(7)


@dataclass
class Fixed:
    """An operand that is part of the model."""

    array: Any


@dataclass
class Case:
    """A model, its inputs and the results that it must give."""

    data: bytes
    inputs: list[Any]
    wanted: list[Any]
    #: Whether LiteRT has the operator too.
    shared: bool = True


def fixed(*elements: Any, dtype: str = "int32") -> Fixed:
    """A constant vector."""
    return Fixed(np.array(elements, dtype))


def scalar(value: Any, dtype: str = "int32") -> Fixed:
    """A constant without dimensions."""
    return Fixed(np.array(value, dtype))


def floats(*shape: int) -> Any:
    """Random numbers around zero."""
    return _RNG.uniform(-2, 2, shape).astype(np.float32)


def positive(*shape: int) -> Any:
    return _RNG.uniform(0.1, 3, shape).astype(np.float32)


def integers(*shape: int, low: int = -5, high: int = 6, dtype: str = "int32") -> Any:
    return _RNG.integers(low, high, shape).astype(dtype)


def flags(*shape: int) -> Any:
    return _RNG.integers(0, 2, shape).astype(bool)


def case(
    op: str,
    operands: Sequence[Any],
    want: Callable[..., Any],
    *,
    shared: bool = True,
    version: int = 1,
    custom: bytes = b"",
    **options: Any,
) -> Case:
    """A model of one operator."""
    w = Writer()
    numbers = [-1 if x is None else _tensor(w, x) for x in operands]
    given = [x.array if isinstance(x, Fixed) else x for x in operands]
    found = want(*(x for x in given if x is not None))
    wanted = [np.asarray(f) for f in (found if isinstance(found, list) else [found])]
    outs = [w.tensor(a.dtype.name, a.shape) for a in wanted]
    w.op(op, numbers, outs, version=version, custom=custom, **options)
    inputs = [x for x in operands if x is not None and not isinstance(x, Fixed)]
    return Case(w.model(outs), inputs, wanted, shared)


def _tensor(w: Writer, x: Any) -> int:
    if isinstance(x, Fixed):
        return w.constant(x.array)
    return w.input(x.dtype.name, x.shape)
