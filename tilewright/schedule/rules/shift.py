"""Bytes of one sign for an instruction that takes the other: shift them by 128, and the sums back.

    C[i, j] += i32(A[i, k]) * i32(B[k, j])             A: i8, and the machine multiplies u8 × i8
    -->
    A_shifted[i, k] = u8(A[i, k]) ^ 128                that is A + 128
    B_sums[j] += i32(B[k, j])
    C_shifted[i, j] += i32(A_shifted[i, k]) * i32(B[k, j])
    C[i, j] = C_shifted[i, j] - 128 * B_sums[j]

All of it is exact, for sums of 32 bits wrap around alike. In a step of a scan, where rows are made
and results used at once, rows are made shifted, and sums start with what is taken off in the end:

    A[t, k] = x                                        A[t, k] = u8(x) ^ 128
    C[t, j] = 0                                 -->    C[t, j] = -128 * B_sums[j]
    C[t, j] += i32(A[t, k]) * i32(B[k, j])             C[t, j] += i32(A[t, k]) * i32(B[k, j])
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tilewright.arith import Ranges
from tilewright.ir import (
    Alloc,
    Block,
    Buffer,
    DType,
    Expr,
    Function,
    Iter,
    Load,
    Stmt,
    Store,
    Var,
    cast,
    const,
    free_vars,
    make_block,
    map_expr,
    map_stmt,
    seq,
    substitute,
    with_inferred_regions,
)
from tilewright.schedule.boxes import under_loops
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import fresh_name, with_buffers
from tilewright.schedule.rules.analysis import Access, as_contraction, constants_of, is_step
from tilewright.schedule.rules.available import OTHER_SIGN, wanted_for, with_other_signs
from tilewright.target import Target

_SIGNED, _UNSIGNED = DType.of("int8"), DType.of("uint8")


def shift_operands(function: Function, target: Target) -> Function:
    """Products of bytes that the target has no instruction for, by one that it has."""
    for name in Tree(function).blocks:
        tree = Tree(function)
        block = tree.blocks[name]
        side = _side_to_shift(block, target, constants_of(function))
        if side is None or not tree.loops_above(block):
            continue
        if not is_step(block):
            function = _Shift(tree, block, side).function()
        elif side == 0 and _is_made_for(tree, block):
            function = _Shift(tree, block, side).step()
    return function


def _is_made_for(tree: Tree, block: Block) -> bool:
    """Whether the rows of a product are made by one block, which writes them once, for it alone."""
    c = as_contraction(block)
    rows = None if c is None else c.a.buffer
    makers = [b for b in tree.blocks.values() if any(w.buffer is rows for w in b.writes)]
    readers = [b for b in tree.blocks.values() if any(r.buffer is rows for r in b.reads)]
    return readers == [block] and len(makers) == 1 and makers[0].init is None


def _side_to_shift(block: Block, target: Target, constants: frozenset[Buffer]) -> int | None:
    """Which operand to shift (0: rows, 1: columns); None where that does not help."""
    wanted = wanted_for(block, constants)
    if wanted is None or wanted.is_there(target, wanted.types):
        return None
    for side, types in enumerate(with_other_signs(wanted.types)):
        if types != wanted.types and wanted.is_there(target, types):
            return side
    return None


class _Sides(NamedTuple):
    """The operand that is shifted, the other one, and the results."""

    shifted: Access
    other: Access
    out: Access


class _Shift:
    """The parts of the rewritten product."""

    def __init__(self, tree: Tree, block: Block, side: int) -> None:
        c = as_contraction(block)
        assert c is not None
        self.tree, self.block = tree, block
        self.sides = _Sides(*((c.a, c.b) if side == 0 else (c.b, c.a)), c.out)
        self.own = {v for i in self.sides.other.indices for v in free_vars(i)}
        self.taken = set(tree.blocks)
        operand, other, out = (access.buffer for access in self.sides)
        spatial = [it for it in block.iters if it.kind == "spatial" and it.var in self.own]
        self.operand = _fresh(operand, f"{operand.name}_shifted", dtype=OTHER_SIGN[operand.dtype])
        self.result = _fresh(out, f"{out.name}_shifted", strides=None)
        self.sums = Buffer(f"{other.name}_sums", out.dtype, [it.extent for it in spatial])

    def function(self) -> Function:
        outermost = self.tree.loops_above(self.block)[0]
        product = self.tree.rebuilt(outermost, self.block, self._product())
        parts = seq(self._shifted(), self._summed(), product, self._shifted_back())
        changed = self.tree.replace(outermost, parts)
        return with_buffers(changed, self.operand, self.sums, self.result)

    def step(self) -> Function:
        """The product in a step of a scan."""
        rows, out = self.sides.shifted.buffer, self.sides.out
        start = Store(out.buffer, out.indices, Load(self.sums, self._sums_at()) * -self._shift)

        def on_node(e: Expr) -> Expr | None:
            if isinstance(e, Load) and e.buffer is rows:
                return Load(self.operand, e.indices)
            return None

        def on_stmt(s: Stmt) -> Stmt | None:
            if isinstance(s, Alloc):
                return replace(s, buffers=tuple(b for b in s.buffers if b is not rows))
            if isinstance(s, Store) and s.buffer is rows:
                return replace(s, buffer=self.operand, value=self._moved(s.value))
            if isinstance(s, Block) and any(r.buffer is rows for r in (*s.reads, *s.writes)):
                init = start if s.name == self.block.name else s.init
                return with_inferred_regions(replace(s, init=init))
            return None

        outermost, memo = self.tree.loops_above(self.block)[0], dict[Expr, Expr]()
        before = self.tree.replace(outermost, seq(self._summed(), outermost)).body
        body = map_stmt(before, on_stmt, lambda e: map_expr(e, on_node, memo))
        return with_buffers(self.tree.function.with_body(body), self.operand, self.sums)

    def _moved(self, byte: Expr) -> Expr:
        return cast(cast(byte, _UNSIGNED) ^ 128, self.operand.dtype)

    @property
    def _shift(self) -> int:
        return 128 if self.sides.shifted.buffer.dtype is _SIGNED else -128

    def _nest(self, hint: str, iters: list[Iter], update: Store, init: Stmt | None = None) -> Stmt:
        """`update` under loops over variables of its own."""
        fresh: dict[Var, Expr] = {it.var: Var(it.var.name, it.var.dtype) for it in iters}
        own = [it._replace(var=fresh[it.var]) for it in iters]  # type: ignore[arg-type]
        body, start = (_substituted(s, fresh) for s in (update, init))
        assert body is not None
        name = fresh_name(hint, self.taken)
        self.taken.add(name)
        block = make_block(name, own, [it.var for it in own], body, init=start)
        return under_loops(block, {}, Ranges.for_function(self.tree.function)).nest

    def _shifted(self) -> Stmt:
        source = self.sides.shifted.buffer
        iters = [Iter(Var(f"vax{n}"), extent, "spatial") for n, extent in enumerate(source.shape)]
        place = tuple(it.var for it in iters)
        shifted = Store(self.operand, place, self._moved(Load(source, place)))
        return self._nest(self.operand.name, iters, shifted)

    def _summed(self) -> Stmt:
        iters = [it for it in self.block.iters if it.var in self.own]
        place = self._sums_at()
        other = self.sides.other
        term = cast(Load(other.buffer, other.indices), self.sums.dtype)
        update = Store(self.sums, place, Load(self.sums, place) + term)
        start = Store(self.sums, place, const(0, self.sums.dtype))
        return self._nest(self.sums.name, iters, update, start)

    def _sums_at(self) -> tuple[Expr, ...]:
        spatial = [it for it in self.block.iters if it.kind == "spatial"]
        return tuple(it.var for it in spatial if it.var in self.own)

    def _product(self) -> Block:
        exchanged = {
            self.sides.shifted.buffer: self.operand,
            self.sides.out.buffer: self.result,
        }

        def on_node(e: Expr) -> Expr | None:
            if isinstance(e, Load) and e.buffer in exchanged:
                return Load(exchanged[e.buffer], e.indices)
            return None

        def on_stmt(s: Stmt) -> Stmt | None:
            if isinstance(s, Store) and s.buffer in exchanged:
                return replace(s, buffer=exchanged[s.buffer])
            return None

        memo: dict[Expr, Expr] = {}
        changed = map_stmt(self.block, on_stmt, lambda e: map_expr(e, on_node, memo))
        assert isinstance(changed, Block)
        return with_inferred_regions(changed)

    def _shifted_back(self) -> Stmt:
        out = self.sides.out
        iters = [it for it in self.block.iters if it.kind == "spatial"]
        total = Load(self.result, out.indices) - Load(self.sums, self._sums_at()) * self._shift
        return self._nest(
            f"{out.buffer.name}_shifted_back", iters, Store(out.buffer, out.indices, total)
        )


def _fresh(buffer: Buffer, name: str, **changes: object) -> Buffer:
    return buffer.with_(name=name, scope="global", **changes)


def _substituted(stmt: Stmt | None, values: dict[Var, Expr]) -> Stmt | None:
    if stmt is None:
        return None
    return map_stmt(stmt, lambda _: None, lambda e: substitute(e, values))
