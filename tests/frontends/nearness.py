"""How near answers of trained models must be to those of a peer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def assert_all_near(found: Sequence[Any], wanted: Sequence[Any], part: float = 1e-4) -> None:
    """Shapes are equal, and numbers within a part of the largest."""
    for one, other in zip(found, wanted, strict=True):
        ours, theirs = np.asarray(one), np.asarray(other)
        assert ours.shape == theirs.shape
        size = float(np.abs(theirs).max(initial=0))
        assert size > 0, "the peer answers with zeros alone"
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=part * size)
