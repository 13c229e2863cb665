"""Tickets, which a tracker gives to clients and a server accepts once.

A ticket is 16 random bytes and a MAC of these with the shared key, for one server. So the server
can verify it without contacting the tracker.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from typing import Final

from tilewright.rpc.wire.keys import is_proof, proof

IDENTITY_BYTES: Final = 16
_RANDOM_BYTES: Final = 16
_REMEMBERED: Final = 10_000


def make_ticket(key: bytes, identity: bytes) -> bytes:
    """A ticket for the server with this identity."""
    chosen = secrets.token_bytes(_RANDOM_BYTES)
    return chosen + proof(key, "ticket", identity, chosen)[:_RANDOM_BYTES]


class Tickets:
    """The tickets of one server; each is accepted once."""

    def __init__(self, key: bytes, tracker: str) -> None:
        self._key, self._tracker = key, tracker
        self.identity = secrets.token_bytes(IDENTITY_BYTES)
        self._used: OrderedDict[bytes, None] = OrderedDict()

    def why_not(self, ticket: bytes) -> str:
        """Why a ticket is refused; empty if it is accepted, and thereby used up."""
        chosen, shown = ticket[:_RANDOM_BYTES], ticket[_RANDOM_BYTES:]
        expected = proof(self._key, "ticket", self.identity, chosen)[:_RANDOM_BYTES]
        if not is_proof(shown, expected):
            return f"it is given out by the tracker at {self._tracker}: request it there"
        if ticket in self._used:
            return "the ticket has been used"
        self._used[ticket] = None
        if len(self._used) > _REMEMBERED:
            self._used.popitem(last=False)
        return ""
