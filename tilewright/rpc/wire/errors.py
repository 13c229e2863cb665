"""Errors that cross the wire as data, and those of the wire itself."""

from __future__ import annotations

from typing import Any, Final

from tilewright.rpc.wire.fates import FateKind
from tilewright.runtime import DimensionsDifferError, Failure, StoppedError, TrialError
from tilewright.support.errors import InternalError, TilewrightError, UserError


class WireError(TrialError):
    """What lies between here and a device has failed, or the device itself."""

    @property
    def failure(self) -> Failure:
        return "lost"


class ProtocolError(WireError):
    """The peer sent what the protocol does not allow; the connection ends."""


class UnreachableError(WireError):
    """Nobody answers there, for now."""


class RefusedError(WireError):
    """A server has no session to give, for now."""


class TurnedAwayError(WireError):
    """A listener closed the connection when it saw the client's proof, or ended at that moment."""


class DeviceLostError(WireError):
    """A session ended before it answered; the message says why, as far as that is known.

    What was loaded there is gone. The same call on the same device starts a new session.
    """

    #: How the session ended, for programs.
    kind: FateKind = "unknown"

    @property
    def failure(self) -> Failure:
        return self.kind if self.kind in ("crash", "killed", "time-out") else "lost"


#: The errors that arrive as what they were.
_KINDS: Final[dict[str, type[TilewrightError]]] = {
    kind.__name__: kind
    for kind in (
        UserError,
        DimensionsDifferError,
        StoppedError,
        InternalError,
        ProtocolError,
        DeviceLostError,
    )
}
_FIELDS: Final = ("what", "reason", "remedy", "listing")
#: Characters of each part of a message that are sent.
_LONGEST: Final = 20_000


def error_data(error: TilewrightError) -> dict[str, Any]:
    """An error as the header of a message."""
    kind = type(error).__name__
    known = kind if kind in _KINDS else _nearest_kind(error)
    parts = {name: str(getattr(error, name))[:_LONGEST] for name in _FIELDS}
    places = error.places if isinstance(error, InternalError) else {}
    told = {str(k)[:200]: str(v)[:2000] for k, v in list(places.items())[:16]}
    return {"kind": known, **parts, "places": told}


def error_from(data: dict[str, Any]) -> TilewrightError:
    """The error that a header describes; what makes no sense in it is left out."""
    kind = _KINDS.get(str(data.get("kind")), UserError)
    parts = {name: str(data.get(name, "")) for name in _FIELDS}
    error = kind(parts.pop("what") or "the device refused", **parts)
    places = data.get("places")
    if isinstance(error, InternalError) and isinstance(places, dict):
        error.places.update({str(k): str(v) for k, v in places.items()})  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return error


def _nearest_kind(error: TilewrightError) -> str:
    return "InternalError" if isinstance(error, InternalError) else "UserError"
