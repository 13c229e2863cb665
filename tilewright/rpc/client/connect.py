"""`connect`: the device or tracker at an address."""

from __future__ import annotations

from typing import Any

from tilewright.rpc.client.device import Device, direct
from tilewright.rpc.client.link import Link
from tilewright.rpc.client.tracker import Tracker
from tilewright.rpc.wire.handshake import Role
from tilewright.rpc.wire.keys import AnyKey, read_key


def connect(address: str, key: AnyKey) -> Any:
    """The `Device` or `Tracker` at `host:port`, depending on what listens there.

    `key` is the path of a key file (`tilewright rpc keygen`), its text, or 32 bytes.
    """
    link = Link(address, read_key(key))
    return Device(direct(link)) if link.role() is Role.SERVER else Tracker(link)
