"""Running definitions on the reference interpreter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tilewright.ir import function_text, interpret, parse_function, same_function
from tilewright.tensor import te

Check = Callable[..., None]


@pytest.fixture
def check() -> Check:
    """`check(inputs, arrays, outputs, *expected)` computes the outputs and compares them."""

    def run(
        inputs: Sequence[Any],
        arrays: Sequence[Any],
        outputs: Any,
        *expected: Any,
        tol: float = 1e-5,
    ) -> None:
        function = te.function(inputs, outputs)
        assert same_function(parse_function(function_text(function)), function)
        wanted = [np.asarray(e) for e in expected]
        results = [np.full_like(e, 77) for e in wanted]
        interpret(function, *arrays, *results)
        for result, want in zip(results, wanted, strict=True):
            np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-5)

    return run


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
