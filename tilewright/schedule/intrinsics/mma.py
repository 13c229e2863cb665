"""Tensor instructions of NVIDIA's GPUs: products of tiles by threads together (`ir.warps`).

The implementation is a loop over the threads of a warp, along `threadIdx.x`, and over the warps of
a group, along `threadIdx.y`, so that a block that is tensorized this way stands in loops over warps
or groups alone.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tilewright.ir import (
    GROUP,
    GROUP_PRODUCTS,
    GROUP_ROWS,
    PITCH,
    SUMS,
    TILE_SIDE,
    WARP,
    WARP_PRODUCTS,
    Buffer,
    DType,
    Evaluate,
    Expr,
    For,
    Function,
    GroupProduct,
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
    if product.a_is_own:
        a = Buffer("A", product.dtype, (WARP, SUMS), scope="local")
    b = Buffer("B", product.dtype, (TILE_SIDE, TILE_SIDE), scope="shared")
    c = Buffer("C", _F32, (WARP, SUMS), scope="local")
    params = (a, b, c)
    described = Function("description", params, _described(product, a, b, c))
    lane = Var("lane")
    start = (lane, 0) if product.a_is_own else product.a_start(lane)
    places = c[lane, 0], a[start], b[product.b_start(lane)]
    effect = Evaluate(call(product.name, *(address_of(p) for p in places)))
    done = For(lane, const(WARP), "thread", effect, axis="threadIdx.x")
    return TensorIntrin(product.name, described, Function("implementation", params, done))


def _described(product: WarpProduct, a: Buffer, b: Buffer, c: Buffer) -> Stmt:
    i, j, k = Var("vi"), Var("vj"), Var("vk")
    place = sum_place(i, j)
    left = a[sum_place(i, k) if product.a_is_own else (k, i) if product.a_by_columns else (i, k)]
    right = b[(j, k) if product.b_by_columns else (k, j)]
    update = Store(c, place, Load(c, place) + cast(left, _F32) * cast(right, _F32))
    return _nest((i, j, k), (TILE_SIDE, TILE_SIDE, TILE_SIDE), update)


def group_product(product: GroupProduct) -> TensorIntrin:
    """C[warp, lane, tile, own] += A · B"""
    shapes = [
        _operand_shape(GROUP_ROWS, by_sum=not product.a_by_columns),
        _operand_shape(product.columns, by_sum=product.b_by_columns),
    ]
    c = Buffer("C", _F32, (GROUP, WARP, product.columns // TILE_SIDE, SUMS), scope="local")
    a, b = (Buffer(n, product.dtype, e, scope="shared") for n, e in zip("AB", shapes, strict=True))
    if product.a_is_own:
        a = Buffer("A", product.dtype, (GROUP, WARP, SUMS), scope="local")
    described = Function("description", (a, b, c), _described_group(product, a, b, c))
    lane, warp = Var("lane"), Var("warp")
    left, right = (_named_by(x, warp, lane) for x in (a, b))
    places = c[warp, lane, 0, 0], left.first, right.first
    effect = Evaluate(call(product.name, *map(address_of, places), *left.apart, *right.apart))
    each = For(lane, const(WARP), "thread", effect, axis="threadIdx.x")
    done = For(warp, const(GROUP), "thread", each, axis="threadIdx.y")
    params = left.first.buffer, right.first.buffer, c
    return TensorIntrin(product.name, described, Function("implementation", params, done))


class _Named(NamedTuple):
    """How a thread names an operand: by its first element, and how far rows and blocks of these lie
    apart."""

    first: Load
    apart: tuple[Expr, Expr]


def _named_by(operand: Buffer, warp: Var, lane: Var) -> _Named:
    if operand.scope == "local":
        return _Named(operand[warp, lane, 0], (const(0), const(0)))
    strides = [Var(f"{operand.name.lower()}{k}") for k in range(operand.ndim - 1)]
    lying = operand.with_(strides=(*strides, const(1)))
    return _Named(lying[(0,) * lying.ndim], (strides[-1], strides[0]))


def _operand_shape(side: int, *, by_sum: bool) -> tuple[int, ...]:
    """Rows along the sum, or blocks of rows along the other side."""
    return (side, TILE_SIDE) if by_sum else (side // PITCH, TILE_SIDE, PITCH)


def _described_group(product: GroupProduct, a: Buffer, b: Buffer, c: Buffer) -> Stmt:
    i, j, k = Var("vi"), Var("vj"), Var("vk")
    lane, own = sum_place(i % TILE_SIDE, j % TILE_SIDE)
    place = i // TILE_SIDE, lane, j // TILE_SIDE, own
    if product.a_is_own:
        left = a[(i // TILE_SIDE, *sum_place(i % TILE_SIDE, k))]
    else:
        left = a[(i // PITCH, k, i % PITCH) if product.a_by_columns else (i, k)]
    right = b[(j, k) if product.b_by_columns else (j // PITCH, k, j % PITCH)]
    update = Store(c, place, Load(c, place) + cast(left, _F32) * cast(right, _F32))
    return _nest((i, j, k), (GROUP_ROWS, product.columns, TILE_SIDE), update)


def _nest(variables: tuple[Var, ...], extents: tuple[int, ...], update: Stmt) -> Stmt:
    """Loops over rows, columns and the sum."""
    kinds: tuple[Any, ...] = ("spatial", "spatial", "reduce")
    iters = [Iter(v, const(e), k) for v, e, k in zip(variables, extents, kinds, strict=True)]
    loops = [Var(v.name.removeprefix("v")) for v in variables]
    nest: Stmt = make_block("D", iters, loops, update)
    for loop, extent in reversed([*zip(loops, extents, strict=True)]):
        nest = For(loop, const(extent), "serial", nest)
    return nest


for _product in WARP_PRODUCTS.values():
    register_maker(_product.name, lambda product=_product: warp_product(product))
for _group in GROUP_PRODUCTS.values():
    register_maker(_group.name, lambda product=_group: group_product(product))
