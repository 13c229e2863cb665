"""Matching a tile of a function against the description of a tensor intrinsic.

Both are loops around stores. Loops match one to one; expressions match node by node, operands of
commutative operations in either order. An access P[i, j] of the description matches B[b0 + i, b1 +
j] if the offsets b0, b1 do not depend on the tile's loops and are the same for all accesses of P:
they determine the part of B on which the intrinsic works. B may have more dimensions than P, before
those of P or between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tilewright.arith import knowing_nothing, prove_equal, simplify
from tilewright.ir import (
    TRUE,
    Binary,
    Block,
    Buffer,
    Expr,
    For,
    Function,
    If,
    Let,
    Load,
    Seq,
    Stmt,
    Store,
    Var,
    free_vars,
    map_stmt,
    substitute,
    substitute_stmt,
)

_COMMUTATIVE = frozenset("add mul min max and or eq ne bitand bitor bitxor".split())


class SubBuffer(NamedTuple):
    """The part of a buffer that corresponds to a parameter: its first element and dimensions."""

    buffer: Buffer
    base: tuple[Expr, ...]
    axes: tuple[int, ...]


class MismatchError(Exception):
    """A difference between description and tile; never escapes this module's callers."""


def match_tile(description: Function, tile: Stmt) -> dict[Buffer, SubBuffer] | str:
    """The part of a buffer for each parameter, or why the tile does not match."""
    matcher = _Matcher(description)
    try:
        matcher.stmt(without_blocks(description.body), without_blocks(tile))
    except MismatchError as mismatch:
        return str(mismatch)
    missing = [b.name for b in description.buffers if b not in matcher.places]
    return f"it does not touch {', '.join(missing)}" if missing else matcher.places


def without_blocks(stmt: Stmt) -> Stmt:
    """Replace blocks by their inits and bodies: a form used only for comparison."""
    return map_stmt(stmt, _dissolved)


def _dissolved(stmt: Stmt) -> Stmt | None:
    if not isinstance(stmt, Block):
        return None
    values = {it.var: v for it, v in zip(stmt.iters, stmt.bindings, strict=True)}
    body = substitute_stmt(stmt.body, values)
    if stmt.init is not None:
        body = Seq((substitute_stmt(stmt.init, values), body))
    return body if stmt.predicate is TRUE else If(stmt.predicate, body)


