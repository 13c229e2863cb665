"""Sums of products, C[…] += A[…] * B[…], as blocks spell them."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir import Binary, Block, Cast, Expr, Load, Store, loads_in, walk


class SumOfProducts(NamedTuple):
    """The store of a reduction, and what its two factors are (loads, maybe converted)."""

    store: Store
    factors: tuple[Expr, Expr]

    @property
    def loads(self) -> tuple[Load, Load]:
        a, b = map(unconverted, self.factors)
        assert isinstance(a, Load) and isinstance(b, Load)
        return a, b


def is_reduction(block: Block) -> bool:
    return block.init is not None and any(it.kind == "reduce" for it in block.iters)


def is_step(block: Block) -> bool:
    """Whether a block is part of the steps of a scan."""
    return any(it.kind == "ordered" for it in block.iters)


def as_sum_of_products(block: Block) -> SumOfProducts | None:
    """The block as a sum of products of two loads, if it is one."""
    stores = [s for s in walk(block.body) if isinstance(s, Store)]
    if len(stores) != 1 or not is_reduction(block):
        return None
    (store,) = stores
    value, own = store.value, Load(store.buffer, store.indices)
    if not isinstance(value, Binary) or value.op != "add":
        return None
    product = value.b if value.a is own else value.a if value.b is own else None
    if not isinstance(product, Binary) or product.op != "mul":
        return None
    if not all(map(_is_plain_load, (product.a, product.b))):
        return None
    return SumOfProducts(store, (product.a, product.b))


def unconverted(e: Expr) -> Expr:
    """What an expression converts."""
    while isinstance(e, Cast):
        e = e.a
    return e


def _is_plain_load(e: Expr) -> bool:
    load = unconverted(e)
    return isinstance(load, Load) and not any(loads_in(i) for i in load.indices)
