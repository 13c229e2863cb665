"""The seal that ties the data of an artifact to its code.

Code that runs on other data than it was compiled for accesses memory out of bounds. So the code of
a host program contains a digest of everything it depends on: its inputs and outputs, constants, the
other objects, its target. Loading computes the digest again, before any code is mapped; whoever
changes the manifest would have to change the code as well.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.runtime.arrays import Array, let_go
from tilewright.runtime.artifact.describe import spec_fields
from tilewright.runtime.program import Program, TargetInfo
from tilewright.support.dtype import DType

#: Precedes the digest in the code, which is 64 hexadecimal digits.
MARK: Final = b"tilewright seal 1: "
_DIGITS: Final = 64
_CHUNK: Final = 1 << 24


def seal_of(
    program: Program,
    kernels: Sequence[bytes],
    constants: Sequence[Array],
    checksums: Sequence[int],
    pool: bytes,
    target: TargetInfo,
) -> bytes:
    """The seal of a program that consists of the host program and these kernels.

    `checksums` are those of the constants.
    """
    shown = [
        program.name,
        [spec_fields(s) for s in program.inputs],
        [spec_fields(s) for s in program.outputs],
        list(program.dims),
        list(program.direct),
        [list(pair) for pair in program.records.items()],
        list(program.messages),
        list(program.origins),
        list(program.calls),
        program.precision,
        program.denormals,
        [[DType.of(c.dtype).name, list(c.shape)] for c in constants],
        list(checksums),
        [hashlib.sha256(code).hexdigest() for code in (pool, *kernels)],
        [target.text, target.triple, sorted(target.features)],
    ]
    text = json.dumps(shown, separators=(",", ":"))
    return MARK + hashlib.sha256(text.encode()).hexdigest().encode()


def recording_seal(seal: bytes, words: int) -> bytes:
    """The seal of the recording variant of a program with `seal`, for events of this many words."""
    return MARK + hashlib.sha256(seal + b" events of %d words" % words).hexdigest().encode()


def seal_in(code: bytes) -> bytes | None:
    """The seal in object code; None in programs of earlier versions."""
    at = code.find(MARK)
    return None if at < 0 else code[at : at + len(MARK) + _DIGITS]


def checksum_of(array: Array) -> int:
    """The checksum of an array's elements; pages of mapped files are released again."""
    data: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    checksum = 0
    for start in range(0, len(data), _CHUNK):
        part = data[start : start + _CHUNK]
        checksum = zlib.crc32(part.data, checksum)
        let_go(part)
    return checksum
