"""Small numbers converted once, before a product that would convert them again and again.

C[i, j] += f32(A[i, k]) * f32(B[k, j])                       A, B: bf16
-->
A_wide[i, k] = f32(A[i, k]);    B_wide[k, j] = f32(B[k, j])
C[i, j] += A_wide[i, k] * B_wide[k, j]

Bytes become numbers of 16 bits where the target has a dot product for these and none for bytes.
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
from tilewright.schedule.rules.available import (
    OTHER_SIGN,
    WIDE,
    Wanted,
    has_wide_product,
    wanted_for,
)
from tilewright.target import Target

#: An operand is converted beforehand if every element of it is used at least this often.
_WORTH_CONVERTING = 32


def widen_operands(function: Function, target: Target) -> Function:
    """Products of small numbers without an instruction of their own read wide copies."""
    for name in Tree(function).blocks:
        tree = Tree(function)
        block = tree.blocks[name]
        found = as_contraction(block)
        if found is None or not tree.loops_above(block):
            continue
        wanted = wanted_for(block, constants_of(function))
        if wanted is None or not wanted.is_there(target, wanted.types):
            function = _widened(tree, block, found, _wide_type(found, wanted, target))
    return function


def _wide_type(c: Contraction, wanted: Wanted | None, target: Target) -> DType:
    """The type in which operands are multiplied."""
    out = c.out.buffer.dtype
    pairs = wanted is not None and wanted.is_packed and has_wide_product(target, wanted.types)
    return WIDE if pairs else out


def _widened(tree: Tree, block: Block, c: Contraction, dtype: DType) -> Function:
    chosen = {
        access.buffer: Buffer(f"{access.buffer.name}_wide", dtype, access.buffer.shape)
        for access in (c.a, c.b)
        if _is_small(access.buffer.dtype, dtype) and _uses(block, access) >= _WORTH_CONVERTING
    }
    if not chosen or (dtype is WIDE and len(chosen) == 1):
        return tree.function
    outermost = tree.loops_above(block)[0]
    copies = [conversion(tree, old, new) for old, new in chosen.items()]
    product = tree.rebuilt(outermost, block, _reading(block, chosen))
    return with_buffers(tree.replace(outermost, seq(*copies, product)), *chosen.values())


def _is_small(dtype: DType, wide: DType) -> bool:
    if wide is WIDE:
        return dtype in OTHER_SIGN
    return dtype.is_float and dtype.bits < 32 and wide.is_float and wide.bits >= 32


def _uses(block: Block, access: Access) -> int:
    """How often the block reads every element of an operand."""
    own = {v for i in access.indices for v in free_vars(i)}
    return prod(extent_of(it) or _WORTH_CONVERTING for it in block.iters if it.var not in own)


def conversion(tree: Tree, old: Buffer, new: Buffer) -> Stmt:
    """Loops that copy a buffer into one of another type."""
    iters = [Iter(Var(f"vax{n}"), extent, "spatial") for n, extent in enumerate(old.shape)]
    place = tuple(it.var for it in iters)
    body = Store(new, place, cast(Load(old, place), new.dtype))
    block = make_block(fresh_name(new.name, tree.blocks), iters, place, body)
    return under_loops(block, {}, Ranges.for_function(tree.function)).nest


def _reading(block: Block, chosen: dict[Buffer, Buffer]) -> Block:
    def on_node(e: Expr) -> Expr | None:
        if isinstance(e, Cast) and isinstance(e.a, Load) and e.a.buffer in chosen:
            return cast(Load(chosen[e.a.buffer], e.a.indices), e.dtype)
        return None

    memo: dict[Expr, Expr] = {}
    changed = map_stmt(block, lambda _: None, lambda e: map_expr(e, on_node, memo))
    assert isinstance(changed, Block)
    return with_inferred_regions(replace(changed))
