"""Passes held against the text that they should give, and against the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from tilewright.ir import Function, function_text, interpret, parse_function, verify

Pass = Callable[[Function], Function]


@pytest.fixture
def becomes() -> Callable[[str, Pass, str], None]:
    """`becomes(before, run, after)`: the pass turns one text into the other."""

    def check(before: str, run: Pass, after: str) -> None:
        result = run(parse_function(dedent(before)))
        verify(result)
        assert function_text(result).strip() == dedent(after).strip()

    return check


@pytest.fixture
def keeps_meaning() -> Callable[..., Function]:
    """`keeps_meaning(before, run, *arrays)`: what the pass gives does the same to the arrays."""

    def check(before: str, run: Pass, *args: Any) -> Function:
        function = parse_function(dedent(before))
        result = run(function)
        verify(result)
        wanted, got = ([copied(a) for a in args] for _ in range(2))
        interpret(function, *wanted)
        interpret(result, *(carried(a, p.dtype) for a, p in zip(got, result.params, strict=True)))
        for param, a, b in zip(function.params, wanted, got, strict=True):
            np.testing.assert_array_equal(plain(b), plain(a), err_msg=param.name)
        return result

    return check


def copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def carried(value: Any, dtype: Any) -> Any:
    """The same memory, or the same bits of a scalar, as the pass may have made of it."""
    if isinstance(value, np.ndarray | np.generic):
        return value.view(dtype.numpy)
    return value


def plain(value: Any) -> Any:
    """NumPy does not know the NaN of types that are not its own."""
    is_foreign = isinstance(value, np.ndarray) and value.dtype.isbuiltin != 1
    return value.astype(np.float64) if is_foreign else value
