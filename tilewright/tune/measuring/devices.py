"""Where remote devices come from: all of a pool, or one that somebody holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final, Protocol

from tilewright.rpc import Device, Pool, RefusedError, UnreachableError
from tilewright.support.errors import UserError

#: Seconds to wait for a device of a pool at a time.
_REQUEST: Final = 5.0


class Devices(Protocol):
    """Devices that kernels of one target are measured on."""

    @property
    def target(self) -> str:
        """What to compile for."""
        ...

    def size(self) -> int:
        """How many sessions there are now."""
        ...

    def borrowed(self) -> AbstractContextManager[Device]:
        """One of them, that answers, for as long as the block takes."""
        ...


class OneDevice:
    """A device that stays its owner's."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.target = device.target

    def size(self) -> int:
        return 1

    @contextmanager
    def borrowed(self) -> Generator[Device]:
        self._device.ping()
        try:
            yield self._device
        finally:
            self._device.restart()

    def __str__(self) -> str:
        return f"{self._device.name} at {self._device.address}"


class PoolOfDevices:
    """All devices of a pool that have the target which most of them have."""

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
    if isinstance(on, Device):
        return OneDevice(on)
    raise UserError(
        f"cannot measure on a {type(on).__name__}",
        remedy="pass what tw.rpc.connect gives for a server, or a tracker's .pool(NAME)",
    )
