"""Available values of expressions that read memory, valid until a store changes what they read.

LLVM eliminates redundant loads itself, but each would first have to be printed, parsed and
analysed: in unrolled loops, that is most of the text.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.codegen.llvm.types import LLValue
from tilewright.ir import Buffer, Const, Expr, Load, Ramp, const

#: Start and end (exclusive) of the elements accessed; None where they are not constant.
Span = tuple[int, int] | None


class AvailableValue(NamedTuple):
    """The current value of an expression, and the buffers it was read from."""

    value: LLValue
    reads: frozenset[Buffer]


class AvailableValues:
    """Known values in memory. Distinct buffers never overlap: buffers that may alias are given as
    one (`AliasScopes.alias_class`)."""

    def __init__(self) -> None:
        self._values: dict[Expr, AvailableValue] = {}
        #: For each buffer, the expressions that read it, with the elements they read.
        self._readers: dict[Buffer, dict[Expr, Span]] = {}

    def get(self, expr: Expr) -> AvailableValue | None:
        return self._values.get(expr)

    def add(self, expr: Expr, value: LLValue, reads: frozenset[Buffer]) -> None:
        self._values[expr] = AvailableValue(value, reads)
        span = _span(expr.indices[0]) if isinstance(expr, Load) else None
        for buffer in reads:
            self._readers.setdefault(buffer, {})[expr] = span

    def forget_written(self, buffer: Buffer, index: Expr) -> None:
        """Forget values that a store to `buffer` may have changed."""
        readers = self._readers.get(buffer)
        if not readers:
            return
        written = _span(index)
        for expr in [e for e, span in readers.items() if _may_overlap(span, written)]:
            del readers[expr]
            self._values.pop(expr, None)

    def forget(self) -> None:
        """Forget everything, since any memory may have been written."""
        self._values.clear()
        self._readers.clear()


def _span(index: Expr) -> Span:
    if isinstance(index, Const):
        return int(index.value), int(index.value) + 1
    if isinstance(index, Ramp) and isinstance(index.base, Const) and index.stride is const(1):
        return int(index.base.value), int(index.base.value) + index.dtype.lanes
    return None


def _may_overlap(a: Span, b: Span) -> bool:
    return a is None or b is None or (a[0] < b[1] and b[0] < a[1])
