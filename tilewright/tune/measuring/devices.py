"""Where remote devices come from: all of a pool, or one that somebody holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final, Protocol

from tilewright.rpc import Device, Pool, RefusedError, SerialDevice, UnreachableError
from tilewright.runtime import Measured, RunnableModel
from tilewright.support.errors import UserError

#: Seconds to wait for a device of a pool at a time.
_REQUEST: Final = 5.0


class TrialDevice(Protocol):
    """A device that measures, whatever lies between here and there."""

    #: Counts sessions: what was sent in an earlier one is gone.
    epoch: int

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...

    @property
    def target(self) -> str: ...

    @property
    def is_open(self) -> bool:
        """Whether there is a session; if not, the next call begins one."""
        ...

    def load(self, model: RunnableModel, *, threads: int | None = None) -> RunnableModel:
        """Send a compiled model there."""
        ...

    def trial(self, asked: dict[str, Any], code: bytes, within: float) -> Measured:
        """A message of `runtime.trials` that the device answers, in so many seconds at most."""
        ...

    def ping(self) -> None:
        """A call that does nothing: the device is there."""
        ...

    def restart(self) -> None:
        """End the session: the next call begins a new one, with nothing of what was here."""
        ...

    def cut(self) -> None:
        """End what another thread waits for."""
        ...


class Devices(Protocol):
    """Devices that kernels of one target are measured on."""

    @property
    def target(self) -> str:
        """What to compile for."""
        ...

    @property
    def runs_two_models(self) -> bool:
        """Whether winners are timed once more, inside the model, beside that by default."""
        ...

    def size(self) -> int:
        """How many sessions there are now."""
        ...

    def borrowed(self) -> AbstractContextManager[TrialDevice]:
        """One of them, that answers, for as long as the block takes."""
        ...


class OneDevice:
    """A device that stays its owner's."""

    def __init__(self, device: TrialDevice) -> None:
        self._device = device
        self.target = device.target
        # On a board nothing else runs that would disturb a kernel, and memory is short.
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
    """All devices of a pool that have the target which most of them have."""

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
    """The devices that `tw.tune(…, on=on)` means."""
    if isinstance(on, Pool):
        return PoolOfDevices(on)
    if isinstance(on, Device | SerialDevice):
        return OneDevice(on)
    raise UserError(
        f"cannot measure on a {type(on).__name__}",
        remedy="pass what tw.rpc.connect gives for a server, tw.rpc.connect_serial for a board, or"
        " a tracker's .pool(NAME)",
    )
