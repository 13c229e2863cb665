"""Files of parameters: a list of arrays, and their names.

Numbers are little-endian. Arrays have one of four forms, by the number at their beginning; all
are shape, device, element type, elements.
"""

from __future__ import annotations

import math
import struct
from typing import Any, Final

import ml_dtypes
import numpy as np

from tilewright.graph import Array
from tilewright.support.errors import UserError

_LIST: Final = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_DENSE: Final = 0
_MOST_DIMS: Final = 32
_TYPES: Final[dict[int, Any]] = {
    0: "<f4",
    1: "<f8",
    2: "<f2",
    3: "u1",
    4: "<i4",
    5: "i1",
    6: "<i8",
    7: "?",
    12: ml_dtypes.bfloat16,
}


class _Reader:
    def __init__(self, content: np.ndarray[Any, Any]) -> None:
        self._content, self._at = content, 0

    def take(self, size: int) -> np.ndarray[Any, Any]:
        if not 0 <= size <= self._content.size - self._at:
            raise UserError(
                "the parameters end too early",
                reason=f"{size} bytes are wanted, {self._content.size - self._at} are left",
                remedy="check that the file is complete",
            )
        self._at += size
        return self._content[self._at - size : self._at]

    def numbers(self, form: str) -> tuple[int, ...]:
        layout = struct.Struct("<" + form)
        return layout.unpack(self.take(layout.size).tobytes())

    def count(self, least: int) -> int:
        """The number of following items, each of at least `least` bytes."""
        (count,) = self.numbers("Q")
        if count * least > self._content.size - self._at:
            raise UserError(f"the parameters are {count} arrays", reason="the file is smaller")
        return count


def read_params(content: np.ndarray[Any, Any]) -> dict[str, Array]:
    """The arrays of a file by their names, without `arg:` and `aux:` in front."""
    reader = _Reader(content)
    magic, _ = reader.numbers("QQ")
    if magic != _LIST:
        raise UserError("the parameters are no file of MXNet", reason="it begins otherwise")
    arrays = [_array(reader) for _ in range(reader.count(8))]
    names = [_name(reader) for _ in range(reader.count(8))]
    if len(names) != len(arrays):
        raise UserError(f"the parameters are {len(arrays)} arrays with {len(names)} names")
    return {n: a for n, a in zip(names, arrays, strict=True) if a is not None}


def _name(reader: _Reader) -> str:
    text = reader.take(reader.numbers("Q")[0]).tobytes().decode("utf-8", "replace")
    kind, mark, name = text.partition(":")
    return name if mark and kind in ("arg", "aux") else text


def _array(reader: _Reader) -> Array | None:
    (magic,) = reader.numbers("I")
    if magic in (_V2, _V3):
        (storage,) = reader.numbers("i")
        if storage != _DENSE:
            raise UserError("a parameter is sparse", remedy="save it as a dense array")
    if magic == _V3:
        (rank,) = reader.numbers("i")
        rank = max(rank, -1)
    else:
        rank = reader.numbers("I")[0] if magic in (_V1, _V2) else magic
    if rank > _MOST_DIMS:
        raise UserError(f"a parameter has {rank} dimensions")
    if rank == -1 or (rank == 0 and magic != _V3):
        return None
    shape = reader.numbers(("q" if magic in (_V1, _V2, _V3) else "I") * rank)
    _, _, kind = reader.numbers("iii")
    if kind not in _TYPES or any(n < 0 for n in shape):
        raise UserError(f"a parameter of shape {list(shape)} has elements of type {kind}")
    dtype = np.dtype(_TYPES[kind])
    return reader.take(math.prod(shape) * dtype.itemsize).view(dtype).reshape(shape)
