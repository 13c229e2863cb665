"""Kernels as text, executed."""

from __future__ import annotations

import re
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from tilewright.ir import parse_function
from tilewright.simt import SimtError, run


def execute(text: str, *arguments: Any) -> None:
    run(parse_function(dedent(text)), arguments)


def fails(message: str, text: str, *arguments: Any) -> SimtError:
    with pytest.raises(SimtError, match=re.escape(message)) as caught:
        execute(text, *arguments)
    return caught.value


def zeros(count: int, dtype: str = "f4") -> np.ndarray:
    return np.zeros(count, dtype)
