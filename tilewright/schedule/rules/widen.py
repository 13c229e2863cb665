"""Small floats converted once, before a product that would convert them again and again.

C[i, j] += f32(A[i, k]) * f32(B[k, j])                       A, B: bf16
-->
A_wide[i, k] = f32(A[i, k]);    B_wide[k, j] = f32(B[k, j])
C[i, j] += A_wide[i, k] * B_wide[k, j]
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tilewright.arith import Ranges
from tilewright.ir import (
    Block,
    Buffer,
    Cast,
    DType,
    Expr,
    Function,
    Iter,
    Load,
    Stmt,
    Store,
    Var,
    cast,
    free_vars,
    make_block,
    map_expr,
    map_stmt,
    seq,
    with_inferred_regions,
)
from tilewright.schedule.boxes import under_loops
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import fresh_name, with_buffers
from tilewright.schedule.rules.analysis import (
    Access,
    Contraction,
    as_contraction,
    constants_of,
    extent_of,
)
from tilewright.schedule.rules.available import wanted_for
from tilewright.target import Target

#: An operand is converted beforehand if every element of it is used at least this often.
_WORTH_CONVERTING = 32


def widen_operands(function: Function, target: Target) -> Function:
    """Products of small floats without an instruction of their own read wide copies."""
    for name in Tree(function).blocks:
        tree = Tree(function)
        block = tree.blocks[name]
        found = as_contraction(block)
        if found is None or not tree.loops_above(block):
            continue
        if not _has_instruction(block, target, constants_of(function)):
            function = _widened(tree, block, found)
    return function


def _has_instruction(block: Block, target: Target, constants: frozenset[Buffer]) -> bool:
    wanted = wanted_for(block, constants)
    return wanted is not None and wanted.is_there(target, wanted.types)


def _widened(tree: Tree, block: Block, c: Contraction) -> Function:
    out = c.out.buffer.dtype
    chosen = {
        access.buffer: access.buffer.with_(
            name=f"{access.buffer.name}_wide", dtype=out, scope="global", strides=None, offset=0
        )
        for access in (c.a, c.b)
        if _is_small(access.buffer.dtype, out) and _uses(block, access) >= _WORTH_CONVERTING
    }
    if not chosen:
        return tree.function
    outermost = tree.loops_above(block)[0]
    copies = [_conversion(tree, old, new) for old, new in chosen.items()]
    product = tree.rebuilt(outermost, block, _reading(block, chosen))
    return with_buffers(tree.replace(outermost, seq(*copies, product)), *chosen.values())


def _is_small(dtype: DType, out: DType) -> bool:
    return dtype.is_float and dtype.bits < 32 and out.is_float and out.bits >= 32


def _uses(block: Block, access: Access) -> int:
    """How often the block reads every element of an operand."""
    own = {v for i in access.indices for v in free_vars(i)}
    return prod(extent_of(it) or _WORTH_CONVERTING for it in block.iters if it.var not in own)


def _conversion(tree: Tree, old: Buffer, new: Buffer) -> Stmt:
    iters = [Iter(Var(f"vax{n}"), extent, "spatial") for n, extent in enumerate(old.shape)]
    place = tuple(it.var for it in iters)
    body = Store(new, place, cast(Load(old, place), new.dtype))
    block = make_block(fresh_name(new.name, tree.blocks), iters, place, body)
    return under_loops(block, {}, Ranges.for_function(tree.function)).nest


def _reading(block: Block, chosen: dict[Buffer, Buffer]) -> Block:
    def on_node(e: Expr) -> Expr | None:
        if isinstance(e, Cast) and isinstance(e.a, Load) and e.a.buffer in chosen:
            return Load(chosen[e.a.buffer], e.a.indices)
        return None

    memo: dict[Expr, Expr] = {}
    changed = map_stmt(block, lambda _: None, lambda e: map_expr(e, on_node, memo))
    assert isinstance(changed, Block)
    return with_inferred_regions(replace(changed))
