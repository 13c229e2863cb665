"""Attributes of nodes, typed."""

from __future__ import annotations

from typing import Any, Final

from tilewright.support.errors import UserError

#: The number, the field and the name of each kind of attribute.
_FIELDS: Final = {
    1: "f",
    2: "i",
    3: "s",
    4: "t",
    5: "g",
    6: "floats",
    7: "ints",
    8: "strings",
    9: "tensors",
    10: "graphs",
    11: "sparse_tensor",
    12: "sparse_tensors",
    13: "tp",
    14: "type_protos",
}
_WORDS: Final = {
    "f": "a float",
    "i": "an integer",
    "s": "a string",
    "t": "a tensor",
    "g": "a graph",
    "floats": "floats",
    "ints": "integers",
    "strings": "strings",
    "sparse_tensor": "a sparse tensor",
    "tp": "a type",
}
_REPEATED: Final = {"floats", "ints", "strings", "tensors", "graphs"}


class Attributes:
    """The attributes of one node; those of a function's node may refer to the function's."""

    def __init__(self, node: Any, outer: Attributes | None = None) -> None:
        self._protos: dict[str, Any] = {}
        for proto in node.attribute:
            if proto.name in self._protos:
                raise UserError(f"the attribute {proto.name} is given twice")
            found = _resolved(proto, outer)
            if found is not None:
                self._protos[proto.name] = found

    def set_default(self, proto: Any) -> None:
        """Set the value of an attribute that is not given."""
        self._protos.setdefault(proto.name, proto)

    def find(self, name: str) -> Any:
        """The AttributeProto of this name, or None."""
        return self._protos.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._protos

    def __iter__(self) -> Any:
        return iter(self._protos)

    def get(self, name: str, field: str, default: Any) -> Any:
        """The value of an attribute of the kind of `field`."""
        proto = self._protos.get(name)
        if proto is None:
            if default is REQUIRED:
                raise UserError(f"the attribute {name} is missing")
            return default
        if _field(proto) != field:
            raise UserError(
                f"the attribute {name} is {_WORDS.get(_field(proto), 'of another kind')}",
                reason=f"it should be {_WORDS[field]}",
            )
        value = getattr(proto, field)
        return list(value) if field in _REPEATED else value


REQUIRED: Final = object()


def _resolved(proto: Any, outer: Attributes | None) -> Any:
    if not proto.ref_attr_name:
        return proto
    return None if outer is None else outer.find(proto.ref_attr_name)


def _field(proto: Any) -> str:
    if proto.type in _FIELDS:
        return _FIELDS[proto.type]
    # Models from before 2017 do not state the kind.
    return next((f for f in _FIELDS.values() if _is_set(proto, f)), "")


def _is_set(proto: Any, field: str) -> bool:
    value = getattr(proto, field)
    repeated = field in _REPEATED or field in ("sparse_tensors", "type_protos")
    return len(value) > 0 if repeated else proto.HasField(field)


def text(value: bytes, name: str) -> str:
    """A string attribute's bytes as text."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise UserError(f"the attribute {name} is no UTF-8 text") from None
