"""copy_operand(block, factor, dtype)"""

from __future__ import annotations

from tilewright.ir import (
    Block,
    Cast,
    DType,
    Expr,
    Load,
    cast,
    map_expr,
    map_stmt,
    seq,
    with_inferred_regions,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit, with_buffers
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.block_facts import no_address_is_taken
from tilewright.schedule.facts.products import as_sum_of_products
from tilewright.schedule.handles import BlockRef
from tilewright.schedule.stages import element_by_element, new_buffer, site_before, stage_name


def copy_operand(tree: Tree, block: Block, factor: int, dtype: str | None = None) -> Edit:
    """Let one factor of a sum of products be read from a copy of its buffer.

    for i: for j: for k:                     for ax0: for ax1: A_again[ax0, ax1] = A[ax0, ax1]
        C[i, j] += A[i, k] * A[k, j]   -->   for i: for j: for k:
                                                 C[i, j] += A[i, k] * A_again[k, j]

    The copy may have a wider type, which holds every value of the old one: operands are then
    converted once, not at each use.

        C[i, j] += f32(A[i, k]) * f32(B[k, j])   -->   C[i, j] += A_wide[i, k] * f32(B[k, j])
    """
    check(tree, block, factor, dtype)
    load = _load(block, factor)
    assert load is not None
    wide = load.buffer.dtype if dtype is None else DType.of(dtype)
    suffix = "again" if wide is load.buffer.dtype else "wide"
    new = new_buffer(tree, f"{load.buffer.name}_{suffix}", wide, load.buffer.shape)
    name = stage_name(tree, new)
    copy = element_by_element(tree, name, load.buffer, new, lambda e: cast(e, wide))
    outermost = tree.loops_above(block)[0]
    product = tree.rebuilt(
        outermost, block, _reading(block, load, Load(new, load.indices, load.mask))
    )
    function = tree.replace(outermost, seq(copy, product))
    return Edit(with_buffers(function, new), (BlockRef(name),))


def check(tree: Tree, block: Block, factor: int, dtype: str | None = None) -> None:
    what = f"cannot copy a factor of block {block.name}"
    require(tree, what, block_is_a_sum_of_products(block, factor))
    load = _load(block, factor)
    assert load is not None
    what = f"cannot copy {load.buffer.name} for block {block.name}"
    require(
        tree,
        what,
        no_address_is_taken(tree, load.buffer),
        operand_is_ready(tree, block, load),
        None if dtype is None else _type_fits(block, factor, load, DType.of(dtype)),
    )


def _load(block: Block, factor: int) -> Load | None:
    found = as_sum_of_products(block)
    return None if found is None or factor not in (0, 1) else found.loads[factor]


def block_is_a_sum_of_products(block: Block, factor: int) -> Fault | None:
    """The block sums products of two loads, of which `factor` (0 or 1) selects one."""
    if factor not in (0, 1):
        return Fault(f"a product has factors 0 and 1, not {factor}", "", block)
    if as_sum_of_products(block) is None:
        return Fault("it does not add up products of two elements", "", block)
    return None


def operand_is_ready(tree: Tree, block: Block, load: Load) -> Fault | None:
    """The operand is complete before the outermost loop around the block."""
    loops = tree.loops_above(block)
    if not loops:
        return Fault(f"block {block.name} stands in no loop", "", block)
    site = site_before(tree, block, load.buffer)
    if isinstance(site, Fault):
        return site
    if site.at is loops[0]:
        return None
    reason = f"{load.buffer.name} is written inside of loop {loops[0].var.name}"
    return Fault(reason, "do this before blocks are moved into each other's loops", loops[0])


def _type_fits(block: Block, factor: int, load: Load, wide: DType) -> Fault | None:
    old, product = load.buffer.dtype, as_sum_of_products(block)
    assert product is not None
    if not _holds(wide, old):
        return Fault(f"{wide.name} does not hold all values of {old.name}")
    if wide is not old and product.factors[factor] is load:
        return Fault(
            f"the product is one of {old.name}", "convert the elements where they are used"
        )
    return None


def _holds(wide: DType, small: DType) -> bool:
    """Whether every value of `small` can be represented in `wide`."""
    if wide is small:
        return True
    if wide.is_float and small.is_float:
        return wide.bits > small.bits and wide.bits >= 32
    if not wide.is_integer or not small.is_integer:
        return False
    return wide.bits > small.bits and (wide.kind == "int" or small.kind == "uint")


def _reading(block: Block, old: Load, new: Load) -> Block:
    """The block with loads from the copy."""

    def on_node(e: Expr) -> Expr | None:
        if isinstance(e, Cast) and e.a is new:
            return cast(new, e.dtype)
        return new if e is old else None

    memo: dict[Expr, Expr] = {}
    changed = map_stmt(block, lambda _: None, lambda e: map_expr(e, on_node, memo))
    assert isinstance(changed, Block)
    return with_inferred_regions(changed)
