"""Functions of one byte: a chain of maps on a tensor of bytes is a table of 256 elements.

    s = byte_table(x, sigmoid)
    y = requantize(mul(cast(x), cast(s)), …)      -->      y = byte_table(x, …)

Only among integers, where the operators' references compute bit for bit what native code does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from tilewright.graph.ir import Array, Call, Value
from tilewright.graph.rules.site import Site, speaks_of_places

#: Maps whose numeric attributes are about elements, not axes or shapes.
_OF_ELEMENTS: Final = frozenset(["requantize"])


def as_table(s: Site) -> Value | None:
    """f(g(x), h(x)) = byte_table(x, f(g(b), h(b)) for all bytes b)"""
    if not _is_bytes(s.result) or s.result.is_constant:
        return None
    chain = _Chain(s)
    source = chain.source_of(s.result, s.call)
    if source is None or source.shape != s.result.shape or not chain.is_dear():
        return None
    table = chain.of_every_byte(source)
    return s.emit("byte_table", source, s.constant(table.astype(s.result.dtype.numpy)))


class _Chain:
    """The calls between a tensor of bytes and the result of a site."""

    def __init__(self, site: Site) -> None:
        self._site = site
        #: The one tensor of bytes each value is computed from, or else itself; None: neither.
        self._sources: dict[Value, Value | None] = {}
        self._calls: dict[Value, Call] = {}

    def source_of(self, value: Value, call: Call | None) -> Value | None:
        """The only tensor of bytes that a value is computed from, if there is one."""
        if value not in self._sources:
            self._sources[value] = self._found(value, call)
        return self._sources[value]

    def _found(self, value: Value, call: Call | None) -> Value | None:
        own = value if _is_bytes(value) and value is not self._site.result else None
        if call is None or not self._is_step(call, value):
            return own
        makers = ((a, self._site.made_by(a)) for a in _elements(call) if not _is_number(a))
        found = {self.source_of(a, maker) for a, maker in makers}
        if len(found) != 1 or None in found:
            return own
        self._calls[value] = call
        return found.pop()

    def _is_step(self, call: Call, value: Value) -> bool:
        """Whether it computes integers element by element, by the same formula everywhere."""
        if not all(v.dtype.is_integer or v.dtype.is_bool for v in (value, *_elements(call))):
            return False
        if call.op.name == "byte_table":
            return call.args[1] is not None and call.args[1].is_constant
        if speaks_of_places(call) and call.op.name not in _OF_ELEMENTS:
            return False
        return self._site.facts(call, value).aligned

    def is_dear(self) -> bool:
        """Whether the calls take longer than a lookup: they round, or contain a lookup."""
        names = [call.op.name for call in self._calls.values()]
        return "requantize" in names or ("byte_table" in names and len(names) > 1)

    def of_every_byte(self, source: Value) -> Array:
        """The results of the calls for all bytes, in order."""
        least, most = int(source.dtype.min_value), int(source.dtype.max_value)
        known = {source: np.arange(least, most + 1).astype(source.dtype.numpy)}
        return self._evaluated(self._site.result, known)

    def _evaluated(self, value: Value, known: dict[Value, Array]) -> Array:
        if value.constant is not None:
            return value.constant.reshape(()) if _is_number(value) else value.constant
        if value not in known:
            call = self._calls[value]
            args = [None if a is None else self._evaluated(a, known) for a in call.args]
            known[value] = np.asarray(call.op.evaluate(args, call.attrs)[0])
        return known[value]


def _elements(call: Call) -> Iterator[Value]:
    """The operands that are read element by element."""
    given = call.args[:1] if call.op.name == "byte_table" else call.args
    return (a for a in given if a is not None)


def _is_bytes(value: Value) -> bool:
    return value.dtype.is_integer and value.dtype.bits == 8


def _is_number(value: Value) -> bool:
    """Whether it is one number, the same for all elements."""
    return value.constant is not None and value.constant.size == 1


#: For every operator.
MAPS = (as_table,)
