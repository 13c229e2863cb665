"""Reads values of a manifest, with a check of each one's type."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from tilewright.support.errors import UserError

T = TypeVar("T")
_OBJECT = cast("type[dict[str, Any]]", dict)
_LIST = cast("type[list[Any]]", list)


class Fields:
    """An object of a manifest; `path` is its location, for messages."""

    def __init__(self, value: Any, path: str, refuse: Callable[[str], UserError]) -> None:
        self._refuse, self._path = refuse, path
        self._values: dict[str, Any] = self._require(value, _OBJECT, path)

    @staticmethod
    def parse(text: bytes, refuse: Callable[[str], UserError]) -> Fields:
        """The object of a JSON text."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise refuse("its manifest is not JSON") from None
        return Fields(value, "", refuse)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def text(self, name: str) -> str:
        return self._get(name, str)

    def integer(self, name: str) -> int:
        """A nonnegative number."""
        return self.natural(self._get(name, int), self._at(name))

    def fields(self, name: str) -> Fields:
        return Fields(self._get(name, _OBJECT), self._at(name), self._refuse)

    def all_fields(self, name: str) -> list[Fields]:
        """The objects of a list."""
        return [Fields(v, at, self._refuse) for v, at in self._each(name)]

    def texts(self, name: str) -> list[str]:
        return [self._require(v, str, at) for v, at in self._each(name)]

    def integers(self, name: str) -> list[int]:
        return [self.natural(v, at) for v, at in self._each(name)]

    def values(self, name: str) -> list[Any]:
        """The elements of a list, unchecked."""
        return [v for v, _ in self._each(name)]

    def natural(self, value: Any, at: str = "") -> int:
        number = self._require(value, int, at)
        if isinstance(number, bool) or not 0 <= number < 1 << 62:
            raise self.wrong(f"{at or self._path} is {number}")
        return number

    def wrong(self, reason: str) -> UserError:
        """The error for invalid values."""
        return self._refuse(f"its manifest is wrong: {reason}")

    def _at(self, name: str) -> str:
        return f"{self._path}.{name}" if self._path else name

    def _each(self, name: str) -> list[tuple[Any, str]]:
        items = self._get(name, _LIST)
        return [(v, f"{self._at(name)}[{k}]") for k, v in enumerate(items)]

    def _get(self, name: str, kind: type[T]) -> T:
        if name not in self._values:
            raise self.wrong(f"{self._at(name)} is missing")
        return self._require(self._values[name], kind, self._at(name))

    def _require(self, value: Any, kind: type[T], at: str) -> T:
        if not isinstance(value, kind):
            raise self.wrong(f"{at or 'it'} is no {kind.__name__}")
        return value
