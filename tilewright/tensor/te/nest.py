"""From a definition to its loops: one perfect nest around one block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tilewright.ir import (
    Block,
    Buffer,
    Expr,
    For,
    Iter,
    IterKind,
    Let,
    Load,
    Span,
    Stmt,
    Store,
    Var,
    make_block,
    map_expr,
    seq,
)
from tilewright.tensor.te.compute import Compute
from tilewright.tensor.te.tensor import Tensor

Rewrite = Callable[[Expr], Expr]


class FunctionScope:
    """A function under construction: a buffer for each tensor, and the names of its blocks."""

    def __init__(
        self, buffers: Mapping[Tensor, Buffer], block_names: dict[str, int] | None = None
    ) -> None:
        self.buffers = dict(buffers)
        #: The names in use, and for each the last number that was appended to it.
        self._block_names = {} if block_names is None else block_names

    def with_buffers(self, buffers: Mapping[Tensor, Buffer]) -> FunctionScope:
        """The same function, where some more tensors are stored in these buffers."""
        return FunctionScope({**self.buffers, **buffers}, self._block_names)

    def block_name(self, wanted: str) -> str:
        """`wanted`, or the first of wanted_1, wanted_2, … that is free."""
        name, count = wanted, self._block_names.get(wanted, 0)
        while name in self._block_names:
            count += 1
            name = f"{wanted}_{count}"
        self._block_names[name] = 0
        self._block_names[wanted] = count
        return name

    def rewrite(self, values: Mapping[Var, Expr]) -> Rewrite:
        """A function that substitutes variables and the function's buffers in expressions."""
        memo: dict[Expr, Expr] = {}

        def on_node(e: Expr) -> Expr | None:
            if isinstance(e, Var):
                return values.get(e)
            if isinstance(e, Load) and isinstance(e.buffer, Tensor):
                return Load(self.buffers[e.buffer], e.indices, e.mask)
            return None

        return lambda expr: map_expr(expr, on_node, memo)


class IndexAxis(NamedTuple):
    """An index of a definition: `var` is `offset` plus an iterator of the block."""

    var: Var
    extent: Expr
    kind: IterKind
    offset: Expr | None = None


def compute_axes(op: Compute) -> list[IndexAxis]:
    """Spatial axes, then reduced ones."""
    axes = [IndexAxis(v, e, "spatial") for v, e in zip(op.axes, op.shape, strict=True)]
    if op.reduction is not None and op.reduction.is_empty:
        return axes
    return axes + [IndexAxis(a.var, a.extent, "reduce") for a in op.reduced_axes]


def compute_nest(op: Compute, scope: FunctionScope) -> Stmt:
    """The loops of a compute."""
    axes = compute_axes(op)
    loops = [Var(a.var.name) for a in axes]
    return nest(loops, axes, compute_block(op, axes, loops, scope), op.span)


def nest(loops: Sequence[Var], axes: Sequence[IndexAxis], body: Stmt, span: Span | None) -> Stmt:
    """A serial loop for each axis around `body`."""
    for var, axis in zip(reversed(loops), reversed(axes), strict=True):
        body = For(var, axis.extent, "serial", body, span=span)
    return body


def compute_block(
    op: Compute, axes: Sequence[IndexAxis], loops: Sequence[Var], scope: FunctionScope
) -> Block:
    """The block of a compute, its iterators bound to `loops`."""
    iters = [Iter(Var(f"v{a.var.name}"), a.extent, a.kind) for a in axes]
    values = {a.var: _value(a, i.var) for a, i in zip(axes, iters, strict=True)}
    rewrite = scope.rewrite(values)
    init, body = _bodies(op, rewrite, scope)
    return make_block(
        scope.block_name(op.name),
        iters,
        loops,
        body,
        init=init,
        annotations=op.attrs,
        span=op.span,
    )


def _value(axis: IndexAxis, iterator: Var) -> Expr:
    return iterator if axis.offset is None else iterator + axis.offset


def _plain_body(
    op: Compute, values: Sequence[Expr], rewrite: Rewrite, scope: FunctionScope
) -> Stmt:
    """Every value stored into its output."""
    indices = tuple(rewrite(a) for a in op.axes)
    return seq(
        *(
            Store(scope.buffers[out], indices, rewrite(value), span=op.span)
            for out, value in zip(op.outputs, values, strict=True)
        )
    )


def _bodies(op: Compute, rewrite: Rewrite, scope: FunctionScope) -> tuple[Stmt | None, Stmt]:
    """The initialization of a reduction, if it is one, and the body of one instance."""
    reduction = op.reduction
    if reduction is None:
        return None, _plain_body(op, op.values, rewrite, scope)
    start = _plain_body(op, reduction.identities, rewrite, scope)
    if reduction.is_empty:
        return None, start
    state = tuple(Load(out, op.axes) for out in op.outputs)
    combined = reduction.combine(state, reduction.values)
    if len(combined) == 1:
        return start, _plain_body(op, combined, rewrite, scope)
    return start, _simultaneous(op, combined, rewrite, scope)


def _simultaneous(
    op: Compute, combined: Sequence[Expr], rewrite: Rewrite, scope: FunctionScope
) -> Stmt:
    """All new values first, then the stores: each is computed from all the old ones."""
    names = [Var(f"{out.name}_next", out.dtype) for out in op.outputs]
    body = _plain_body(op, names, rewrite, scope)
    for var, value in zip(reversed(names), reversed(combined), strict=True):
        body = Let(var, rewrite(value), body, span=op.span)
    return body
