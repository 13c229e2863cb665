"""Arrays aligned for vector loads."""

from __future__ import annotations

import ctypes
import math
import mmap
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np

from tilewright.support.memory import ALIGNMENT, aligned

T = TypeVar("T")
Array = np.ndarray[Any, Any]
#: Total bytes up to which unaligned arrays are copied; large models keep theirs.
_COPY_LIMIT = 512 << 20
#: Bytes of a huge page, where processor and system support them.
_LARGE_PAGE = 2 << 20
#: Bytes that are copied at a time.
_CHUNK = 1 << 24
#: Results of fewer bytes are cheaper to copy than to allocate with alignment.
_WORTH_ALIGNING = 16 << 10


def address_of(array: Array) -> int:
    """The address of an array's data; several times as fast as `array.ctypes`."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(cast("Any", array)))
    except (TypeError, ValueError, BufferError):
        # Empty or read-only arrays, and types that the buffer protocol lacks.
        return array.__array_interface__["data"][0]


def type_name(array: Array) -> str:
    """The element type of an array, for messages."""
    name = array.dtype.name
    return name if array.dtype.isnative else f"{name} in the byte order of other machines"


def aligned_empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """A new array whose contents are undefined."""
    memory = np.empty(math.prod(shape) * dtype.itemsize + ALIGNMENT, np.uint8)
    return np.ndarray(shape, dtype, memory, -address_of(memory) % ALIGNMENT)


def aligned_zeros(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """A new array of zeros, whose pages are only allocated when written."""
    memory = np.zeros(math.prod(shape) * dtype.itemsize + ALIGNMENT, np.uint8)
    return np.ndarray(shape, dtype, memory, -address_of(memory) % ALIGNMENT)


class LastingMemory:
    """Memory for arrays that every run reads, stored one behind the other.

    It uses huge pages if the system has them, which saves TLB misses in large reads.
    """

    def __init__(self, arrays: Iterable[tuple[Sequence[int], np.dtype[Any]]]) -> None:
        size = sum(aligned(math.prod(shape) * dtype.itemsize) for shape, dtype in arrays)
        self._left = _large_pages(size)

    def zeros(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """One of the arrays."""
        size = math.prod(shape) * dtype.itemsize
        taken, self._left = self._left[:size], self._left[aligned(size) :]
        return taken.view(dtype).reshape(shape)


class _Pages(mmap.mmap):
    """Anonymous memory, as opposed to a mapped file."""


def _large_pages(size: int) -> Array:
    """Zeroed bytes, in huge pages as far as they fill these."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None or size < _LARGE_PAGE:
        return aligned_zeros((size,), np.dtype(np.uint8))
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    pages = _Pages(-1, size + _LARGE_PAGE, flags=flags)
    memory = np.frombuffer(pages, np.uint8)
    start = -address_of(memory) % _LARGE_PAGE
    with suppress(OSError):  # systems may be built without them
        pages.madvise(advice, start, size // _LARGE_PAGE * _LARGE_PAGE)
    return memory[start : start + size]


def result_empty(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """A new array for results: aligned where that costs less than a later aligned copy."""
    if math.prod(shape) * dtype.itemsize < _WORTH_ALIGNING:
        return np.empty(shape, dtype)
    return aligned_empty(shape, dtype)


def aligned_all(arrays: Sequence[Array]) -> list[Array]:
    """The arrays as contiguous, aligned ones, as far as copies are worth it."""
    left = _COPY_LIMIT
    result: list[Array] = []
    for array in arrays:
        if not _is_aligned(array) and (array.nbytes <= left or not array.flags.c_contiguous):
            left -= array.nbytes
            copy = aligned_empty(array.shape, array.dtype)
            copy[...] = array
            array = copy
        result.append(array)
    return result


def overlapping(arrays: Iterable[tuple[T, Array, bool]]) -> tuple[T, T] | None:
    """The names of two arrays that share memory, the first of which is written; None if none do.

    Each array comes with its name and whether it is written.
    """
    spans = [(*_span(array), name, written) for name, array, written in arrays if array.size]
    spans.sort(key=lambda span: span[0])
    for k, (_, end, name, written) in enumerate(spans):
        for start, _, other, other_written in spans[k + 1 :]:
            if start >= end:
                break
            if written or other_written:
                return (name, other) if written else (other, name)
    return None


def _span(array: Any) -> tuple[int, int]:
    """Start and end of the memory that an array's elements are in."""
    if not isinstance(array, np.ndarray):  # a device array, which is contiguous
        return array.address, array.address + array.nbytes
    own = cast("Array", array)
    steps = [s * (n - 1) for s, n in zip(own.strides, own.shape, strict=True)]
    begin = address_of(own) + sum(s for s in steps if s < 0)
    return begin, begin + sum(map(abs, steps)) + own.itemsize


def let_go(array: Array) -> None:
    """Tell the system that an array in a mapped file is not needed for now.

    Its pages are dropped; the next access reads them from the file again.
    """
    file = _file_of(array) if array.flags.c_contiguous else None
    if file is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    whole = np.frombuffer(file, np.uint8)
    start = address_of(array) - address_of(whole)
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    if size > 0:
        file.madvise(mmap.MADV_DONTNEED, first, size)


def let_files_go(arrays: Iterable[Array]) -> None:
    """Tell the system that the mapped files of these arrays are not needed for now."""
    files = {id(f): f for f in map(_file_of, arrays) if f is not None}
    for file in files.values() if hasattr(mmap, "MADV_DONTNEED") else ():
        file.madvise(mmap.MADV_DONTNEED)


def in_memory(array: Array) -> Array:
    """The array, copied if it is in a mapped file, which may change."""
    if _file_of(array) is None:
        return array
    copy = aligned_empty(array.shape, array.dtype)
    if not array.flags.c_contiguous:
        copy[...] = array
        return copy
    source, made = array.reshape(-1), copy.reshape(-1)
    step = _CHUNK // array.itemsize
    for start in range(0, array.size, step):
        made[start : start + step] = source[start : start + step]
        let_go(source[start : start + step])
    return copy


def return_free_memory() -> None:
    """Return freed memory to the system, some of which glibc keeps."""
    trim = getattr(_process(), "malloc_trim", None)
    if trim is not None:
        trim(0)


@cache
def _process() -> Any:
    return ctypes.CDLL(None) if sys.platform == "linux" else None


def _file_of(array: Array) -> mmap.mmap | None:
    """The mapped file that an array is part of."""
    owner: Any = array
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    # Written private mappings must not be dropped: their contents exist nowhere else.
    is_file = isinstance(owner, mmap.mmap) and not isinstance(owner, _Pages)
    is_file = is_file and not array.flags.writeable
    return owner if is_file else None


def _is_aligned(array: Array) -> bool:
    return array.flags.c_contiguous and address_of(array) % ALIGNMENT == 0
