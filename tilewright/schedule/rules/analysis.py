"""What a block computes, derived from its body: rules match on that, not on operator names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.arith import knowing_nothing, linear, prove_equal, simplify
from tilewright.ir import (
    CHEAP,
    Alloc,
    Block,
    Buffer,
    Const,
    Expr,
    Function,
    Iter,
    Let,
    Load,
    Select,
    Store,
    Var,
    all_exprs,
    const,
    free_vars,
    loads_in,
    substitute,
    walk,
    work_of,
)
from tilewright.schedule.facts.products import as_sum_of_products
from tilewright.schedule.handles import Loop
from tilewright.schedule.schedule import Schedule


class Access(NamedTuple):
    """The element that a load or store accesses."""

    buffer: Buffer
    indices: tuple[Expr, ...]

    def step(self, var: Var) -> int | None:
        """Elements between neighbours along `var`; None where it is not a constant."""
        total: int | None = 0
        for index, stride in zip(self.indices, self.buffer.stride_exprs(), strict=True):
            coefficient = linear(index).terms.get(var, 0)
            rest = [a for a in linear(index).terms if a is not var and var in free_vars(a)]
            if rest:
                return None
            if coefficient:
                if not isinstance(stride, Const):
                    return None
                total += coefficient * int(stride.value)
        return total

    def step_within(self, var: Var, size: int) -> int | None:
        """As `step`, within aligned groups of `size` neighbours.

        Indices that divide `var`, as those of blocked channels do, are linear there.
        """
        group, place = Var("group", var.dtype), Var("place", var.dtype)
        ranges = knowing_nothing().with_extent(place, const(size))
        near = {var: group * size + place}
        indices = tuple(simplify(substitute(i, near), ranges) for i in self.indices)
        return Access(self.buffer, indices).step(place)

    def moves_by(self, var: Var, unit: int) -> bool:
        """Whether any value of `var` moves the access by a multiple of `unit` elements."""
        total: Expr = const(0)
        for index, stride in zip(self.indices, self.buffer.stride_exprs(), strict=True):
            if var in free_vars(index):
                total = total + index * stride
        rest = substitute(total, {v: const(0) for v in free_vars(total) if v is not var})
        return prove_equal(simplify(rest % unit), const(0))


class Contraction(NamedTuple):
    """C[…] += A[…] * B[…]: which variables index which operand.

    A step of a scan may be one; the scan's own variables belong to none of these groups.
    """

    out: Access
    a: Access
    b: Access
    batch: tuple[Iter, ...]
    rows: tuple[Iter, ...]
    columns: tuple[Iter, ...]
    reduced: tuple[Iter, ...]
    #: Whether the block multiplies B by A.
    is_swapped: bool

    def factor(self, side: int) -> int:
        """Which factor of the product, in the order written, side 0 (A) or 1 (B) is."""
        return 1 - side if self.is_swapped else side


def constants_of(function: Function) -> frozenset[Buffer]:
    """The parameters that are the same in all calls: what depends on them alone is computed once,
    when the model is loaded."""
    numbers: Sequence[int] = function.attrs.get("constants", ())
    params = [function.params[k] for k in numbers]
    return frozenset(p for p in params if isinstance(p, Buffer))


def is_injective(block: Block) -> bool:
    """All instances are independent and each writes one element."""
    return block.init is None and all(it.kind == "spatial" for it in block.iters)


def is_stepwise(block: Block) -> bool:
    """Whether all instances of one step of a scan are independent and each writes one element."""
    return block.init is None and {it.kind for it in block.iters} == {"spatial", "ordered"}


def is_scheduled(s: Schedule, name: str) -> bool:
    """Whether a rule has scheduled a block: it has an intrinsic, or loops that are not serial."""
    is_tensorized = "tensor_intrin" in s.block_of(name).annotations
    return is_tensorized or any(s.loop_of(loop).kind != "serial" for loop in s.loops(name))


def has_own_loops(s: Schedule, name: str) -> bool:
    """Whether a block has one loop per variable: no rule has split or moved it yet."""
    return len(s.loops(name)) == len(s.block_of(name).iters)


def loops_within(s: Schedule, name: str, around: Loop | None) -> dict[Var, Loop]:
    """The loops of a block inside another, by the variables that they determine."""
    block, loops = s.block_of(name), s.loops(name)
    inside = loops if around is None else loops[loops.index(around) + 1 :]
    pairs = zip(block.iters, block.bindings, strict=True)
    fed = [(it.var, loop) for it, b in pairs for loop in inside if loop.var in free_vars(b)]
    return dict(fed)


def is_intermediate(s: Schedule, buffer: Buffer) -> bool:
    """Whether a buffer is allocated by the function, not a parameter."""
    return any(isinstance(a, Alloc) and buffer in a.buffers for a in walk(s.function.body))


def extent_of(it: Iter) -> int | None:
    """The extent of a variable, if it is a constant."""
    return int(it.extent.value) if isinstance(it.extent, Const) else None


def stores_of(block: Block) -> list[Store]:
    return [s for s in walk(block.body) if isinstance(s, Store)]


def accesses_of(block: Block) -> list[Access]:
    """Every load and store of a block's body."""
    loads = [e for e in all_exprs(block.body) if isinstance(e, Load)]
    stores = stores_of(block)
    return [Access(x.buffer, x.indices) for x in (*loads, *stores)]


