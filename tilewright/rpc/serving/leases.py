"""The lease table of a tracker: which client gets which device; independent of the network.

Requests with a higher priority go first; among equal ones, that of the client that has used devices
for the shortest time; then the oldest. A new client starts with the least usage of those present,
so that it has neither credit nor debt for the past.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Final

#: Seconds of silence after which a device counts as gone.
DEVICE_SECONDS: Final = 5.0
#: Seconds for a client to begin the session it was granted.
CLAIM_SECONDS: Final = 20.0
#: Most clients whose usage is remembered.
_REMEMBERED: Final = 1000


@dataclass
class Lease:
    """A device granted to a client; `deadline` is None once its session has begun."""

    ticket: str
    client: str
    deadline: float | None


@dataclass
class Entry:
    """A registered device."""

    name: str
    address: str
    target: str
    #: Concurrent sessions.
    slots: int
    seen: float
    #: Identifies the server in its tickets.
    identity: bytes
    leases: dict[str, Lease] = field(default_factory=dict[str, Lease])

    @property
    def is_free(self) -> bool:
        return len(self.leases) < self.slots


@dataclass
class Waiting:
    """A pending request."""

    name: str
    client: str
    priority: int
    number: int
    granted: tuple[Entry, str] | None = None


class LeaseTable:
    """All devices, requests and leases; times are seconds of any clock."""

    def __init__(self, now: float) -> None:
        self.devices: dict[int, Entry] = {}
        self.waiting: list[Waiting] = []
        #: Seconds of device usage, by client.
        self.used: dict[str, float] = {}
        self._numbers = count(1)
        self._accounted = now

    # ---- devices --------------------------------------------------------------------------------

    def register(self, entry: Entry) -> int:
        """Add a device; gives its number."""
        number = next(self._numbers)
        self.devices[number] = entry
        return number

    def beat(self, number: int, running: Iterable[str], ended: Iterable[str], now: float) -> bool:
        """Process a device's report of its running and ended tickets.

        `running` is complete each time, and may include another tracker's tickets. Returns False if
        the device is unknown.
        """
        entry = self.devices.get(number)
        if entry is None:
            return False
        self.account(now)
        entry.seen = now
        over, before = set(ended), entry.leases
        waited_for = {t: lease for t, lease in before.items() if lease.deadline is not None}
        clients = {t: before[t].client if t in before else "" for t in running}
        leases = {**waited_for, **{t: Lease(t, c, None) for t, c in clients.items()}}
        entry.leases = {t: lease for t, lease in leases.items() if t not in over}
        return True

    def remove(self, number: int) -> None:
        """Remove a device with its leases."""
        self.devices.pop(number, None)

    # ---- requests -------------------------------------------------------------------------------

    def want(self, name: str, client: str, priority: int) -> Waiting:
        """Add a client's request for a device."""
        others = self._active()
        if client not in others:
            level = min((self.used.get(c, 0.0) for c in others), default=0.0)
            self.used[client] = max(self.used.get(client, 0.0), level)
        request = Waiting(name, client, priority, next(self._numbers))
        self.waiting.append(request)
        self._forget()
        return request

    def cancel(self, request: Waiting) -> None:
        """Cancel a request; a device granted to it is free again."""
        if request in self.waiting:
            self.waiting.remove(request)
        if request.granted is not None:
            entry, ticket = request.granted
            entry.leases.pop(ticket, None)

    def tick(self, now: float) -> None:
        """Revoke unclaimed leases, and remove silent devices."""
        self.account(now)
        for number, entry in list(self.devices.items()):
            if now - entry.seen > DEVICE_SECONDS:
                del self.devices[number]
            late = [
                t for t, x in entry.leases.items() if x.deadline is not None and x.deadline < now
            ]
            for ticket in late:
                del entry.leases[ticket]

    def account(self, now: float) -> None:
        """Add the elapsed time to the clients' usage."""
        passed, self._accounted = max(0.0, now - self._accounted), now
        for entry in self.devices.values():
            for lease in entry.leases.values():
                self.used[lease.client] = self.used.get(lease.client, 0.0) + passed

    def grantable(self) -> tuple[Waiting, Entry] | None:
        """The next request that can be granted, and the device for it."""
        free: dict[str, Entry] = {}
        for entry in self.devices.values():
            best = free.get(entry.name)
            if entry.is_free and (best is None or len(entry.leases) < len(best.leases)):
                free[entry.name] = entry
        able = [r for r in self.waiting if r.name in free]
        if not able:
            return None
        first = min(able, key=lambda r: (-r.priority, self.used.get(r.client, 0.0), r.number))
        return first, free[first.name]

    def grant(self, request: Waiting, entry: Entry, ticket: str, now: float) -> None:
        """Give a device to a client."""
        self.waiting.remove(request)
        entry.leases[ticket] = Lease(ticket, request.client, now + CLAIM_SECONDS)
        request.granted = (entry, ticket)

    def _active(self) -> set[str]:
        leases = (x.client for entry in self.devices.values() for x in entry.leases.values())
        return {*(r.client for r in self.waiting), *leases}

    def _forget(self) -> None:
        if len(self.used) > _REMEMBERED:
            active = self._active()
            self.used = {c: s for c, s in self.used.items() if c in active}
