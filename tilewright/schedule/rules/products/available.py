"""Whether a target has an instruction for a product, in its types or after a conversion."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import Block, Buffer, DType
from tilewright.schedule.intrinsics import dots_for, tile_product_for
from tilewright.schedule.primitives.buffers.shift_operand import OTHER_SIGN
from tilewright.schedule.rules.products.dot_rows import as_row_product, row_dot_for
from tilewright.schedule.rules.products.product import as_product
from tilewright.target import Target

Types = tuple[DType, DType, DType]


@dataclass(frozen=True)
class Wanted:
    """The types of a product, and whether its operands are packed."""

    types: Types
    is_packed: bool

    def is_there(self, target: Target, types: Types) -> bool:
        """Whether the target has an instruction for this kind of product with these types."""
        if self.is_packed and tile_product_for(target, *types) is not None:
            return True
        found = dots_for(target, *types) if self.is_packed else row_dot_for(target, *types)
        return bool(found)


#: Holds signed and unsigned bytes (`rules.widen`).
WIDE = DType.of("int16")


def with_other_signs(types: Types) -> list[Types]:
    """The types with the sign of bytes flipped in the rows, or in the columns."""
    a, b, out = types
    return [(OTHER_SIGN.get(a, a), b, out), (a, OTHER_SIGN.get(b, b), out)]


def has_packed_product(target: Target, types: Types) -> bool:
    """Whether the target can multiply these types packed, if need be shifted or widened."""
    wanted = Wanted(types, True)
    there = any(wanted.is_there(target, t) for t in (types, *with_other_signs(types)))
    return there or has_wide_product(target, types)


def has_wide_product(target: Target, types: Types) -> bool:
    """Whether these are bytes whose packed product the target can do in int16."""
    a, b, out = types
    return a in OTHER_SIGN and b in OTHER_SIGN and bool(dots_for(target, WIDE, WIDE, out))


def wanted_for(block: Block, constants: frozenset[Buffer]) -> Wanted | None:
    """The types of a block's product; None where no kind of instruction applies."""
    packed = as_product(block)
    if packed is not None:
        return Wanted(packed.types, True)
    by_rows = as_row_product(block, constants)
    return None if by_rows is None else Wanted(by_rows.types, False)


def reads_rows_in_place(block: Block, constants: frozenset[Buffer], target: Target) -> bool:
    """Whether the fastest instruction for a block's product takes single rows: it reads them in
    place, so a packed copy would gain nothing."""
    product = as_row_product(block, constants)
    if product is None or tile_product_for(target, *product.types) is not None:
        return False
    types = (product.types, *with_other_signs(product.types))
    dots = next((found for t in types if (found := dots_for(target, *t))), None)
    if not dots or dots[0].square:
        return False
    return any(d.rows == 1 for d in dots)
