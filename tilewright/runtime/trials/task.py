"""A task as data: everything needed to call its kernels on another machine, except their code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tilewright.runtime.described import (
    UnreadableError,
    signature_data,
    signature_from,
    target_data,
    target_from,
)
from tilewright.runtime.program import TargetInfo
from tilewright.runtime.signature import Signature
from tilewright.support.errors import UserError


@dataclass(frozen=True)
class TrialTask:
    """A kernel whose schedules are compared."""

    #: The function's signature, in which constants are parameters like others.
    signature: Signature
    #: Its scalars and dimensions, in this order.
    numbers: tuple[int, ...]
    target: TargetInfo
    #: The object code of the thread pool.
    pool: bytes
    threads: int | None = None
    #: Bytes of the caches, in which arguments should not stay from call to call.
    caches: int = 0
    #: The indices of parameters that are constants of the model, which were last read in the
    #: previous run, where other operands have just been written by preceding kernels.
    constants: tuple[int, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """The numbers by name."""
        scalars = [p.name for p in self.signature.params if not hasattr(p, "shape")]
        return dict(zip((*scalars, *self.signature.dims), self.numbers, strict=False))

    def packed(self) -> bytes:
        """The task as bytes."""
        head = {
            "signature": signature_data(self.signature),
            "numbers": self.numbers,
            "target": target_data(self.target),
            "threads": self.threads,
            "caches": self.caches,
            "constants": self.constants,
        }
        return json.dumps(head).encode() + b"\n" + self.pool

    @staticmethod
    def unpacked(data: bytes) -> TrialTask:
        """The task that `packed` serialized."""
        head, _, pool = data.partition(b"\n")
        try:
            fields = json.loads(head)
            return TrialTask(
                signature_from(fields["signature"]),
                tuple(_integer(n) for n in fields["numbers"]),
                target_from(fields["target"]),
                pool,
                None if fields["threads"] is None else _integer(fields["threads"]),
                _integer(fields["caches"]),
                tuple(_integer(n) for n in fields.get("constants", ())),
            )
        except (UnreadableError, ValueError, TypeError, KeyError, RecursionError):
            raise UserError("a task cannot be read", reason="its bytes are damaged") from None


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 62:
        raise TypeError
    return value
