"""Files that are mapped rather than read."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np


def mapped_file(file: Path) -> np.ndarray[Any, Any]:
    """The bytes of a file, where the system maps them."""
    # A pipe or a device would block or never end; only plain files have weights.
    handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no plain file")
        if status.st_size == 0:
            return np.empty(0, np.uint8)
        return np.frombuffer(mmap.mmap(handle, 0, access=mmap.ACCESS_READ), np.uint8)
    finally:
        os.close(handle)
