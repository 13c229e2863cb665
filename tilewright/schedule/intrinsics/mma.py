"""Tensor instructions of NVIDIA's GPUs: products of tiles by threads together (`ir.warps`).

The implementation is a loop over the threads of a warp, along `threadIdx.x`, and over the warps of
a group, along `threadIdx.y`; so a block that is tensorized this way may only be in loops over warps
or groups.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.ir import (
    GROUP,
    GROUP_PRODUCTS,
    GROUP_ROWS,
    SUMS,
    TILE_SIDE,
    WARP,
    WARP_PRODUCTS,
    Buffer,
    Evaluate,
    Expr,
    Factors,
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


def warp_product(product: WarpProduct) -> TensorIntrin:
    """C[lane, own] += A · B"""
    factors = product.factors
    along = TILE_SIDE, factors.steps
    a = Buffer("A", factors.a, along[:: -1 if product.a_by_columns else 1], scope="shared")
    if product.a_is_own:
        a = Buffer("A", factors.a, (WARP, SUMS), scope="local")
    b = Buffer("B", factors.b, along[:: 1 if product.b_by_columns else -1], scope="shared")
    c = Buffer("C", factors.sums, (WARP, SUMS), scope="local")
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
    update = _update(Load(c, place), left, right)
    return _nest((i, j, k), (TILE_SIDE, TILE_SIDE, product.factors.steps), update)


def _update(total: Load, left: Expr, right: Expr) -> Stmt:
    """A product of two elements, added to a sum."""
    dtype = total.buffer.dtype
    return Store(total.buffer, total.indices, total + cast(left, dtype) * cast(right, dtype))


def group_product(product: GroupProduct) -> TensorIntrin:
    """C[warp, lane, tile, own] += A · B"""
    factors = product.factors
    left_shape = _operand_shape(factors, GROUP_ROWS, by_sum=not product.a_by_columns)
    right_shape = _operand_shape(factors, product.columns, by_sum=product.b_by_columns)
    c = Buffer("C", factors.sums, (GROUP, WARP, product.columns // TILE_SIDE, SUMS), scope="local")
    a = Buffer("A", factors.a, left_shape, scope="shared")
    b = Buffer("B", factors.b, right_shape, scope="shared")
    if product.a_is_own:
        a = Buffer("A", factors.a, (GROUP, WARP, SUMS), scope="local")
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
    """How a thread addresses an operand: its first element, and the distances between rows and
    between blocks of rows."""

    first: Load
    apart: tuple[Expr, Expr]


def _named_by(operand: Buffer, warp: Var, lane: Var) -> _Named:
    if operand.scope == "local":
        return _Named(operand[warp, lane, 0], (const(0), const(0)))
    strides = [Var(f"{operand.name.lower()}{k}") for k in range(operand.ndim - 1)]
    lying = operand.with_(strides=(*strides, const(1)))
    return _Named(lying[(0,) * lying.ndim], (strides[-1], strides[0]))


def _operand_shape(factors: Factors, side: int, *, by_sum: bool) -> tuple[int, ...]:
    """Rows along the sum, or blocks of rows along the other side."""
    if by_sum:
        return side, factors.steps
    return side // factors.pitch, factors.steps, factors.pitch


def _described_group(product: GroupProduct, a: Buffer, b: Buffer, c: Buffer) -> Stmt:
    i, j, k = Var("vi"), Var("vj"), Var("vk")
    lane, own = sum_place(i % TILE_SIDE, j % TILE_SIDE)
    place, pitch = (i // TILE_SIDE, lane, j // TILE_SIDE, own), product.factors.pitch
    if product.a_is_own:
        left = a[(i // TILE_SIDE, *sum_place(i % TILE_SIDE, k))]
    else:
        left = a[(i // pitch, k, i % pitch) if product.a_by_columns else (i, k)]
    right = b[(j, k) if product.b_by_columns else (j // pitch, k, j % pitch)]
    update = _update(Load(c, place), left, right)
    return _nest((i, j, k), (GROUP_ROWS, product.columns, product.factors.steps), update)


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
