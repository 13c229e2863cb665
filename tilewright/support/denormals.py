"""Denormals: floating-point numbers below the least normal one (2**-126 in float32).

They cost most processors a hundred cycles or more per operation. "flush" treats them as zeros
wherever the machine computes in float32 and float64; "keep" computes with them as IEEE 754 says.
float16 keeps its denormals, which are normal numbers of float32.
"""

from __future__ import annotations

from typing import Final, Literal

from tilewright.support.errors import UserError

Denormals = Literal["flush", "keep"]
DENORMALS: Final[dict[str, Denormals]] = {"flush": "flush", "keep": "keep"}


def denormals_of(text: object) -> Denormals:
    """The mode that `text` names."""
    if not isinstance(text, str) or text not in DENORMALS:
        raise UserError(
            f"denormals cannot be treated by {text!r}", remedy=f"use {' or '.join(DENORMALS)}"
        )
    return DENORMALS[text]
