"""Place buffers of scope `tile` in AMX's matrix registers, and configure these.

T = alloc(i32[2, 2, 256], scope="tile")                   4 tiles of 16 rows × 64 bytes
for k: …tdpbssd(tile_of(T[256]), …)
-->
ldtilecfg(all registers: 16 rows × 64 bytes)              once per iteration of a parallel loop,
for k: …tdpbssd(1, …)                                     for the set-up belongs to one thread
tilerelease()
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Final

from tilewright.arith import simplify
from tilewright.ir import (
    Alloc,
    Buffer,
    Call,
    Const,
    DType,
    Evaluate,
    Expr,
    For,
    Function,
    Load,
    Stmt,
    Store,
    address_of,
    all_exprs,
    call,
    child_stmts,
    const,
    declare,
    map_children,
    map_expr,
    seq,
    walk,
)
from tilewright.support.errors import UserError
from tilewright.support.memory import ALIGNMENT

_TILES: Final = 8
#: The type of calls without a result.
_NOTHING: Final = DType.of("bool")
_TILE_BYTES: Final = 16 * 64
#: The operand of `ldtilecfg`: palette 1; at byte 16 the bytes per row, two bytes for each register;
#: at byte 48 the rows, one byte each.
_CONFIGURATION: Final = (1, 0, 0x0040004000400040, 0x0040004000400040, 0, 0, 0x1010101010101010, 0)

_AMX = ("amx-tile",)
declare("llvm.x86.ldtilecfg", 1, "any", lambda _: _NOTHING, pure=False, needs=_AMX)
declare("llvm.x86.tilerelease", 0, "any", lambda _: _NOTHING, pure=False, needs=_AMX)


def place_tiles(function: Function) -> Function:
    """Replace buffers of scope `tile`, and intrinsics that ask where elements are stored."""
    body = _Placer().stmt(function.body, 0)
    return function.with_body(_set_up(body) if _has_tiles(function.body) else body)


class _Placer:
    """Assigns registers to buffers, and numbers to their elements."""

    def __init__(self) -> None:
        self._first: dict[Buffer, int] = {}
        self._memo: dict[Expr, Expr] = {}

    def stmt(self, stmt: Stmt, taken: int) -> Stmt:
        """`stmt` where the first `taken` registers are in use."""
        if isinstance(stmt, Alloc):
            return self._alloc(stmt, taken)
        rebuilt = map_children(stmt, lambda s: self.stmt(s, taken), self._expr)
        if not isinstance(stmt, For) or stmt.kind != "parallel":
            return rebuilt
        assert isinstance(rebuilt, For)
        if taken and any(_asks_for_tile(e) for e in all_exprs(stmt)):
            raise UserError(
                f"the iterations of parallel loop {stmt.var.name} share a buffer of scope tile",
                reason="every thread has matrix registers of its own",
                remedy="compute what writes the buffer inside the loop",
            )
        return replace(rebuilt, body=_set_up(rebuilt.body)) if _has_tiles(stmt.body) else rebuilt

    def _alloc(self, stmt: Alloc, taken: int) -> Stmt:
        for buffer in stmt.buffers:
            if buffer.scope == "tile":
                self._first[buffer] = taken
                taken += _tiles_of(buffer)
        if taken > _TILES:
            raise UserError(
                f"buffers of scope tile need {taken} matrix registers",
                reason=f"there are {_TILES}",
                remedy="compute fewer tiles at a time",
            )
        body = self.stmt(stmt.body, taken)
        _check_only_tiles(body, {b for b in stmt.buffers if b.scope == "tile"})
        kept = tuple(b for b in stmt.buffers if b.scope != "tile")
        return Alloc(kept, body) if kept else body

    # ---- expressions ----------------------------------------------------------------------------

    def _expr(self, root: Expr) -> Expr:
        return map_expr(root, self._placed, self._memo)

    def _placed(self, node: Expr) -> Expr | None:
        if not isinstance(node, Call) or node.name not in ("tile_of", "distance"):
            return None
        return self._number(node) if node.name == "tile_of" else _distance(node)

    def _number(self, node: Call) -> Expr:
        element = node.args[0]
        assert isinstance(element, Load)
        (index,) = element.indices
        if element.buffer not in self._first or not isinstance(index, Const):
            raise UserError(
                f"element {element} has no matrix register",
                reason="its buffer is not of scope tile, or its place depends on a loop",
                remedy="unroll the loops over tiles",
            )
        tile = int(index.value) * element.buffer.dtype.itemsize // _TILE_BYTES
        return Const(self._first[element.buffer] + tile, node.dtype)


def _tiles_of(buffer: Buffer) -> int:
    size = buffer.static_size()
    if size is None or size * buffer.dtype.itemsize % _TILE_BYTES:
        raise UserError(
            f"buffer {buffer.name} of scope tile is not made of whole tiles: {buffer}",
            remedy=f"give it a multiple of {_TILE_BYTES} bytes",
        )
    return size * buffer.dtype.itemsize // _TILE_BYTES


def _check_only_tiles(body: Stmt, tiles: set[Buffer]) -> None:
    """Check that no single element of a matrix register is accessed any more."""
    if not tiles:
        return
    loads = (e.buffer for e in all_exprs(body) if isinstance(e, Load))
    stores = (s.buffer for s in walk(body) if isinstance(s, Store))
    for buffer in chain(loads, stores):
        if buffer in tiles:
            raise UserError(
                f"buffer {buffer.name} of scope tile is read or written element by element",
                reason="matrix registers are used as a whole, by tile instructions",
                remedy="tensorize every block that uses it, or give it another scope",
            )


def _distance(node: Call) -> Expr:
    """The bytes between two elements of one buffer."""
    a, b = node.args
    assert isinstance(a, Load) and isinstance(b, Load) and a.buffer is b.buffer
    return simplify((b.indices[0] - a.indices[0]) * a.buffer.dtype.itemsize)


def _asks_for_tile(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.name == "tile_of"


# ---- setting up ---------------------------------------------------------------------------------


def _has_tiles(stmt: Stmt) -> bool:
    """Whether matrix registers are used here, outside parallel loops inside it."""
    if isinstance(stmt, Alloc) and any(b.scope == "tile" for b in stmt.buffers):
        return True
    if isinstance(stmt, For) and stmt.kind == "parallel":
        return False
    return any(_has_tiles(s) for s in child_stmts(stmt))


def _set_up(body: Stmt) -> Stmt:
    shape = Buffer(
        "tile_shapes", "uint64", (len(_CONFIGURATION),), scope="local", alignment=ALIGNMENT
    )
    words = [Store(shape, (const(k),), const(w, "uint64")) for k, w in enumerate(_CONFIGURATION)]
    begin = Evaluate(call("llvm.x86.ldtilecfg", address_of(shape[0])))
    return Alloc((shape,), seq(*words, begin, body, Evaluate(call("llvm.x86.tilerelease"))))
