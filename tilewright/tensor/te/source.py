"""The position of a definition in the user's source."""

from __future__ import annotations

import sys

from tilewright.ir import Span

_ROOM = "tilewright.tensor"


def caller_span() -> Span | None:
    """The nearest line on the call stack that is not in this package."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_ROOM):
        frame = frame.f_back
    return None if frame is None else Span(frame.f_code.co_filename, frame.f_lineno)
