"""The remote devices for measurements: all of a pool, or a single one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final, Protocol

from tilewright.rpc import Device, Pool, RefusedError, SerialDevice, UnreachableError
from tilewright.runtime import Measured, RunnableModel
from tilewright.support.errors import UserError

#: Seconds per request for a device of a pool.
_REQUEST: Final = 5.0


class TrialDevice(Protocol):
    """A device that measures, over any transport."""

    #: The number of the session: what was sent in an earlier one is gone.
    epoch: int

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def is_open(self) -> bool:
        """Whether a session is open; if not, the next call opens one."""
        ...

    def load(self, model: RunnableModel, *, threads: int | None = None) -> RunnableModel:
        """Send a compiled model to the device."""
        ...

    def trial(self, asked: dict[str, Any], code: bytes, within: float) -> Measured:
        """The device's answer to a message of `runtime.trials`, within this many seconds."""
        ...

    def ping(self) -> None:
        """A call without effect, to check that the device answers."""
        ...

    def restart(self) -> None:
        """End the session: the next call opens a new one, without any state of this one."""
        ...

    def cut(self) -> None:
        """Abort the call that another thread waits for."""
        ...


class Devices(Protocol):
    """Devices for measuring kernels of one target."""

    @property
    def target(self) -> str:
        """The target to compile for."""
        ...

    @property
    def runs_two_models(self) -> bool:
        """Whether winners are timed once more inside the model, next to the default model."""
        ...

    def size(self) -> int:
        """The current number of sessions."""
        ...

    def borrowed(self) -> AbstractContextManager[TrialDevice]:
        """One of the devices that answers, for the duration of the block."""
        ...


class OneDevice:
    """A device that is not closed, as it belongs to the caller."""

    def __init__(self, device: TrialDevice) -> None:
        self._device = device
        self.target = device.target
        # On a board nothing else disturbs a kernel, and memory for two models is short.
        self.runs_two_models = not isinstance(device, SerialDevice)

    def size(self) -> int:
        return 1

    @contextmanager
    def borrowed(self) -> Generator[TrialDevice]:
        self._device.ping()
        try:
            yield self._device
        finally:
            self._device.restart()

    def __str__(self) -> str:
        return f"{self._device.name} at {self._device.address}"


class PoolOfDevices:
    """All devices of a pool whose target is the most frequent one."""

    runs_two_models = True

    def __init__(self, pool: Pool) -> None:
        self._pool, self._size = pool, 1
        targets = Counter[str]()
        for device in pool.devices():
            targets[str(device["target"])] += int(device["sessions"])
        if not targets:
            raise UserError(
                f"no device is called {pool.name}",
                remedy="start one by `tilewright rpc server --tracker … --name"
                f" {pool.name}`, or see which there are by `tilewright rpc list`",
            )
        self.target = targets.most_common(1)[0][0]

    def size(self) -> int:
        with suppress(UnreachableError, RefusedError):
            self._size = self._pool.size
        return self._size

    @contextmanager
    def borrowed(self) -> Generator[Device]:
        with self._pool.request(_REQUEST) as device:
            yield device

    def __str__(self) -> str:
        return f"the pool {self._pool.name}"


def devices_of(on: Any) -> Devices:
    """The devices for the argument `on` of `tw.tune`."""
    if isinstance(on, Pool):
        return PoolOfDevices(on)
    if isinstance(on, Device | SerialDevice):
        return OneDevice(on)
    raise UserError(
        f"cannot measure on a {type(on).__name__}",
        remedy="pass what tw.rpc.connect gives for a server, tw.rpc.connect_serial for a board, or"
        " a tracker's .pool(NAME)",
    )
