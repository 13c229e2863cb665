"""A task as data: all that is needed to call its kernels on another machine, but their code."""

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

    #: Of the function, whose constants are parameters like others.
    signature: Signature
    #: Its scalars and dimensions, in this order.
    numbers: tuple[int, ...]
    target: TargetInfo
    #: The object code of the thread pool.
    pool: bytes
    threads: int | None = None
    #: Bytes of the caches that arguments should not stay in from call to call.
    caches: int = 0
    #: Which parameters are constants of the model: what a device has not read since the last run,
    #: where the others were written by the kernels before.
    constants: tuple[int, ...] = ()

    @property
    def sizes(self) -> dict[str, int]:
        """The numbers by name."""
        scalars = [p.name for p in self.signature.params if not hasattr(p, "shape")]
        return dict(zip((*scalars, *self.signature.dims), self.numbers, strict=False))

    def packed(self) -> bytes:
        """All of it as bytes."""
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
        """The task that `packed` made these bytes of."""
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
