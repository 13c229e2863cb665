"""Sums of products, C[…] += A[…] * B[…]: how blocks express them."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.ir import Binary, Block, Expr, Load, Store, product_of_loads, walk


class SumOfProducts(NamedTuple):
    """The store of a reduction, its two factors, and the loads of these, perhaps converted."""

    store: Store
    factors: tuple[Expr, Expr]
    loads: tuple[Load, Load]


def is_reduction(block: Block) -> bool:
    return block.init is not None and any(it.kind == "reduce" for it in block.iters)


def is_step(block: Block) -> bool:
    """Whether a block belongs to the steps of a scan."""
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
    loads = None if product is None else product_of_loads(product)
    if loads is None:
        return None
    assert isinstance(product, Binary)
    return SumOfProducts(store, (product.a, product.b), loads)