def operations(block: Block) -> int:
    """The work of one instance in simple operations, index arithmetic and loads included."""
    return work_of(all_exprs(block.body))


def is_cheap(block: Block) -> bool:
    """Whether recomputing an element costs about as much as loading it."""
    return operations(block) <= CHEAP and not any(isinstance(s, Let) for s in walk(block.body))


def is_conditional(block: Block) -> bool:
    """Whether elements are chosen by a condition (padding, concatenation)."""
    return any(isinstance(e, Select) for e in all_exprs(block.body))


def looks_up(block: Block, buffer: Buffer) -> bool:
    """Whether elements of a buffer are indices into another buffer (a table)."""
    loads = (e for e in all_exprs(block) if isinstance(e, Load))
    inner = (i for e in loads for index in e.indices for i in loads_in(index))
    return any(i.buffer is buffer for i in inner)


# ---- contractions -------------------------------------------------------------------------------


def as_contraction(block: Block) -> Contraction | None:
    """The block as a sum of products of two operands, if it is one."""
    found = as_sum_of_products(block)
    if found is None:
        return None
    a, b = (Access(load.buffer, load.indices) for load in found.loads)
    out = Access(found.store.buffer, found.store.indices)
    return _sorted_variables(block, out, a, b)


def _sorted_variables(block: Block, out: Access, a: Access, b: Access) -> Contraction | None:
    in_a, in_b = (frozenset[Var]().union(*map(free_vars, x.indices)) for x in (a, b))
    spatial = [it for it in block.iters if it.kind == "spatial" and it.extent is not const(1)]
    reduced = tuple(it for it in block.iters if it.kind == "reduce")
    if not all(it.var in in_a and it.var in in_b for it in reduced if it.extent is not const(1)):
        return None
    batch = tuple(it for it in spatial if it.var in in_a and it.var in in_b)
    only_a = tuple(it for it in spatial if it.var in in_a and it.var not in in_b)
    only_b = tuple(it for it in spatial if it.var in in_b and it.var not in in_a)
    if len(batch) + len(only_a) + len(only_b) != len(spatial):
        return None
    is_swapped = _holds_innermost(out, only_a) and not _holds_innermost(out, only_b)
    if is_swapped:
        a, b, only_a, only_b = b, a, only_b, only_a
    return Contraction(out, a, b, batch, only_a, only_b, reduced, is_swapped)


def _holds_innermost(out: Access, iters: tuple[Iter, ...]) -> bool:
    """Whether one of the variables is contiguous in the output."""
    return any(out.step(it.var) == 1 for it in iters)
