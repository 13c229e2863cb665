"""What a block reads and writes, derived from its body.

A region is one box for each buffer, in terms of the block's own variables: an index that depends on
nothing inside the body gives a range of one element at that index; one that depends on inner loops
spans their range; one that depends on loaded values spans the whole dimension. Several accesses of
a buffer give the smallest box around all of them. A box may exceed its buffer where the access is
guarded (`Select`, `If`, a mask); callers that need it inside clip it.

The accumulator of a reduction counts as written only: an `init` implies that it is read back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Call, Const, Expr, Load, Var, cast
from tilewright.ir.index_bounds import Extremes, affine, extent_between, extremes, hull
from tilewright.ir.intrinsics import is_pure
from tilewright.ir.stmt import (
    TRUE,
    Alloc,
    Block,
    Evaluate,
    For,
    Iter,
    Let,
    Range,
    Region,
    Span,
    Stmt,
    Store,
)
from tilewright.ir.visit import child_exprs, child_stmts, substitute, walk_expr
from tilewright.support.dtype import index

#: The bounds of each dimension; None is all of it.
_Box = tuple[Extremes | None, ...]
_Boxes = dict[Buffer, _Box]


def infer_regions(
    body: Stmt, init: Stmt | None = None, iters: Iterable[Iter] = ()
) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
    """The regions that a block of this body reads and writes, buffers in order of appearance."""
    del iters  # Variables that the body does not bind stay symbolic, the block's own included.
    started, updated = _Accesses(), _Accesses()
    if init is not None:
        started.visit(init)
    updated.visit(body)
    writes = _merged(started.writes, updated.writes)
    accumulated = {b for b in started.writes if updated.reads.get(b) == writes[b]}
    reads = _merged(started.reads, updated.reads)
    kept = {b: box for b, box in reads.items() if b not in accumulated}
    return _regions(kept), _regions(writes)


def with_inferred_regions(block: Block) -> Block:
    """`block` with its regions derived again; itself if they are right already."""
    reads, writes = infer_regions(block.body, block.init, block.iters)
    if _same_regions(reads, block.reads) and _same_regions(writes, block.writes):
        return block
    return make_block(
        block.name,
        block.iters,
        block.bindings,
        block.body,
        predicate=block.predicate,
        init=block.init,
        annotations=block.annotations,
        span=block.span,
    )


def make_block(
    name: str,
    iters: Iterable[Iter],
    bindings: Iterable[Expr],
    body: Stmt,
    *,
    predicate: Expr = TRUE,
    init: Stmt | None = None,
    annotations: Mapping[str, Any] | None = None,
    span: Span | None = None,
) -> Block:
    """A block whose regions are derived from its body."""
    iters = tuple(iters)
    reads, writes = infer_regions(body, init, iters)
    return Block(
        name,
        iters,
        tuple(bindings),
        body,
        reads,
        writes,
        predicate,
        init,
        dict(annotations or {}),
        span,
    )


def whole_region(buffer: Buffer) -> Region:
    """The region of a whole buffer."""
    return Region(buffer, tuple(_whole(extent) for extent in buffer.shape))


def _whole(extent: Expr) -> Range:
    return Range(Const(0, extent.dtype), extent)


def _regions(boxes: _Boxes) -> tuple[Region, ...]:
    return tuple(Region(buffer, _ranges(buffer, box)) for buffer, box in boxes.items())


def _ranges(buffer: Buffer, box: _Box) -> tuple[Range, ...]:
    return tuple(
        _whole(extent) if span is None else Range(span.low, extent_between(*span))
        for extent, span in zip(buffer.shape, box, strict=True)
    )


def _same_regions(a: tuple[Region, ...], b: tuple[Region, ...]) -> bool:
    if len(a) != len(b):
        return False
    return all(map(_same_region, a, b))


def _same_region(a: Region, b: Region) -> bool:
    flat = (
        (x, y) for p, q in zip(a.ranges, b.ranges, strict=True) for x, y in zip(p, q, strict=True)
    )
    return a.buffer is b.buffer and all(x is y for x, y in flat)


def _merged(a: _Boxes, b: _Boxes) -> _Boxes:
    result = dict(a)
    for buffer, box in b.items():
        _add(result, buffer, box)
    return result


def _add(boxes: _Boxes, buffer: Buffer, box: _Box) -> None:
    known = boxes.get(buffer)
    if known is not None:
        box = tuple(_hull_of(p, q) for p, q in zip(known, box, strict=True))
    boxes[buffer] = box


def _hull_of(a: Extremes | None, b: Extremes | None) -> Extremes | None:
    return None if a is None or b is None else hull(a, b)


class _Accesses:
    """Collects the boxes of a statement, with the scope of variables bound inside it."""

    def __init__(self) -> None:
        self.reads: _Boxes = {}
        self.writes: _Boxes = {}
        self._inner: dict[Var, Extremes] = {}
        self._lets: dict[Var, Expr] = {}

    def visit(self, stmt: Stmt) -> None:
        _VISIT.get(type(stmt), _Accesses.visit_other)(self, stmt)

    def visit_other(self, stmt: Stmt) -> None:
        for expr in child_exprs(stmt):
            self._read_in(expr)
        for child in child_stmts(stmt):
            self.visit(child)

    def visit_for(self, loop: For) -> None:
        last = extremes(substitute(affine(loop.extent - 1).expr(), self._lets), self._inner)
        if last is None:
            # The range of the loop is unknown, and so are indices that use its variable.
            self._lets[loop.var] = _unknown(loop.var)
        else:
            self._inner[loop.var] = Extremes(Const(0, loop.var.dtype), last.high)
        self.visit_other(loop)

    def visit_let(self, let: Let) -> None:
        self._read_in(let.value)
        self._lets[let.var] = substitute(let.value, self._lets)
        self.visit(let.body)

    def visit_store(self, store: Store) -> None:
        self.visit_other(store)
        _add(self.writes, store.buffer, self._box(store.indices))

    def visit_alloc(self, alloc: Alloc) -> None:
        self.visit_other(alloc)
        for buffer in alloc.buffers:
            self.reads.pop(buffer, None)
            self.writes.pop(buffer, None)

    def visit_evaluate(self, evaluate: Evaluate) -> None:
        """A call that gets an address may touch any element of that buffer."""
        self._read_in(evaluate.call)
        if is_pure(evaluate.call) or _is_prefetch(evaluate.call):
            return
        for element in _addressed(evaluate.call):
            _add(self.writes, element.buffer, (None,) * element.buffer.ndim)

    def visit_block(self, block: Block) -> None:
        for expr in (*block.bindings, block.predicate):
            self._read_in(expr)
        bound = dict(zip((i.var for i in block.iters), block.bindings, strict=True))
        for regions, boxes in ((block.reads, self.reads), (block.writes, self.writes)):
            for region in regions:
                _add(boxes, region.buffer, self._outer_box(region, bound))

    def _outer_box(self, region: Region, bound: Mapping[Var, Expr]) -> _Box:
        return tuple(self._outer_range(r, bound) for r in region.ranges)

    def _outer_range(self, part: Range, bound: Mapping[Var, Expr]) -> Extremes | None:
        start = substitute(part.start, bound)
        last = affine(start + substitute(part.extent, bound) - 1).expr()
        first, final = self._extremes(start), self._extremes(last)
        return None if first is None or final is None else Extremes(first.low, final.high)

    def _read_in(self, expr: Expr) -> None:
        if isinstance(expr, Var | Const):
            return
        nodes = list(walk_expr(expr))
        addressed = {n.args[0] for n in nodes if isinstance(n, Call) and n.name == "address_of"}
        for node in nodes:
            if isinstance(node, Load):
                box = (None,) * node.buffer.ndim if node in addressed else self._box(node.indices)
                _add(self.reads, node.buffer, box)

    def _box(self, indices: tuple[Expr, ...]) -> _Box:
        return tuple(self._extremes(i) for i in indices)

    def _extremes(self, expr: Expr) -> Extremes | None:
        return extremes(cast(substitute(expr, self._lets), index), self._inner)


_VISIT: dict[type[Stmt], Callable[[_Accesses, Any], None]] = {
    For: _Accesses.visit_for,
    Let: _Accesses.visit_let,
    Block: _Accesses.visit_block,
    Store: _Accesses.visit_store,
    Alloc: _Accesses.visit_alloc,
    Evaluate: _Accesses.visit_evaluate,
}


def _unknown(var: Var) -> Expr:
    """An unknown value for `extremes`: a loaded one."""
    return Load(Buffer(var.name, var.dtype, ()), ())


def _addressed(expr: Expr) -> list[Load]:
    """The elements whose addresses are taken in `expr`."""
    calls = (n for n in walk_expr(expr) if isinstance(n, Call) and n.name == "address_of")
    return [c.args[0] for c in calls if isinstance(c.args[0], Load)]


def _is_prefetch(expr: Expr) -> bool:
    return isinstance(expr, Call) and expr.name == "prefetch"
