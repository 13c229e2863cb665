"""Convert narrow operands once, before a product that would convert them at each use.

C[i, j] += f32(A[i, k]) * f32(B[k, j])                       A, B: bf16
-->
A_wide[i, k] = f32(A[i, k]);    B_wide[k, j] = f32(B[k, j])
C[i, j] += A_wide[i, k] * B_wide[k, j]

Bytes become int16 where the target has a dot product for int16 and none for bytes.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from tilewright.ir import Block, Buffer, DType, free_vars
from tilewright.schedule.primitives.buffers.shift_operand import OTHER_SIGN
from tilewright.schedule.rules.analysis import (
    Access,
    Contraction,
    as_contraction,
    constants_of,
    extent_of,
)
from tilewright.schedule.rules.products.available import WIDE, Wanted, has_wide_product, wanted_for
from tilewright.schedule.rules.rule import Rule, if_wanted
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target

#: The fewest uses of each element for which operands are converted to int16 where only that has an
#: instruction: without it the product is slow, and operands are copied (packed) for it anyway.
_WORTH_PACKING = 8


class Widened(NamedTuple):
    """The factors of a product to convert, and the type to convert them to."""

    factors: tuple[int, ...]
    dtype: DType


def _narrow_operands(s: Schedule, name: str, target: Target) -> Widened | None:
    """The operands to convert, of a product of narrow types without an instruction of its own."""
    block = s.block_of(name)
    c = as_contraction(block)
    if c is None or not s.loops(name):
        return None
    wanted = wanted_for(block, constants_of(s.function))
    if wanted is not None and wanted.is_there(target, wanted.types):
        return None
    dtype = _wide_type(c, wanted, target)
    chosen: dict[Buffer, int] = {}
    least = _WORTH_PACKING if dtype is WIDE else target.timing.convert_uses
    for side, access in enumerate((c.a, c.b)):
        is_often = _uses(block, access, least) >= least
        is_worth = is_often and _is_narrow(access.buffer.dtype, dtype)
        # The state of a scan is not known before its steps, so it cannot be copied.
        if is_worth and s.can("copy_operand", name, c.factor(side), dtype):
            chosen.setdefault(access.buffer, c.factor(side))
    # An instruction for int16 needs both operands in int16.
    if not chosen or (dtype is WIDE and len(chosen) == 1):
        return None
    return Widened(tuple(chosen.values()), dtype)


def _wide_type(c: Contraction, wanted: Wanted | None, target: Target) -> DType:
    """The type in which operands are multiplied."""
    out = c.out.buffer.dtype
    # Rows that are not packed would be copied whole; small machines lack the memory.
    is_copied = wanted is not None and (wanted.is_packed or not target.is_bare)
    pairs = wanted is not None and is_copied and has_wide_product(target, wanted.types)
    return WIDE if pairs else out


def _is_narrow(dtype: DType, wide: DType) -> bool:
    if wide is WIDE:
        return dtype in OTHER_SIGN
    return dtype.is_float and dtype.bits < 32 and wide.is_float and wide.bits >= 32


def _uses(block: Block, access: Access, unknown: int) -> int:
    """How often the block reads each element of an operand; an extent that is known only at run
    time counts as `unknown`."""
    own = {v for i in access.indices for v in free_vars(i)}
    return prod(extent_of(it) or unknown for it in block.iters if it.var not in own)


def _convert(s: Schedule, name: str, plan: Widened, _target: Target) -> None:
    for factor in plan.factors:
        s.copy_operand(name, factor, plan.dtype)


WIDEN = Rule("widen", _narrow_operands, if_wanted, _convert)
