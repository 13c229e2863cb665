"""A kernel's code as object files hold it: a line of JSON, PTX that ends with a zero, machine code.

The line says how the kernel is launched, and where there is machine code, its size and checksum
(`codegen.cuda.backend` writes all of it).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

#: How the first line begins.
_BEGIN: Final = b'{"entry": '


class KernelImage(NamedTuple):
    """A kernel's code with how it is launched."""

    said: dict[str, Any]
    #: In the form that any driver compiles, with the zero behind it.
    text: bytes
    #: For one architecture; empty where there is none, or it is damaged.
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
        """What a device may load, the fastest to load first."""
        return (self.machine_code, self.text) if self.machine_code else (self.text,)


def kernels_in(code: bytes) -> Iterator[dict[str, Any]]:
    """What the first lines of all kernels in an object file say."""
    start = code.find(_BEGIN)
    while start >= 0:
        end = code.find(b"\n", start)
        yield json.loads(code[start:end])
        start = code.find(_BEGIN, end)
