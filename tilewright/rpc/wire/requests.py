"""Reads the fields of a request's header, with a check of each one's type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from tilewright.rpc.wire.errors import ProtocolError

_LONGEST_TEXT: Final = 4096


class Request:
    """The fields of a request, checked on access."""

    def __init__(self, fields: dict[str, Any], arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        self.fields, self.arrays = fields, arrays

    def text(self, name: str) -> str:
        return self._text(self.fields.get(name), name)

    def texts(self, name: str) -> list[str]:
        return [self._text(v, name) for v in self._list(name)]

    def hexadecimal(self, name: str) -> bytes:
        try:
            return bytes.fromhex(self.text(name))
        except ValueError:
            raise self._wrong(name) from None

    def integer(self, name: str) -> int:
        value = self.fields.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 32:
            raise self._wrong(name)
        return value

    def natural(self, name: str) -> int:
        return self._natural(self.fields.get(name), name)

    def naturals(self, name: str) -> list[int]:
        return [self._natural(v, name) for v in self._list(name)]

    def optional(self, name: str) -> int | None:
        return None if self.fields.get(name) is None else self.natural(name)

    def number(self, name: str) -> float:
        value = self.fields.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
            raise self._wrong(name)
        return float(value)

    def _list(self, name: str) -> list[Any]:
        value = self.fields.get(name)
        if not isinstance(value, list):
            raise self._wrong(name)
        return cast("list[Any]", value)

    def _text(self, value: Any, name: str) -> str:
        if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
            raise self._wrong(name)
        return value

    def _natural(self, value: Any, name: str) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
            raise self._wrong(name)
        return value

    def _wrong(self, name: str) -> ProtocolError:
        return ProtocolError("a message is damaged", reason=f"its field {name} makes no sense")
