"""Values of expressions that read memory, for as long as nothing is written to what they read.

LLVM would find out by itself that two loads give the same, but first every one of them has to be
written down, read and looked at: of unrolled loops, that is most of the text.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.codegen.llvm.types import LLValue
from tilewright.ir import Buffer, Const, Expr, Load, Ramp, const

#: Positions from the first to the one past the last; None where they are not numbers.
Span = tuple[int, int] | None


class HeldValue(NamedTuple):
    """What an expression is at the moment, and the buffers that it was read from."""

    value: LLValue
    reads: frozenset[Buffer]


class HeldValues:
    """What is known of memory; buffers are told apart, those that may overlap are given as one."""

    def __init__(self) -> None:
        self._values: dict[Expr, HeldValue] = {}
        #: The expressions that read a buffer, each with the only positions that matter to it.
        self._readers: dict[Buffer, dict[Expr, Span]] = {}

    def get(self, expr: Expr) -> HeldValue | None:
        return self._values.get(expr)

    def hold(self, expr: Expr, value: LLValue, reads: frozenset[Buffer]) -> None:
        self._values[expr] = HeldValue(value, reads)
        span = _span(expr.indices[0]) if isinstance(expr, Load) else None
        for buffer in reads:
            self._readers.setdefault(buffer, {})[expr] = span

    def forget_written(self, buffer: Buffer, index: Expr) -> None:
        """Forget what may be different after a store."""
        readers = self._readers.get(buffer)
        if not readers:
            return
        written = _span(index)
        for expr in [e for e, span in readers.items() if _may_overlap(span, written)]:
            del readers[expr]
            self._values.pop(expr, None)

    def forget(self) -> None:
        """Forget everything: anything may have been written."""
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
