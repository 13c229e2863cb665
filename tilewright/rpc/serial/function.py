"""The function of a kernel on a board, with the memory for its calls."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tilewright.models.micro import kernel_alone
from tilewright.rpc.serial.code import BoardCode
from tilewright.rpc.serial.monitor import Called
from tilewright.runtime import ArrayParam
from tilewright.support.errors import UserError
from tilewright.target import Target

if TYPE_CHECKING:
    from tilewright.rpc.serial.device import SerialDevice

#: The three words after a kernel's arrays: thread pool, workspace, error record.
_ENV: Final = struct.Struct("<QQQ")
#: The size of an error record.
_RECORD_BYTES: Final = 6 * 8


class BoardFunction:
    """A function that takes arrays; memory for arrays of `sizes` is allocated with it. `workspace`
    is its size in bytes, and `messages` are those of its errors."""

    def __init__(
        self,
        device: SerialDevice,
        target: str,
        name: str,
        code: bytes,
        messages: Sequence[str],
        workspace: Any,
        sizes: Sequence[int] = (),
    ) -> None:
        if not isinstance(workspace, int):
            raise refusal(name, "the memory that it works in is not known beforehand")
        self._name, self._messages = name, messages
        own = [*sizes, workspace, _RECORD_BYTES, _ENV.size]
        self._code = BoardCode(device, kernel_alone(code, Target.of(target)), name, own)
        self._write_env()

    @property
    def places(self) -> list[int]:
        """The addresses of the arrays allocated with it."""
        return self._code.places[:-3]

    def ready(self) -> None:
        """Send it to the board if it is not there."""
        if self._code.ready():
            self._write_env()

    def call(self, places: Sequence[int], seconds: float | None = None) -> Called:
        """Call it with arrays at these addresses, with a time limit in seconds."""
        called = self._code.call([*places, self._code.places[-1]], seconds)
        if called.value:
            number = called.value - 1
            known = 0 <= number < len(self._messages)
            reason = self._messages[number] if known else f"it says {called.value}"
            raise UserError(f"{self._name} stopped on the board", reason=reason)
        return called

    def _write_env(self) -> None:
        *_, workspace, record, env = self._code.places
        self._code.device.monitor.write(env, _ENV.pack(0, workspace, record))


def bytes_of_param(function: str, param: Any) -> int:
    """The size of an array parameter in bytes."""
    if not isinstance(param, ArrayParam):
        raise refusal(function, f"{param.name} is a number, and the monitor passes arrays alone")
    extents = [d for d in param.shape if isinstance(d, int)]
    if len(extents) != len(param.shape) or param.strides is not None:
        raise refusal(function, f"the size of {param.name} is known only when it runs")
    return int(np.prod(extents, dtype=np.int64)) * param.dtype.itemsize


def refusal(function: str, reason: str) -> UserError:
    """The error for a function that cannot run on any board."""
    return UserError(
        f"{function} cannot run on a board",
        reason=reason,
        remedy="build it for the target of the device, over arrays whose sizes are numbers",
    )
