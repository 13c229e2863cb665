"""Helpers for elementwise operators: broadcast types, formulas over `te`, known elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from tilewright.arith import simplify
from tilewright.graph.ir import KNOWN_LIMIT, Array, Value
from tilewright.graph.ir.types import TensorType
from tilewright.graph.sizes.broadcast import broadcast_index, broadcast_shapes
from tilewright.ir import Expr, as_expr
from tilewright.support.errors import UserError
from tilewright.tensor import te

#: Kinds of element types, by the words that messages use.
KINDS: Final[dict[str, frozenset[str]]] = {
    "float": frozenset(["float"]),
    "integer": frozenset(["int", "uint"]),
    "number": frozenset(["float", "int", "uint"]),
    "bool": frozenset(["bool"]),
    "computable": frozenset(["float", "int", "uint", "bool"]),
    "any": frozenset(["float", "int", "uint", "bool", "string"]),
}


def require_kind(kind: str, *values: Value) -> None:
    """Refuse operands of other element types than `kind` allows."""
    for value in values:
        if value.dtype.kind not in KINDS[kind]:
            raise UserError(
                f"{value.name} is {value.dtype}", reason=f"the operator takes {kind} tensors"
            )


def require_same_dtype(*values: Value) -> None:
    """Refuse operands of different element types; nothing is converted silently."""
    if any(v.dtype is not values[0].dtype for v in values):
        raise UserError(
            f"operands have the element types {', '.join(str(v.dtype) for v in values)}",
            remedy="cast them to one type",
        )


def broadcast_type(dtype: object, *values: Value) -> TensorType:
    """The tensor of `dtype` with the shape that the operands broadcast to."""
    return TensorType(dtype, broadcast_shapes(*(v.shape for v in values)))


#: A function of the elements of one, two or three tensors.
Formula = Callable[[Expr], Any] | Callable[[Expr, Expr], Any] | Callable[[Expr, Expr, Expr], Any]


def mapped(
    function: Formula,
    *tensors: te.Tensor,
    shape: Sequence[Expr] | None = None,
    name: str = "elementwise",
) -> te.Tensor:
    """`function` of the elements of all tensors, broadcast against each other or to `shape`."""
    if shape is None:
        shape = broadcast_shapes(*(t.shape for t in tensors))
    apply: Callable[..., Any] = function

    def element(*i: Expr) -> Any:
        return apply(*(t[broadcast_index(t.shape, shape, i)] for t in tensors))

    return te.compute(shape, element, name=name)


def map_known(function: Callable[..., Any], *values: Value) -> Array | None:
    """`function` of known elements, broadcast; None where some are not known."""
    if not all(v.is_known for v in values):
        return None
    arrays = [v.known for v in values]
    try:
        operands = np.broadcast_arrays(*(a for a in arrays if a is not None))
    except ValueError:
        return None
    if operands[0].size > KNOWN_LIMIT:
        return None
    result = np.empty(operands[0].shape, object)
    for index in np.ndindex(result.shape):
        result[index] = simplify(as_expr(function(*(o[index] for o in operands))))
    return result
