"""Operators checked by interpreting their loops: many cases in little time.

`check_definition` is `harness.check`, but what the compute definition or the kernel says is
interpreted instead of compiled. Every operator is checked natively as well, in fewer cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import numpy as np

from tests.graph import harness
from tilewright.ir import interpret


def check_definition(name: str, inputs: Sequence[Any], **options: Any) -> list[Any]:
    """Compare the interpreted loops and the reference of an operator, as `check` does."""
    with patch.object(harness, "_run", _interpreted):
        return harness.check(name, inputs, **options)


def _interpreted(function: Any, arrays: Any, numbers: Any, types: Any, dims: Any) -> list[Any]:
    outs = [harness._filled(t, dims) for t in types]
    with np.errstate(all="ignore"):
        interpret(function, *[np.array(a) for a in arrays], *numbers, *outs)
    return outs
