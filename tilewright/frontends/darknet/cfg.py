"""Darknet's cfg files: sections in brackets, each with options `key=value`.

Blanks do not matter; lines that begin with `#` or `;` are comments, and so is what follows a `#`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tilewright.support.errors import UserError

#: More layers are refused.
_MOST_SECTIONS: Final = 20_000

#: Names of the first section, and short names of others.
NETWORK: Final = ("net", "network")
_SHORT: Final = {
    "conv": "convolutional",
    "deconv": "deconvolutional",
    "conn": "connected",
    "max": "maxpool",
    "avg": "avgpool",
    "soft": "softmax",
    "network": "net",
}


@dataclass(slots=True)
class Section:
    """One section: its kind, its options as text, and the line on which it begins."""

    kind: str
    line: int
    options: dict[str, str] = field(default_factory=dict[str, str])


def parse_cfg(text: str, name: str) -> list[Section]:
    """The sections of a cfg file; the first describes the network, each other one a layer."""
    sections: list[Section] = []
    for number, line in enumerate(text.splitlines(), 1):
        plain = "".join(line.split("#", 1)[0].split())
        if not plain or plain.startswith(";"):
            continue
        if plain.startswith("["):
            sections.append(_section(plain, number, name))
        elif not sections or "=" not in plain:
            raise UserError(
                f"{name} cannot be read",
                reason=f"line {number} is neither a section nor an option: {plain[:60]!r}",
            )
        else:
            key, _, value = plain.partition("=")
            sections[-1].options[key] = value
        if len(sections) > _MOST_SECTIONS:
            raise UserError(f"{name} has more than {_MOST_SECTIONS} sections")
    if not sections or sections[0].kind != "net":
        raise UserError(f"{name} is no cfg file of Darknet", reason="it does not begin with [net]")
    return sections


def _section(line: str, number: int, name: str) -> Section:
    kind = line[1:-1].lower()
    if not line.endswith("]") or not kind:
        raise UserError(f"{name} cannot be read", reason=f"line {number} is {line[:60]!r}")
    return Section(_SHORT.get(kind, kind), number)


def is_cfg(head: bytes) -> bool:
    """Whether a file begins as a cfg file does."""
    for line in head.decode("utf-8-sig", "replace").splitlines():
        plain = "".join(line.split("#", 1)[0].split()).lower()
        if plain and not plain.startswith(";"):
            return plain in [f"[{name}]" for name in NETWORK]
    return False
