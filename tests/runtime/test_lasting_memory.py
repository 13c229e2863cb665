"""Memory for arrays that every run reads."""

from __future__ import annotations

import gc
import mmap
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.runtime import LastingMemory, let_go
from tilewright.support.memory import ALIGNMENT

Plain = tuple[tuple[int, ...], np.dtype[Any]]
SMALL: list[Plain] = [((3, 5), np.dtype(np.float32)), ((), np.dtype(np.int8))]
LARGE: list[Plain] = [*SMALL, ((0, 4), np.dtype(np.float16)), ((5 << 20,), np.dtype(np.uint8))]


@pytest.mark.parametrize("wanted", [[], SMALL, [*LARGE, *SMALL]])
def test_arrays_are_zeros_and_lie_apart(wanted: list[Plain]) -> None:
    memory = LastingMemory(wanted)
    made = [memory.zeros(*plain) for plain in wanted]
    for array, (shape, dtype) in zip(made, wanted, strict=True):
        assert array.shape == shape and array.dtype == dtype and array.flags.writeable
        assert not array.any() and array.__array_interface__["data"][0] % ALIGNMENT == 0
    for number, array in enumerate(made, 1):
        array[...] = number
    assert all((array == number).all() for number, array in enumerate(made, 1))


def test_memory_lasts_as_long_as_any_array() -> None:
    memory = LastingMemory(LARGE)
    made = [memory.zeros(*plain) for plain in LARGE]
    kept = made[0]
    kept[...] = 7
    del memory, made
    gc.collect()
    assert (kept == 7).all()


def test_it_is_no_file_that_could_be_read_again() -> None:
    array = LastingMemory(LARGE).zeros((5 << 20,), np.dtype(np.uint8))
    array[:] = 3
    array.flags.writeable = False
    let_go(array)
    assert (array == 3).all()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_large_pages_are_asked_for() -> None:
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        pytest.skip("this system has none")
    array = LastingMemory(LARGE).zeros((5 << 20,), np.dtype(np.uint8))
    middle = array.__array_interface__["data"][0] + (1 << 20)
    asked, here = False, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split()[0]
        if "-" in first and not first.endswith(":"):
            begin, end = (int(part, 16) for part in first.split("-"))
            here = begin <= middle < end
        elif here and first == "VmFlags:":
            asked = "hg" in line.split()
    assert asked
