"""Distributes work over all devices of a pool."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tilewright.rpc.client.device import Device
from tilewright.rpc.wire.errors import DeviceLostError, RefusedError, UnreachableError
from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.rpc.client.tracker import Tracker

_T = TypeVar("_T")
_R = TypeVar("_R")
#: Attempts for work that ends the sessions it runs in.
_ATTEMPTS: Final = 3
#: Seconds between checks for more devices.
_LOOK_SECONDS: Final = 2.0


class Pool:
    """The devices with one name that a tracker has, now and later."""

    def __init__(self, tracker: Tracker, name: str, priority: int, client: str) -> None:
        self._tracker, self._name = tracker, name
        self._priority, self._client = priority, client

    @property
    def size(self) -> int:
        """The total number of concurrent sessions of its devices."""
        return sum(int(d["sessions"]) for d in self.devices())

    @property
    def name(self) -> str:
        return self._name

    def devices(self) -> list[dict[str, Any]]:
        """The tracker's facts of its devices: address, target, sessions, those in use."""
        return [d for d in self._tracker.devices() if d["name"] == self._name]

    def map(
        self, work: Callable[[Device, _T], _R], items: Iterable[_T], *, timeout: float = 3600.0
    ) -> list[_R]:
        """`work(device, item)` for every item, in their order, on all available devices.

        Work in progress on a device that is lost is repeated on another, up to three times; other
        errors end the call.
        """
        return _Run(self, work, list(items), timeout).results()

    def request(self, timeout: float) -> Device:
        """One of its devices."""
        return self._tracker.request(
            self._name, priority=self._priority, timeout=timeout, client=self._client
        )


class _Run:
    """One `map`: a thread for each available session."""

    def __init__(
        self, pool: Pool, work: Callable[[Device, Any], Any], items: list[Any], timeout: float
    ) -> None:
        self._pool, self._work, self._items = pool, work, items
        self._end = time.monotonic() + timeout
        self._todo: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        for k in range(len(items)):
            self._todo.put((k, 1))
        self._done: dict[int, Any] = {}
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._threads = 0

    def results(self) -> list[Any]:
        with self._changed:
            while len(self._done) < len(self._items) and self._error is None:
                self._enlist()
                self._changed.wait(_LOOK_SECONDS)
                if time.monotonic() > self._end:
                    self._error = UserError("the pool did not finish its work in time")
        if self._error is not None:
            raise self._error
        return [self._done[k] for k in range(len(self._items))]

    def _enlist(self) -> None:
        """Start a thread for each session, but no more than there are items left."""
        try:
            size = max(1, self._pool.size)
        except (UnreachableError, RefusedError):
            size = 1
        while self._threads < min(size, len(self._items) - len(self._done)):
            self._threads += 1
            threading.Thread(target=self._labour, daemon=True).start()

    def _labour(self) -> None:
        try:
            while self._is_going():
                with self._pool.request(max(0.0, self._end - time.monotonic())) as device:
                    self._use(device)
                if self._todo.empty():
                    break
        except BaseException as error:
            self._fail(error)
        finally:
            with self._changed:
                self._threads -= 1
                self._changed.notify_all()

    def _use(self, device: Device) -> None:
        """Work on one device until nothing is left to do, or the device is lost."""
        while self._is_going():
            try:
                k, attempt = self._todo.get_nowait()
            except queue.Empty:
                return
            try:
                result = self._work(device, self._items[k])
            except DeviceLostError:
                if attempt >= _ATTEMPTS:
                    raise
                self._todo.put((k, attempt + 1))
                return
            with self._changed:
                self._done[k] = result
                self._changed.notify_all()

    def _is_going(self) -> bool:
        with self._changed:
            return self._error is None and len(self._done) < len(self._items)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()
