"""Messages in protobuf's wire format, read in place.

A `Message` parses its fields when the first one is used, and messages inside it are messages of
their own: a file is not copied, and only used parts are read. Everything is checked: numbers are
complete, fields are inside their message, texts are UTF-8.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

from tilewright.frontends.common.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    WireError,
    fields_of,
    read_number,
)

#: Kinds of fields that are no messages.
_NUMBERS: Final = frozenset("int bool float double".split())


def signed(value: int) -> int:
    """A number of 64 bits with its sign."""
    return value - (1 << 64) if value >> 63 else value


class Message:
    """One message; `schema` gives each kind's fields: {number: (name, kind, one, many or map)}.

    A field is an attribute: a missing one has the default of its kind.
    """

    __slots__ = ("_found", "_schema", "data", "kind")

    def __init__(self, schema: Schema, kind: str, data: memoryview) -> None:
        self._schema, self.kind, self.data = schema, kind, data
        self._found: dict[str, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        found = self._all()
        if name in found:
            return found[name]
        row = self._schema.by_name(self.kind).get(name)
        if row is None:
            raise AttributeError(f"{self.kind} has no field {name}")
        found[name] = value = self._default(*row)
        return value

    def has(self, name: str) -> bool:
        """Whether the message has this field."""
        return name in self._all()

    def _default(self, kind: str, count: str) -> Any:
        if count == "many":
            return []
        if count == "map":
            return {}
        plain = {"text": "", "bytes": b"", "int": 0, "bool": False, "float": 0.0, "double": 0.0}
        if kind in plain:
            return plain[kind]
        return Message(self._schema, kind, memoryview(b""))

    def _all(self) -> dict[str, Any]:
        if self._found is None:
            self._found = self._read()
        return self._found

    def _read(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        rows = self._schema.kinds[self.kind]
        for number, wire, _, start, end, value in fields_of(self.data, 0, len(self.data)):
            row = rows.get(number)
            if row is None:
                continue
            name, kind, count = row
            if count == "map":
                key, entry = self._entry(start, end, wire, kind)
                found.setdefault(name, {})[key] = entry
            elif count == "one":
                found[name] = self._value(kind, wire, start, end, value)
            elif wire == BYTES and kind in _NUMBERS:
                found.setdefault(name, []).extend(packed(kind, self.data[start:end]))
            else:
                found.setdefault(name, []).append(self._value(kind, wire, start, end, value))
        return found

    def _value(self, kind: str, wire: int, start: int, end: int, value: int) -> Any:
        if wire == VARINT:
            if kind not in ("int", "bool"):
                raise WireError(f"a number stands where {kind} should")
            return bool(value) if kind == "bool" else signed(value)
        part = self.data[start:end]
        if kind == "float" and wire == FIXED32:
            return struct.unpack("<f", part)[0]
        if kind == "double" and wire == FIXED64:
            return struct.unpack("<d", part)[0]
        if wire != BYTES or kind in _NUMBERS:
            raise WireError(f"a field of {self.kind} is not {kind}")
        if kind == "text":
            return text(part)
        if kind == "bytes":
            return part
        return Message(self._schema, kind, part)

    def _entry(self, start: int, end: int, wire: int, kind: str) -> tuple[str, Any]:
        """A key, which is text, and a value of a map."""
        if wire != BYTES:
            raise WireError(f"an entry of {self.kind} is no message")
        part, key, value = self.data[start:end], "", memoryview(b"")
        for number, inner, _, begin, stop, _ in fields_of(part, 0, len(part)):
            if inner != BYTES:
                raise WireError(f"an entry of {self.kind} is not text and a message")
            if number == 1:
                key = text(part[begin:stop])
            elif number == 2:
                value = part[begin:stop]
        return key, text(value) if kind == "text" else Message(self._schema, kind, value)


class Schema:
    """The fields of all kinds of messages."""

    def __init__(self, kinds: dict[str, dict[int, tuple[str, str, str]]]) -> None:
        self.kinds = kinds
        self._names = {k: {r[0]: r[1:] for r in rows.values()} for k, rows in kinds.items()}

    def by_name(self, kind: str) -> dict[str, tuple[str, str]]:
        return self._names[kind]

    def message(self, kind: str, data: memoryview) -> Message:
        """The outermost message of some bytes."""
        return Message(self, kind, data)


def text(data: memoryview) -> str:
    """Bytes as text."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        raise WireError("a text is not UTF-8") from None


def packed(kind: str, data: memoryview) -> Any:
    """Numbers one after another."""
    if kind in ("float", "double"):
        size = 4 if kind == "float" else 8
        if len(data) % size:
            raise WireError("numbers end in the middle of one")
        return np.frombuffer(data, f"<f{size}").tolist()
    found: list[Any] = []
    at = 0
    while at < len(data):
        value, at = read_number(data, at)
        found.append(bool(value) if kind == "bool" else signed(value))
    return found
