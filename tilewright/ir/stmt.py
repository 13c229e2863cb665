"""Statements and loop functions: the loop IR on one page.

    For(var, extent, kind, body)     var runs over 0 … extent - 1
        kind      serial; parallel (iterations in any order, on any thread); vectorized; unrolled;
                  thread (bound to the thread axis named by `axis`: blockIdx.x, threadIdx.x, …)
    Block(name, iters, bindings, …)  one instance of a computation, the unit that schedules move
        iters     its own variables with their extents; a `spatial` one may be computed in any
                  order and writes elements of its own, a `reduce` one accumulates, an `ordered`
                  one runs in order
        bindings  the values of these variables, in terms of the loops around
        predicate instances for which it is false do not exist
        reads     regions read, and `writes` those written, in terms of the block's variables
        init      runs once before the first instance of the reduction
    Store(buffer, indices, value)    with a mask: only the lanes for which it is true
    Alloc(buffers, body)             buffers that live during `body`; their contents start undefined
    If(condition, then, otherwise)
    While(condition, body)
    Let(var, value, body)
    Assert(condition, message)       when false, the whole function ends and reports `message`,
                                     with the integer `values` filled in for its {}
    Evaluate(call)                   an intrinsic for its effect
    Seq(statements)

A `Function` takes buffers and scalars. Variables in the shapes of its buffers are bound by the
arrays that are passed. Distinct buffers never overlap. A statement keeps its identity: the same
arrays that are passed. Distinct buffers never overlap. A statement keeps its identity: the same

A store or load outside its buffer does not happen: the build proves it absent or turns it into an
`Assert`. Expression semantics are stated in `ir.expr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple

from tilewright.ir.buffer import Buffer, symbolic_dims
from tilewright.ir.expr import Const, Expr, Var
from tilewright.support.dtype import bool_

LoopKind = Literal["serial", "parallel", "vectorized", "unrolled", "thread"]
IterKind = Literal["spatial", "reduce", "ordered"]
LOOP_KINDS: Final = ("serial", "parallel", "vectorized", "unrolled", "thread")
ITER_KINDS: Final = ("spatial", "reduce", "ordered")
TRUE: Final = Const(True, bool_)


class Span(NamedTuple):
    """The position in the user's source where something was written."""

    file: str
    line: int
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Stmt:
    """Base class of all statements."""

    __slots__ = ()

    def __repr__(self) -> str:
        from tilewright.ir.text.printer import stmt_text

        return stmt_text(self)


@dataclass(slots=True, eq=False, repr=False)
class For(Stmt):
    """A loop."""

    var: Var
    extent: Expr
    kind: LoopKind
    body: Stmt
    axis: str = ""
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    span: Span | None = None


class Iter(NamedTuple):
    """A variable of a block, running over 0 … extent - 1."""

    var: Var
    extent: Expr
    kind: IterKind


class Range(NamedTuple):
    """`extent` indices from `start` on."""

    start: Expr
    extent: Expr


class Region(NamedTuple):
    """A box of elements of a buffer."""

    buffer: Buffer
    ranges: tuple[Range, ...]


@dataclass(slots=True, eq=False, repr=False)
class Block(Stmt):
    """One instance of a computation."""

    name: str
    iters: tuple[Iter, ...]
    bindings: tuple[Expr, ...]
    body: Stmt
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    predicate: Expr = TRUE
    init: Stmt | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    span: Span | None = None


@dataclass(slots=True, eq=False, repr=False)
class Store(Stmt):
    """Write one element, or one per lane."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None
    span: Span | None = None


@dataclass(slots=True, eq=False, repr=False)
class Alloc(Stmt):
    """Buffers with the lifetime of a body."""

    buffers: tuple[Buffer, ...]
    body: Stmt


@dataclass(slots=True, eq=False, repr=False)
class If(Stmt):
    """A conditional."""

    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None
    span: Span | None = None


@dataclass(slots=True, eq=False, repr=False)
class While(Stmt):
    """A loop without a known trip count."""

    condition: Expr
    body: Stmt
    span: Span | None = None


@dataclass(slots=True, eq=False, repr=False)
class Let(Stmt):
    """A name for a value."""

    var: Var
    value: Expr
    body: Stmt
    span: Span | None = None


@dataclass(slots=True, eq=False, repr=False)
class Assert(Stmt):
    """A check at run time."""

    condition: Expr
    message: str
    values: tuple[Expr, ...] = ()
    span: Span | None = None


@dataclass(slots=True, eq=False, repr=False)
class Evaluate(Stmt):
    """A call for its effect."""

    call: Expr
    span: Span | None = None


@dataclass(slots=True, eq=False, repr=False)
class Seq(Stmt):
    """Statements in a row."""

    statements: tuple[Stmt, ...]


Param = Buffer | Var


@dataclass(slots=True, eq=False, repr=False)
class Function:
    """A loop function: parameters, body, and facts about it that later stages use (`attrs`)."""

    name: str
    params: tuple[Param, ...]
    body: Stmt
    attrs: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The parameters that are buffers."""
        return tuple(p for p in self.params if isinstance(p, Buffer))

    @property
    def dims(self) -> list[Var]:
        """The symbolic dimensions that the buffer parameters bind."""
        scalars = {p for p in self.params if isinstance(p, Var)}
        return [d for d in symbolic_dims(self.buffers) if d not in scalars]

    def with_body(self, body: Stmt) -> Function:
        return self if body is self.body else replace(self, body=body)

    def with_attrs(self, **attrs: Any) -> Function:
        return replace(self, attrs={**self.attrs, **attrs})

    def __repr__(self) -> str:
        from tilewright.ir.text.printer import function_text

        return function_text(self)


def seq(*statements: Stmt | None) -> Stmt:
    """Statements in a row, flattened; one alone is itself."""
    flat: list[Stmt] = []
    for statement in statements:
        if isinstance(statement, Seq):
            flat.extend(statement.statements)
        elif statement is not None:
            flat.append(statement)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))
