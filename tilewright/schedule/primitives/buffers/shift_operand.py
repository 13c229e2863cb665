"""shift_operand(block, factor)"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.arith import Ranges
from tilewright.ir import (
    Alloc,
    Block,
    Buffer,
    Cast,
    Const,
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
    substitute_stmt,
    with_inferred_regions,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit, fresh_name, with_buffers
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.block_facts import loops_cover_the_domain, no_address_is_taken
from tilewright.schedule.facts.boxes import under_loops
from tilewright.schedule.facts.legality import one_block_stands_alone
from tilewright.schedule.facts.products import SumOfProducts, as_sum_of_products, is_step
from tilewright.schedule.handles import BlockRef
from tilewright.schedule.primitives.buffers.copy_operand import (
    block_is_a_sum_of_products,
    operand_is_ready,
)
from tilewright.schedule.stages import element_by_element, new_buffer, stand_in
from tilewright.schedule.writing import redirect

#: The type of bytes with the opposite signedness.
OTHER_SIGN: Final = {DType.of("int8"): DType.of("uint8"), DType.of("uint8"): DType.of("int8")}
_SIGNED, _UNSIGNED = DType.of("int8"), DType.of("uint8")


def shift_operand(tree: Tree, block: Block, factor: int) -> Edit:
    """Change the signedness of a factor's bytes: shift them by 128, and correct the sums.

    C[i, j] += i32(A[i, k]) * i32(B[k, j])                                             A: i8
    -->
    A_shifted[i, k] = u8(A[i, k]) ^ 128                                that is A + 128
    B_sums[j] += i32(B[k, j])
    C_shifted[i, j] += i32(A_shifted[i, k]) * i32(B[k, j])
    C[i, j] = C_shifted[i, j] - 128 * B_sums[j]

    That is exact: sums wrap around alike. In a step of a scan, where the bytes are made and the
    results used at once, the bytes are made shifted, and the sums start with the correction:

    A[t, k] = x                                        A[t, k] = u8(x) ^ 128
    C[t, j] = 0                                 -->    C[t, j] = -128 * B_sums[j]
    C[t, j] += i32(A[t, k]) * i32(B[k, j])             C[t, j] += i32(A[t, k]) * i32(B[k, j])
    """
    check(tree, block, factor)
    shift = _Shift(tree, block, factor)
    function = shift.step() if is_step(block) else shift.function()
    return Edit(function, tuple(map(BlockRef, shift.made)))


# ---- legality -----------------------------------------------------------------------------------


def check(tree: Tree, block: Block, factor: int) -> None:
    what = f"cannot shift a factor of block {block.name}"
    require(tree, what, block_is_a_sum_of_products(block, factor))
    product = as_sum_of_products(block)
    assert product is not None
    shifted, other = product.loads[factor], product.loads[1 - factor]
    what = f"cannot shift {shifted.buffer.name} for block {block.name}"
    require(
        tree,
        what,
        _is_of_bytes(shifted),
        _has_a_buffer_of_its_own(shifted, other),
        _sums_wrap_around(product),
        _is_unmasked(product),
        no_address_is_taken(tree, shifted.buffer),
        loops_cover_the_domain(tree, block),
        operand_is_ready(tree, block, other),
    )
    if is_step(block):
        require(tree, what, _is_made_for(tree, block, shifted.buffer), _starts_with_zero(block))
        return
    outermost = tree.loops_above(block)[0]
    require(
        tree,
        what,
        operand_is_ready(tree, block, shifted),
        one_block_stands_alone(outermost, block),
    )


def _is_of_bytes(load: Load) -> Fault | None:
    if load.buffer.dtype in OTHER_SIGN:
        return None
    return Fault(f"its elements are {load.buffer.dtype.name}, not bytes")


def _has_a_buffer_of_its_own(load: Load, other: Load) -> Fault | None:
    if load.buffer is not other.buffer:
        return None
    return Fault("both factors are elements of it", "use copy_operand first")


def _sums_wrap_around(product: SumOfProducts) -> Fault | None:
    """Everything is computed in integers that hold bytes of either signedness."""
    converted = [e.dtype for factor in product.factors for e in _conversions(factor)]
    are_converted = all(isinstance(factor, Cast) for factor in product.factors)
    are_wide = all(d.kind == "int" and d.bits >= 16 for d in converted)
    if product.store.buffer.dtype.is_integer and are_converted and are_wide:
        return None
    reason = "its products are not sums of signed whole numbers of 16 bits or more"
    return Fault(reason, "convert both factors before they are multiplied", product.store)


def _conversions(e: Expr) -> list[Cast]:
    found: list[Cast] = []
    while isinstance(e, Cast):
        found.append(e)
        e = e.a
    return found


def _is_unmasked(product: SumOfProducts) -> Fault | None:
    if product.store.mask is None and all(load.mask is None for load in product.loads):
        return None
    return Fault("its accesses are masked", "do this before loops are vectorized", product.store)


def _is_made_for(tree: Tree, block: Block, operand: Buffer) -> Fault | None:
    """One block writes the operand, once, and only `block` reads it."""
    writers, readers = tree.writers(operand), tree.readers(operand)
    is_made_once = len(writers) == 1 and writers[0].init is None
    if readers == [block] and is_made_once and operand not in tree.function.buffers:
        return None
    reason = f"{operand.name} is not made by one block, for block {block.name} alone"
    return Fault(reason, "", block)


def _starts_with_zero(block: Block) -> Fault | None:
    init = block.init
    if isinstance(init, Store) and isinstance(init.value, Const) and init.value.value == 0:
        return None
    return Fault("its sums do not start with 0", "", block)


# ---- rewriting ----------------------------------------------------------------------------------


class _Shift:
    """The parts of the rewritten product."""

    def __init__(self, tree: Tree, block: Block, factor: int) -> None:
        product = as_sum_of_products(block)
        assert product is not None
        self.tree, self.block, self.out = tree, block, product.store
        self.shifted, self.other = product.loads[factor], product.loads[1 - factor]
        self.own = {v for i in self.other.indices for v in free_vars(i)}
        spatial = [it for it in block.iters if it.kind == "spatial" and it.var in self.own]
        bytes_, out = self.shifted.buffer, self.out.buffer
        self.operand = stand_in(tree, bytes_, "shifted", dtype=OTHER_SIGN[bytes_.dtype])
        self.result = stand_in(tree, out, "shifted")
        name, extents = f"{self.other.buffer.name}_sums", [it.extent for it in spatial]
        self.sums = new_buffer(tree, name, out.dtype, extents)
        #: The names of new blocks.
        self.made: list[str] = []

    def function(self) -> Function:
        outermost = self.tree.loops_above(self.block)[0]
        shifted = element_by_element(
            self.tree, self._name(self.operand.name), self.shifted.buffer, self.operand, self._moved
        )
        product = self.tree.rebuilt(outermost, self.block, self._product())
        parts = seq(shifted, self._summed(), product, self._shifted_back())
        changed = self.tree.replace(outermost, parts)
        return with_buffers(changed, self.operand, self.sums, self.result)

    def step(self) -> Function:
        """The function with the product rewritten within a step of a scan."""
        rows, out = self.shifted.buffer, self.out
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
        return 128 if self.shifted.buffer.dtype is _SIGNED else -128

    def _name(self, hint: str) -> str:
        name = fresh_name(hint, {*self.tree.blocks, *self.made})
        self.made.append(name)
        return name

    def _nest(self, hint: str, iters: list[Iter], update: Store, init: Store | None = None) -> Stmt:
        """`update` in loops over fresh variables."""
        fresh = {it.var: Var(it.var.name, it.var.dtype) for it in iters}
        own = [it._replace(var=fresh[it.var]) for it in iters]
        places: dict[Var, Expr] = {**fresh}
        start = None if init is None else substitute_stmt(init, places)
        variables = [it.var for it in own]
        body = substitute_stmt(update, places)
        block = make_block(self._name(hint), own, variables, body, init=start)
        return under_loops(block, {}, Ranges.for_function(self.tree.function)).nest

    def _summed(self) -> Stmt:
        iters = [it for it in self.block.iters if it.var in self.own]
        place = self._sums_at()
        term = cast(Load(self.other.buffer, self.other.indices), self.sums.dtype)
        update = Store(self.sums, place, Load(self.sums, place) + term)
        start = Store(self.sums, place, const(0, self.sums.dtype))
        return self._nest(self.sums.name, iters, update, start)

    def _sums_at(self) -> tuple[Expr, ...]:
        spatial = [it for it in self.block.iters if it.kind == "spatial"]
        return tuple(it.var for it in spatial if it.var in self.own)

    def _product(self) -> Block:
        exchanged = {self.shifted.buffer: self.operand, self.out.buffer: self.result}
        changed = redirect(self.block, exchanged)
        assert isinstance(changed, Block)
        return changed

    def _shifted_back(self) -> Stmt:
        out = self.out
        iters = [it for it in self.block.iters if it.kind == "spatial"]
        total = Load(self.result, out.indices) - Load(self.sums, self._sums_at()) * self._shift
        name = f"{out.buffer.name}_shifted_back"
        return self._nest(name, iters, Store(out.buffer, out.indices, total))
