"""Faults, and what their reproducers must not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Call, Module, all_graphs

Array = np.ndarray[Any, Any]
#: Makes a pass, by its name, raise the exception on modules that the function chooses.
Break = Callable[[str, Callable[[Module], bool], Exception], None]


def has_op(module: Module, name: str) -> bool:
    calls = [b.expr for g in all_graphs(module.main) for b in g.body]
    return any(isinstance(c, Call) and c.op.name == name for c in calls)


def fault_of(model: Any, **options: Any) -> tw.InternalError:
    """The fault that compiling this ends with."""
    with pytest.raises(tw.InternalError) as caught:
        tw.compile(model, **options)
    return caught.value


def require_no_weights(text: str, weights: list[Array]) -> None:
    """None of these numbers is written out, in whatever number of digits."""
    numbers = {f"{abs(float(v)):.4f}" for w in weights for v in w.ravel() if abs(v) > 0.001}
    assert not [n for n in numbers if n in text]
