"""Which variable to vectorize, where the innermost dimension of the output is not reduced."""

from __future__ import annotations

from tilewright.ir import Block, Iter
from tilewright.schedule.facts.products import is_reduction
from tilewright.schedule.rules.analysis import Access, accesses_of, extent_of, stores_of

#: Strides between the lanes of a vector, in elements, for which there are fast loads.
_QUICK_STRIDES = range(5)


def vector_variable(block: Block) -> Iter | None:
    """The variable that is contiguous in the output and has strides in all operands that vectors
    can be loaded with."""
    if not is_reduction(block):
        return None
    out = stores_of(block)[0]
    for it in block.iters:
        if it.kind != "spatial" or extent_of(it) == 1:
            continue
        if Access(out.buffer, out.indices).step(it.var) != 1:
            continue
        if all(a.step(it.var) in _QUICK_STRIDES for a in accesses_of(block)):
            return it
    return None
