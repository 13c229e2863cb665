"""A kernel's device code in an object file: a line of JSON, PTX with a final zero, machine code.

The JSON has the launch parameters, and the size and checksum of the machine code if there is any
(written by `codegen.cuda.backend`).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

#: The beginning of the JSON.
_BEGIN: Final = b'{"entry": '


class KernelImage(NamedTuple):
    """A kernel's code with its launch parameters."""

    said: dict[str, Any]
    #: PTX, which any driver compiles, with its final zero.
    text: bytes
    #: For one architecture; empty if missing or damaged.
    machine_code: bytes

    @classmethod
    def read(cls, data: bytes) -> KernelImage:
        head, _, rest = data.partition(b"\n")
        said = json.loads(head)
        text, _, code = rest.partition(b"\0")
        size, checksum = said.get("machine_code", (0, 0))
        code = code[:size]
        is_whole = len(code) == size and zlib.crc32(code) == checksum
        return cls(said, text + b"\0", code if is_whole else b"")

    @property
    def forms(self) -> tuple[bytes, ...]:
        """The forms that a device may load, the fastest first."""
        return (self.machine_code, self.text) if self.machine_code else (self.text,)


def kernels_in(code: bytes) -> Iterator[dict[str, Any]]:
    """The JSON of all kernels in an object file."""
    start = code.find(_BEGIN)
    while start >= 0:
        end = code.find(b"\n", start)
        yield json.loads(code[start:end])
        start = code.find(_BEGIN, end)
