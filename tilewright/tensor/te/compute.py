"""`te.compute`: a tensor defined by a formula for its elements."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir import Expr, Var, as_expr
from tilewright.support.errors import UserError
from tilewright.tensor.te.operand import one_or_several
from tilewright.tensor.te.reduction import ReduceAxis, Reduction, joined
from tilewright.tensor.te.tensor import Definition, Shape, Tensor, shape_of, tensors_in


class Compute(Definition):
    """One value, or a reduction of values, for every index of a shape."""

    kind = "compute"

    def __init__(
        self,
        name: str,
        shape: tuple[Expr, ...],
        axes: tuple[Var, ...],
        body: tuple[Expr, ...] | Reduction,
        attrs: Mapping[str, Any],
    ) -> None:
        self.shape, self.body, self.attrs = shape, body, attrs
        super().__init__(name, axes, tensors_in(self.values, f"te.compute {name}"))
        self.outputs = tuple(
            Tensor(n, v.dtype, shape, self)
            for n, v in zip(self._output_names(), self.values, strict=True)
        )

    @property
    def values(self) -> tuple[Expr, ...]:
        """The expressions that are stored, or combined, for each output."""
        return self.body.values if isinstance(self.body, Reduction) else self.body

    @property
    def reduction(self) -> Reduction | None:
        return self.body if isinstance(self.body, Reduction) else None

    @property
    def reduced_axes(self) -> tuple[ReduceAxis, ...]:
        return self.body.axes if isinstance(self.body, Reduction) else ()

    @property
    def results(self) -> tuple[Tensor, ...]:
        """The outputs that users see."""
        hidden = self.body.hidden if isinstance(self.body, Reduction) else 0
        return self.outputs[: len(self.outputs) - hidden]

    def _output_names(self) -> list[str]:
        count = len(self.values)
        if isinstance(self.body, Reduction) and self.body.hidden:
            return [self.name, f"{self.name}_value"]
        return [self.name] if count == 1 else [f"{self.name}_{n}" for n in range(count)]


def compute(
    shape: Shape,
    fcompute: Callable[..., Any],
    name: str = "compute",
    attrs: Mapping[str, Any] | None = None,
    axis_names: Sequence[str] | None = None,
) -> Any:
    """The tensor of this shape whose elements `fcompute` gives, from one index per dimension.

    `fcompute` returns a scalar expression or a number, a reduction, or a tuple of either: then the
    result is a tuple of tensors. `attrs` become annotations of the block. The parameters of the
    function name the axes, unless `axis_names` does.

        C = te.compute((m, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    """
    extents = shape_of(shape, name)
    names = _axis_names(fcompute, len(extents), name) if axis_names is None else axis_names
    if len(names) != len(extents):
        raise UserError(f"te.compute {name} has {len(extents)} dimensions, but names {list(names)}")
    axes = tuple(Var(n) for n in names)
    result = fcompute(*axes)
    op = Compute(name, extents, axes, _body(result, f"te.compute {name}"), dict(attrs or {}))
    results = op.results
    if isinstance(result, tuple | list) or len(results) != 1:
        return results
    return results[0]


def _body(result: Any, owner: str) -> tuple[Expr, ...] | Reduction:
    if isinstance(result, Reduction):
        return result
    parts = one_or_several(result)
    if not parts or any(p is None for p in parts):
        raise UserError(f"{owner} has no value: its function returned {result!r}")
    reductions = [p for p in parts if isinstance(p, Reduction)]
    if reductions and len(reductions) == len(parts):
        return joined(reductions, owner)
    if reductions:
        raise UserError(
            f"{owner} returns reductions together with other values",
            remedy="write one te.compute for the reductions and one for the rest",
        )
    return tuple(_scalar(p, owner) for p in parts)


def _scalar(value: Any, owner: str) -> Expr:
    expr = as_expr(value)
    if expr.dtype.is_vector:
        raise UserError(f"{owner} has the vector `{expr}` for an element", remedy="give a scalar")
    return expr


def _axis_names(fcompute: Callable[..., Any], rank: int, name: str) -> list[str]:
    """The names that the function gives its indices; `*i` gives i0, i1, …"""
    parameters = inspect.signature(fcompute).parameters.values()
    named = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    required = [p for p in named if p.default is p.empty]
    if len(required) > rank or (rest is None and len(named) < rank):
        raise UserError(
            f"te.compute {name} has {rank} dimensions, but its function takes "
            f"{len(required)} indices",
            remedy="give the function one parameter for each dimension",
        )
    names = [p.name if p.name.strip("_") else f"i{n}" for n, p in enumerate(named[:rank])]
    return names + [f"{rest}{n}" for n in range(rank - len(names))]
