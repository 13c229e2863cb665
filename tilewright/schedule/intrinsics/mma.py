"""Tensor instructions of NVIDIA's GPUs: products of tiles by the threads of a warp (`ir.warps`).

The implementation is a loop over the threads of the warp, along `threadIdx.x`, so that a block that
is tensorized this way stands in loops over warps alone.
"""

from __future__ import annotations

from typing import Any, Final

from tilewright.ir import (
    SUMS,
    TILE_SIDE,
    WARP,
    WARP_PRODUCTS,
    Buffer,
    DType,
    Evaluate,
    For,
    Function,
    Iter,
    Load,
    Stmt,
    Store,
    Var,
    WarpProduct,
    address_of,
    call,
    cast,
    const,
    make_block,
    sum_place,
)
from tilewright.schedule.tensor_intrin import TensorIntrin, register_maker

_F32: Final = DType.of("float32")


def warp_product(product: WarpProduct) -> TensorIntrin:
    """C[lane, own] += A · B"""
    a = Buffer("A", product.dtype, (TILE_SIDE, TILE_SIDE), scope="shared")
    b = Buffer("B", product.dtype, (TILE_SIDE, TILE_SIDE), scope="shared")
    c = Buffer("C", _F32, (WARP, SUMS), scope="local")
    params = (a, b, c)
    described = Function("description", params, _described(product, a, b, c))
    lane = Var("lane")
    places = c[lane, 0], a[product.a_start(lane)], b[product.b_start(lane)]
    effect = Evaluate(call(product.name, *(address_of(p) for p in places)))
    done = For(lane, const(WARP), "thread", effect, axis="threadIdx.x")
    return TensorIntrin(product.name, described, Function("implementation", params, done))


def _described(product: WarpProduct, a: Buffer, b: Buffer, c: Buffer) -> Stmt:
    i, j, k = variables = Var("vi"), Var("vj"), Var("vk")
    place = sum_place(i, j)
    left = a[(k, i) if product.a_by_columns else (i, k)]
    right = b[(j, k) if product.b_by_columns else (k, j)]
    update = Store(c, place, Load(c, place) + cast(left, _F32) * cast(right, _F32))
    kinds: tuple[Any, ...] = ("spatial", "spatial", "reduce")
    iters = [Iter(v, const(TILE_SIDE), kind) for v, kind in zip(variables, kinds, strict=True)]
    loops = [Var(v.name.removeprefix("v")) for v in variables]
    nest: Stmt = make_block("D", iters, loops, update)
    for loop in reversed(loops):
        nest = For(loop, const(TILE_SIDE), "serial", nest)
    return nest


for _product in WARP_PRODUCTS.values():
    register_maker(_product.name, lambda product=_product: warp_product(product))
