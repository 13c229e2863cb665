"""Compiled kernels as plain data, to be stored or sent to where they run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, cast

from tilewright.runtime.program import TargetInfo
from tilewright.runtime.signature import Signature
from tilewright.support.dtype import DType
from tilewright.support.errors import UserError


@dataclass(frozen=True)
class KernelCode:
    """Everything needed to call a kernel on a machine of its target."""

    target: TargetInfo
    signature: Signature
    object_code: bytes
    #: The texts of the code's errors, by number.
    messages: tuple[str, ...]
    #: The object code of the thread pool.
    pool: bytes
    threads: int | None = None
    #: Bytes of workspace, where no function of the code computes it: without an operating system.
    workspace: int | None = None


@dataclass(frozen=True)
class Preparation:
    """A kernel's work on constants, done once: it fills buffers that the kernel then takes."""

    name: str
    object_code: bytes
    messages: tuple[str, ...]
    #: The indices of the kernel's parameters that this takes, before the buffers it fills.
    taken: tuple[int, ...]
    #: The indices of parameters that the kernel itself no longer takes.
    dropped: tuple[int, ...]
    #: The element types and shapes of the buffers, which follow the kernel's other parameters.
    made: tuple[tuple[str, tuple[int, ...]], ...]
    #: Bytes of workspace; None if not known in advance.
    workspace: int | None


@dataclass(frozen=True)
class PackedKernel:
    """A kernel of a model: its code with what its callers must know."""

    name: str
    messages: tuple[str, ...]
    #: The bytes of workspace, as a formula over the kernel's numbers.
    workspace: Any
    #: The code as serialized by the target's back end.
    code: bytes
    preparation: Preparation | None = None
    #: A warning for whoever compiles it; mostly empty.
    note: str = ""

    def packed(self) -> bytes:
        """The kernel as bytes."""
        once = self.preparation
        prepares = b"" if once is None else once.object_code
        head = {
            "kernel": [self.name, self.messages, self.workspace, len(self.code), self.note],
            "once": once and _preparation_data(once),
        }
        text = json.dumps(head).encode()
        return len(text).to_bytes(8, "little") + text + self.code + prepares

    @classmethod
    def unpacked(cls, data: bytes) -> Self:
        """The kernel that `packed` serialized."""
        try:
            return cls._unpacked(data)
        except (ValueError, TypeError, KeyError, RecursionError):
            raise UserError("a kernel cannot be read", reason="its bytes are damaged") from None

    @classmethod
    def _unpacked(cls, data: bytes) -> Self:
        start = 8 + int.from_bytes(data[:8], "little")
        head = json.loads(data[8:start])
        name, messages, workspace, size, note = head["kernel"]
        end = start + _natural(size)
        if end > len(data):
            raise ValueError
        once = None if head["once"] is None else _preparation(head["once"], data[end:])
        code = data[start:end]
        return cls(_text(name), _texts(messages), workspace, code, once, _text(note))


def _preparation_data(once: Preparation) -> list[Any]:
    return [once.name, once.messages, once.taken, once.dropped, once.made, once.workspace]


def _preparation(fields: Sequence[Any], code: bytes) -> Preparation:
    name, messages, taken, dropped, made, workspace = fields
    return Preparation(
        _text(name),
        code,
        _texts(messages),
        _naturals(taken),
        _naturals(dropped),
        tuple((DType.of(_text(dtype)).name, _naturals(shape)) for dtype, shape in made),
        None if workspace is None else _natural(workspace),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _texts(values: Any) -> tuple[str, ...]:
    return tuple(map(_text, values))


def _natural(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError
    return value


def _naturals(values: Any) -> tuple[int, ...]:
    return tuple(map(_natural, cast("Sequence[Any]", values)))
