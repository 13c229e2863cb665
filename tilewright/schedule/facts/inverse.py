"""Solves indices for the variables in them."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.arith import AffineMap
from tilewright.ir import Const, Expr, Iter, Var, const, is_const, substitute


class Solution:
    """Iterators in terms of the indices at which a block accesses a buffer."""

    def __init__(self, inputs: Sequence[Var], values: dict[Var, Expr]) -> None:
        self._inputs, self._values = tuple(inputs), values

    def at(self, indices: Sequence[Expr]) -> dict[Var, Expr]:
        """The iterators of the instance that accesses the element at `indices`."""
        given = dict(zip(self._inputs, indices, strict=True))
        return {var: substitute(value, given) for var, value in self._values.items()}


def solved(indices: Sequence[Expr], iters: Sequence[Iter]) -> Solution | None:
    """`indices` solved for the iterators, where only one instance accesses each element."""
    inputs = [Var(f"x{n}") for n in range(len(indices))]
    values: dict[Var, Expr] = {
        it.var: const(0, it.var.dtype) for it in iters if is_const(it.extent, 1)
    }
    wanted = {it.var for it in iters if it.var not in values}
    for given, index in zip(inputs, indices, strict=True):
        if isinstance(index, Var) and index in wanted and index not in values:
            values[index] = given
    if wanted <= values.keys():
        return Solution(inputs, values)
    return _solved_as_map(indices, [it for it in iters if it.var in wanted], inputs, values)


def _solved_as_map(
    indices: Sequence[Expr], iters: Sequence[Iter], inputs: list[Var], values: dict[Var, Expr]
) -> Solution | None:
    fixed = {var: value for var, value in values.items() if isinstance(value, Const)}
    outputs = tuple(substitute(index, fixed) for index in indices)
    running = [n for n, output in enumerate(outputs) if not isinstance(output, Const)]
    forward = AffineMap(tuple(it.var for it in iters), tuple(outputs[n] for n in running))
    back = forward.left_inverse([it.extent for it in iters])
    if back is None:
        return None
    found = back.apply([inputs[n] for n in running])
    solution = fixed | dict(zip((it.var for it in iters), found, strict=True))
    return Solution(inputs, solution)
