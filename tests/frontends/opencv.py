"""OpenCV's readers of networks, which take files from memory as arrays of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def read_network(framework: str, text: bytes, weights: bytes) -> Any:
    """A network of Caffe or Darknet; the test is skipped where there is no OpenCV."""
    cv2 = pytest.importorskip("cv2")
    parts = [np.frombuffer(part, np.uint8) for part in (text, weights)]
    return getattr(cv2.dnn, f"readNetFrom{framework}")(*parts)
