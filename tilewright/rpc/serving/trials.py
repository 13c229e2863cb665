"""Trials in a session: candidates of a task against its default, for tuners."""

from __future__ import annotations

from typing import Any, cast

from tilewright.models.native import why_not
from tilewright.rpc.wire.errors import ProtocolError
from tilewright.rpc.wire.requests import Request
from tilewright.rpc.wire.values import Packed
from tilewright.runtime import TrialServer


class RemoteTrials:
    """The current task of a session; the payload of each message is its array."""

    def __init__(self) -> None:
        self._trials = TrialServer(why_not)

    def answer(self, request: Request, out: Packed) -> dict[str, Any]:
        del out
        asked = request.fields.get("trial")
        if not isinstance(asked, dict) or len(request.arrays) != 1:
            raise ProtocolError("a message is damaged", reason="there is no trial in it")
        code = request.arrays[0].tobytes()
        return {"measured": self._trials.answered(cast("dict[str, Any]", asked), code)}
