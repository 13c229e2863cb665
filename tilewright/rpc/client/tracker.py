"""The client's view of a tracker: its devices, and requests for them."""

from __future__ import annotations

import time
from typing import Any, Final

from tilewright.rpc.client.device import Device
from tilewright.rpc.client.link import Link
from tilewright.rpc.client.pool import Pool
from tilewright.rpc.wire.channel import Channel
from tilewright.rpc.wire.errors import ProtocolError, RefusedError, UnreachableError, error_from
from tilewright.rpc.wire.frames import Kind

#: Seconds between attempts to reach a tracker or a device that does not answer.
_RETRY_SECONDS: Final = 0.5


class Tracker:
    """A tracker; it holds no connection, each request opens one."""

    def __init__(self, link: Link) -> None:
        self._link = link

    @property
    def address(self) -> str:
        return self._link.address

    def devices(self) -> list[dict[str, Any]]:
        """The registered devices: name, address, target, sessions, those in use, and requests."""
        channel, _ = self._link.open()
        try:
            return list(self._ask(channel, {"call": "devices"})["devices"])
        except (OSError, ProtocolError) as error:
            raise UnreachableError("the tracker does not answer", reason=str(error)) from None
        finally:
            channel.close()

    def request(
        self, name: str, *, priority: int = 0, timeout: float = 600.0, client: str = ""
    ) -> Device:
        """A device of this name, as soon as one is free; return it by `close`, or use `with`.

        Higher priorities go first; among equal ones, devices are shared evenly between clients,
        which are identified by `client` (by default user and host).
        """
        fields = {"call": "request", "name": name, "priority": int(priority), "client": client}
        return Device(lambda: self._opened(fields, time.monotonic() + timeout))

    def pool(self, name: str, *, priority: int = 0, client: str = "") -> Pool:
        """All devices of this name, for work that can be done on any of them."""
        return Pool(self, name, priority, client)

    def _opened(self, fields: dict[str, Any], end: float) -> tuple[Channel, dict[str, Any], Link]:
        """A session on a device that the tracker assigns, after as many attempts as time allows."""
        while True:
            try:
                answer = self._granted({**fields, "seconds": max(0.0, end - time.monotonic())})
                link = Link(str(answer["address"]), self._link.key)
                return *link.open(bytes.fromhex(str(answer["ticket"]))), link
            except (UnreachableError, RefusedError, OSError, ProtocolError):
                # The peer has gone; the tracker will have noticed, or will be back soon.
                if time.monotonic() + _RETRY_SECONDS > end:
                    raise
                time.sleep(_RETRY_SECONDS)

    def _granted(self, fields: dict[str, Any]) -> dict[str, Any]:
        channel, _ = self._link.open()
        try:
            return self._ask(channel, fields)
        finally:
            channel.close()

    def _ask(self, channel: Channel, fields: dict[str, Any]) -> dict[str, Any]:
        channel.send(Kind.REQUEST, 1, fields)
        prefix, answer = channel.answer(1)
        if prefix.kind is Kind.ERROR:
            raise error_from(answer)
        return answer

    def __repr__(self) -> str:
        return f"<Tracker at {self.address}>"
