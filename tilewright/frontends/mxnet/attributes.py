"""Attributes of nodes, which are all text: `(2, 2)`, `True`, `None`, `0.9`, `1L`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from tilewright.support.errors import UserError

_WHOLE: Final = re.compile(r"-?\d{1,19}L?")
_TRUE, _FALSE = ("True", "true", "1"), ("False", "false", "0")
REQUIRED: Final = object()


class Attributes:
    """The attributes of one node; those without a default must exist."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def __contains__(self, name: str) -> bool:
        """Whether an attribute exists and has a value."""
        return self._given.get(name, "None") not in ("None", "")

    def text(self, name: str, default: Any = REQUIRED) -> Any:
        if name in self:
            return self._given[name]
        if default is REQUIRED:
            raise UserError(f"the attribute {name} is missing")
        return default

    def integer(self, name: str, default: Any = REQUIRED) -> Any:
        found = self.text(name, default)
        return found if found is default else _whole(name, found)

    def real(self, name: str, default: Any = REQUIRED) -> Any:
        found = self.text(name, default)
        if found is default:
            return found
        try:
            return float(found)
        except ValueError:
            raise UserError(f"{name} is {found[:40]!r}", reason="it takes a number") from None

    def flag(self, name: str, default: bool = False) -> bool:
        found = self.text(name, str(default))
        if found not in _TRUE + _FALSE:
            raise UserError(f"{name} is {found[:40]!r}", reason="it takes True or False")
        return found in _TRUE

    def integers(self, name: str, default: Any = REQUIRED) -> Any:
        """Integers; a single one counts as a list of one."""
        found = self.items(name, default)
        return found if found is default else [_whole(name, t) for t in found]

    def optional_integers(self, name: str) -> list[int | None]:
        """Integers, some of which may be None."""
        return [None if t == "None" else _whole(name, t) for t in self.items(name)]

    def reals(self, name: str, default: Any = REQUIRED) -> Any:
        found = self.items(name, default)
        if found is default:
            return found
        try:
            return [float(t) for t in found]
        except ValueError:
            raise UserError(f"{name} is {found}", reason="it takes numbers") from None

    def items(self, name: str, default: Any = REQUIRED) -> Any:
        found = self.text(name, default)
        if found is default:
            return found
        return [t for t in re.split(r"[\s,()\[\]]+", found) if t]


def _whole(name: str, text: str) -> int:
    if _WHOLE.fullmatch(text.strip()) is None:
        raise UserError(f"{name} is {text[:40]!r}", reason="it takes whole numbers")
    return int(text.strip().rstrip("L"))
