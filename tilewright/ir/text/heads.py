"""The first lines of loops and blocks, while a function is parsed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import TRUE, LoopKind, Region, Stmt


@dataclass(slots=True)
class SuiteHead:
    """A statement whose body is the rest of the suite."""

    wrap: Callable[[Stmt], Stmt]
    buffers: tuple[Buffer, ...] = ()


@dataclass(slots=True)
class LoopHead:
    """The content of `for x in …`."""

    kind: LoopKind
    extent: Expr
    axis: str
    annotations: dict[str, Any]


@dataclass(slots=True)
class BlockHead:
    """The lines at the top of a block that describe it."""

    predicate: Expr = TRUE
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    annotations: dict[str, Any] | None = None


LOOPS: dict[str, LoopKind] = {
    "range": "serial",
    "parallel": "parallel",
    "vectorized": "vectorized",
    "unrolled": "unrolled",
    "thread": "thread",
}
