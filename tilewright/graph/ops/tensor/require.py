"""Conditions on symbolic dimensions, kept where the operator that had them is gone."""

from __future__ import annotations

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dims, Ints, Strings
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import Type, known_dim
from tilewright.graph.ops.elementwise.elementwise import mapped
from tilewright.graph.sizes.agreement import ask
from tilewright.ir import as_expr
from tilewright.support.errors import UserError
from tilewright.tensor import te


@op(view=True)
def require(x: Value, *, conditions: Dims, messages: Strings) -> Type:
    """`x`, if all conditions hold; else the program stops with the message of one that fails.

    Numbers that do not meet a condition are refused there and then.
    """
    if len(conditions) != len(messages):
        raise UserError(f"{len(conditions)} conditions have {len(messages)} messages")
    for condition, message in zip(conditions, messages, strict=True):
        if known_dim(condition) == 0:
            raise UserError(message)
        ask(as_expr(condition), message)
    return x.type


@require.reference
def require_reference(x: Array, *, conditions: Ints, messages: Strings) -> Array:
    for holds, message in zip(conditions, messages, strict=True):
        if not holds:
            raise UserError(message)
    return x


@require.compute
def require_compute(x: te.Tensor, *, conditions: Dims, messages: Strings) -> te.Tensor:
    del conditions, messages
    return mapped(lambda e: e, x, name="require")


@require.symbolic
def require_symbolic(x: Value, *, conditions: Dims, messages: Strings) -> Array | None:
    del conditions, messages
    return x.known
