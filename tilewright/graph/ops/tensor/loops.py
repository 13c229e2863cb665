"""Loop nests of kernels of any rank; kernels of a fixed rank are written as `@script`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.graph.ir import Value
from tilewright.ir import Buffer, Expr, For, Function, Stmt, Var, seq
from tilewright.tensor import te

Indices = tuple[Expr, ...]


def nest(extents: Sequence[Expr], body: Callable[[Indices], Stmt]) -> Stmt:
    """`body` for every index of a shape, in order."""
    variables = [Var(f"i{n}") for n in range(len(extents))]
    result = body(tuple(variables))
    for var, extent in reversed(list(zip(variables, extents, strict=True))):
        result = For(var, extent, "serial", result)
    return result


def placeholder(value: Value) -> te.Tensor:
    """The parameter of a kernel for an operand."""
    return te.placeholder(value.shape, value.dtype, value.name)


def in_place(
    name: str, operands: Sequence[Value], update: Callable[[Sequence[Buffer], Buffer], Stmt]
) -> Function:
    """A kernel that copies its first operand and then changes the copy.

    `update(operands, result)` gives the statements that change it.
    """
    given = [placeholder(v) for v in operands]
    copy = te.compute(given[0].shape, lambda *i: given[0][i], name=name)
    function = te.function(given, copy, name=name)
    *ins, out = function.buffers
    return function.with_body(seq(function.body, update(ins, out)))
