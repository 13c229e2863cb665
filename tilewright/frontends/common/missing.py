"""Operators that have no converter, reported all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tilewright.support.errors import UserError

#: How many of the nodes that need an operator are named.
_SHOWN: Final = 4


def refuse_missing(
    model: str,
    missing: Mapping[str, Sequence[str]],
    *,
    hints: Mapping[str, str] | None = None,
    remedy: str = "write converters for them",
) -> None:
    """Raise an error if `missing` has operators; it gives for each the nodes that need it."""
    if not missing:
        return
    lines = [_line(name, nodes, (hints or {}).get(name, "")) for name, nodes in missing.items()]
    raise UserError(
        f"{model} has operators that Tilewright does not know",
        reason=f"{len(missing)} of them, listed below",
        remedy=remedy,
        listing="\n".join(lines),
    )


def _line(name: str, nodes: Sequence[str], hint: str) -> str:
    shown = ", ".join(nodes[:_SHOWN]) + (", …" if len(nodes) > _SHOWN else "")
    return f"    {len(nodes)} × {name}: {shown}" + (f"; {hint}" if hint else "")
