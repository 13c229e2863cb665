"""Checkpoints: an index of tensors by key, and files with their bytes, which are mapped."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.frontends.common.files import mapped_file
from tilewright.frontends.common.wire import read_number
from tilewright.frontends.tensorflow.messages import SCHEMA
from tilewright.frontends.tensorflow.sorted_table import read_table
from tilewright.frontends.tensorflow.tensors import array_of, element_type, static_shape
from tilewright.frontends.tensorflow.wire import Message, text
from tilewright.graph import STRING, Array
from tilewright.ir import DType
from tilewright.support.errors import UserError, nearest

_MOST_SHARDS: Final = 100_000


class Bundle:
    """The tensors of one checkpoint, `PREFIX.index` and `PREFIX.data-00000-of-00001`."""

    def __init__(self, prefix: Path) -> None:
        self._prefix = prefix
        self._shards: dict[int, Array] = {}
        index = prefix.with_name(prefix.name + ".index")
        self._entries = read_table(_mapped(index).data, str(index))
        header = SCHEMA.message("BundleHeader", self._entries.pop(b"", memoryview(b"")))
        self._count = max(header.num_shards, 1)
        if header.endianness or self._count > _MOST_SHARDS:
            raise UserError(f"{index} is for machines of another kind", reason="its header says so")

    def __contains__(self, key: str) -> bool:
        return key.encode() in self._entries

    def read(self, key: str) -> tuple[Array, DType]:
        """A tensor by its key."""
        data = self._entries.get(key.encode())
        if data is None:
            known = [str(k, "utf-8", "replace") for k in self._entries]
            raise UserError(f"the checkpoint has no tensor {key}", remedy=nearest(key, known))
        entry = SCHEMA.message("BundleEntry", data)
        if entry.slices:
            raise UserError(
                f"the variable {key} is stored in slices",
                remedy="save the model without partitioned variables",
            )
        dtype, shape = element_type(entry.dtype, key), static_shape(entry.shape, key)
        found = self._bytes(entry, key)
        if dtype is STRING:
            return _strings(found, shape, key), dtype
        return array_of(found, np.dtype(dtype.numpy), shape, key), dtype

    def _bytes(self, entry: Message, key: str) -> memoryview:
        shard = self._shard(entry.shard_id)
        if entry.offset < 0 or entry.size < 0 or entry.offset + entry.size > shard.size:
            raise UserError(f"the variable {key} ends after its file")
        return shard.data[entry.offset : entry.offset + entry.size]

    def _shard(self, number: int) -> Array:
        if not 0 <= number < self._count:
            raise UserError(f"the checkpoint has no file {number}")
        if number not in self._shards:
            name = f"{self._prefix.name}.data-{number:05d}-of-{self._count:05d}"
            self._shards[number] = _mapped(self._prefix.with_name(name))
        return self._shards[number]


def _strings(data: memoryview, shape: tuple[int, ...], key: str) -> Array:
    """Lengths of all texts, a checksum, then the texts."""
    size = int(np.prod(shape))
    if size > len(data):
        raise UserError(f"the variable {key} has more texts than bytes")
    lengths: list[int] = []
    at = 0
    for _ in range(size):
        length, at = read_number(data, at)
        lengths.append(length)
    at += 4
    made = np.empty(size, object)
    for k, length in enumerate(lengths):
        made[k] = text(data[at : at + length])
        at += length
    return made.reshape(shape)


def _mapped(path: Path) -> Any:
    try:
        return mapped_file(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot read {path}", reason=reason) from None
