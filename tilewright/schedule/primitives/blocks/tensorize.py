"""tensorize(target, intrin)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tilewright.arith import simplify
from tilewright.ir import (
    Alloc,
    Block,
    Buffer,
    Expr,
    For,
    Function,
    Load,
    Range,
    Region,
    Stmt,
    Store,
    Var,
    const,
    map_expr,
    map_stmt,
    renew,
    replace_buffers,
    walk,
    with_inferred_regions,
)
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.matching import SubBuffer, match_tile
from tilewright.schedule.handles import BlockRef
from tilewright.schedule.primitives.blocks.blockize import blockize
from tilewright.schedule.tensor_intrin import find_intrin


def tensorize(tree: Tree, target: For | Block, intrin: str) -> Edit:
    """Replace a tile by a tensor intrinsic: `target` is a block, or a loop to make a block of.

    block C_o (vo = i_0):                     -->      block C_o (vo = i_0):
        for i_1 in 4:                                      intrinsic(address of C[vo * 4], …)
            block C (vi = vo * 4 + i_1): …
    """
    tree, block = _as_block(tree, target)
    places = _places(tree, target, block, intrin)
    implementation = find_intrin(intrin).implementation
    body = _placed(implementation, places)
    noted = {**block.annotations, "tensor_intrin": intrin}
    # Regions cannot be inferred from addresses in the new body: use those of the tile.
    found = {place.buffer: _region(param, place) for param, place in places.items()}
    reads, writes = (_exactly(regions, found) for regions in (block.reads, block.writes))
    done = replace(block, body=body, annotations=noted, reads=reads, writes=writes)
    function = _pinned(tree.replace(block, done), _strided(places))
    return Edit(function, (BlockRef(block.name),))


def check(tree: Tree, target: For | Block, intrin: str) -> None:
    tree, block = _as_block(tree, target)
    _places(tree, target, block, intrin)


def _as_block(tree: Tree, target: For | Block) -> tuple[Tree, Block]:
    if isinstance(target, Block):
        return tree, target
    edit = blockize(tree, target)
    (made,) = edit.results
    assert isinstance(made, BlockRef)
    tree = Tree(edit.function)
    return tree, tree.blocks[made.name]


def _places(tree: Tree, target: For | Block, block: Block, intrin: str) -> dict[Buffer, SubBuffer]:
    wanted = find_intrin(intrin)
    found = match_tile(wanted.description, block.body)
    if not isinstance(found, str):
        by_position = zip(wanted.description.params, wanted.implementation.params, strict=True)
        return {
            b: found[a] for a, b in by_position if isinstance(a, Buffer) and isinstance(b, Buffer)
        }
    name = target.name if isinstance(target, Block) else target.var.name
    fault = Fault(found, f"the intrinsic computes\n{wanted.description}", block)
    require(tree, f"cannot compute {name} by {intrin}", fault)
    raise AssertionError("a fault is always raised")


def _placed(implementation: Function, places: Mapping[Buffer, SubBuffer]) -> Stmt:
    """The implementation, applied to the buffers of the tile."""
    strides = _strides(places)

    def on_node(expr: Expr) -> Expr | None:
        if isinstance(expr, Var):
            return strides.get(expr)
        if isinstance(expr, Load) and expr.buffer in places:
            place = places[expr.buffer]
            return Load(place.buffer, _moved(place, expr.indices), expr.mask)
        return None

    def on_stmt(stmt: Stmt) -> Stmt | None:
        if isinstance(stmt, Store) and stmt.buffer in places:
            place = places[stmt.buffer]
            return replace(stmt, buffer=place.buffer, indices=_moved(place, stmt.indices))
        return None

    memo: dict[Expr, Expr] = {}
    body = map_stmt(renew(implementation.body), on_stmt, lambda e: map_expr(e, on_node, memo))
    return _with_own_regions(body)


def _region(param: Buffer, place: SubBuffer) -> Region:
    """The region of a buffer that corresponds to a parameter."""
    extents = dict(zip(place.axes, param.shape, strict=True))
    one = const(1)
    ranges = [Range(start, extents.get(axis, one)) for axis, start in enumerate(place.base)]
    return Region(place.buffer, tuple(ranges))


def _exactly(regions: Sequence[Region], found: Mapping[Buffer, Region]) -> tuple[Region, ...]:
    return tuple(found.get(region.buffer, region) for region in regions)


def _with_own_regions(body: Stmt) -> Stmt:
    return map_stmt(body, lambda s: with_inferred_regions(s) if isinstance(s, Block) else None)


def _moved(place: SubBuffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    moved = list(place.base)
    for axis, index in zip(place.axes, indices, strict=True):
        moved[axis] = simplify(moved[axis] + index)
    return tuple(moved)


def _strides(places: Mapping[Buffer, SubBuffer]) -> dict[Var, Expr]:
    """The values of variables in the parameters' strides: the strides of the actual buffers."""
    found: dict[Var, Expr] = {}
    for param, place in places.items():
        actual = place.buffer.stride_exprs()
        for stride, axis in zip(param.strides or (), place.axes, strict=False):
            if isinstance(stride, Var):
                found[stride] = actual[axis]
    return found


def _strided(places: Mapping[Buffer, SubBuffer]) -> list[Buffer]:
    """The buffers whose strides the implementation uses."""
    return [place.buffer for param, place in places.items() if param.strides is not None]


def _pinned(function: Function, buffers: list[Buffer]) -> Function:
    """Give these buffers, if allocated, explicit strides, so that no later pass changes them."""
    inner = {b for s in walk(function.body) if isinstance(s, Alloc) for b in s.buffers}
    loose = {b for b in buffers if b in inner and b.strides is None}
    fixed = {b: b.with_(strides=b.stride_exprs()) for b in loose}
    return function.with_body(replace_buffers(function.body, fixed)) if fixed else function