class _Matcher:
    """Collects which parts of the program correspond to the instruction's parameters."""

    def __init__(self, description: Function) -> None:
        self.params = set(description.buffers)
        self.vars: dict[Var, Var] = {}
        self.places: dict[Buffer, SubBuffer] = {}
        self.ranges = knowing_nothing()

    def stmt(self, wanted: Stmt, found: Stmt) -> None:
        if type(wanted) is not type(found) or type(wanted) not in _STATEMENTS:
            raise MismatchError(
                f"a {_kind(found)} stands where the intrinsic has a {_kind(wanted)}"
            )
        _STATEMENTS[type(wanted)](self, wanted, found)

    def for_(self, wanted: For, found: For) -> None:
        if not prove_equal(wanted.extent, found.extent):
            raise MismatchError(
                f"loop {found.var.name} has the extent {found.extent}, not {wanted.extent}"
            )
        self.vars[wanted.var] = found.var
        self.ranges = self.ranges.with_extent(found.var, found.extent)
        self.stmt(wanted.body, found.body)

    def let(self, wanted: Let, found: Let) -> None:
        self.require(wanted.value, found.value)
        self.vars[wanted.var] = found.var
        self.stmt(wanted.body, found.body)

    def seq(self, wanted: Seq, found: Seq) -> None:
        if len(wanted.statements) != len(found.statements):
            raise MismatchError("it has another number of statements")
        for a, b in zip(wanted.statements, found.statements, strict=True):
            self.stmt(a, b)

    def store(self, wanted: Store, found: Store) -> None:
        if wanted.mask is not None or found.mask is not None:
            raise MismatchError(f"the store to {found.buffer.name} has a mask")
        self.require(wanted.value, found.value)
        self.access(wanted.buffer, wanted.indices, found.buffer, found.indices)

    # ---- expressions ----------------------------------------------------------------------------

    def require(self, wanted: Expr, found: Expr) -> None:
        if not self.expr(wanted, found):
            raise MismatchError(f"`{found}` is not `{wanted}`")

    def expr(self, wanted: Expr, found: Expr) -> bool:
        if isinstance(wanted, Var):
            return self.vars.get(wanted, wanted) is found
        if type(wanted) is not type(found) or wanted.dtype is not found.dtype:
            return False
        if isinstance(wanted, Load) and isinstance(found, Load):
            self.access(wanted.buffer, wanted.indices, found.buffer, found.indices)
            return wanted.mask is found.mask
        if not wanted.operands:
            return wanted is found
        if any(getattr(wanted, a, None) != getattr(found, a, None) for a in ("op", "name")):
            return False
        return self.operands(wanted, found)

    def operands(self, wanted: Expr, found: Expr) -> bool:
        if len(wanted.operands) != len(found.operands):
            return False
        orders = [found.operands]
        if isinstance(wanted, Binary) and wanted.op in _COMMUTATIVE:
            orders.append(found.operands[::-1])
        return any(self.attempt(wanted.operands, order) for order in orders)

    def attempt(self, wanted: Sequence[Expr], found: Sequence[Expr]) -> bool:
        """Whether all match; if not, what was learned along the way is discarded."""
        places = dict(self.places)
        try:
            if all(self.expr(a, b) for a, b in zip(wanted, found, strict=True)):
                return True
        except MismatchError:
            pass
        self.places = places
        return False

    # ---- buffers --------------------------------------------------------------------------------

    def access(
        self, wanted: Buffer, indices: Sequence[Expr], found: Buffer, at: Sequence[Expr]
    ) -> None:
        if wanted not in self.params:
            raise MismatchError(f"the intrinsic uses {wanted.name}, which is no parameter")
        is_tile = wanted.scope == "tile", found.scope == "tile"
        if wanted.dtype is not found.dtype or wanted.ndim > found.ndim or is_tile[0] != is_tile[1]:
            raise MismatchError(f"{found} cannot stand for {wanted}")
        at = [simplify(index, self.ranges) for index in at]
        axes = self.axes(len(indices), at)
        base = self.base(axes, indices, found, at)
        known = self.places.setdefault(wanted, SubBuffer(found, base, axes))
        same = known.buffer is found and known.axes == axes
        if not same or not all(map(prove_equal, known.base, base)):
            raise MismatchError(
                f"{wanted.name} of the intrinsic would be two parts of {found.name}"
            )

    def axes(self, count: int, at: Sequence[Expr]) -> tuple[int, ...]:
        """The dimensions that correspond to a parameter's: the last ones, or those that vary.

        Contiguous elements of a parameter are contiguous in its buffer.
        """
        inner = set(self.vars.values())
        moving = tuple(k for k, index in enumerate(at) if free_vars(index) & inner)
        if len(moving) == count and moving[-1:] == (len(at) - 1,):
            return moving
        return tuple(range(len(at) - count, len(at)))

    def base(
        self, axes: tuple[int, ...], indices: Sequence[Expr], found: Buffer, at: Sequence[Expr]
    ) -> tuple[Expr, ...]:
        wanted = {
            axis: substitute(i, dict(self.vars)) for axis, i in zip(axes, indices, strict=True)
        }
        starts = [
            simplify(index - wanted[k] if k in wanted else index, self.ranges)
            for k, index in enumerate(at)
        ]
        inner = set(self.vars.values())
        if any(free_vars(start) & inner for start in starts):
            raise MismatchError(
                f"the index of {found.name} is not an offset from that of the intrinsic"
            )
        return tuple(starts)


def _kind(stmt: Stmt) -> str:
    return "loop" if isinstance(stmt, For) else type(stmt).__name__.lower()


_STATEMENTS: dict[type[Stmt], Any] = {
    For: _Matcher.for_,
    Let: _Matcher.let,
    Seq: _Matcher.seq,
    Store: _Matcher.store,
}
