"""Faults of a single expression: numbers of indices, types, lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tilewright.ir.buffer import Buffer
from tilewright.ir.expr import Binary, Broadcast, Call, Expr, Load, Ramp, Unary
from tilewright.ir.intrinsics import find_intrinsic


def node_faults(node: Expr) -> Iterator[str]:
    """Faults of this node itself; its operands are checked separately."""
    check = _CHECKS.get(type(node))
    return check(node) if check else iter(())


def access_faults(buffer: Buffer, indices: Sequence[Expr], mask: Expr | None) -> Iterator[str]:
    """Faults of an access to an element of `buffer`."""
    if len(indices) != buffer.ndim:
        dims = "1 dimension" if buffer.ndim == 1 else f"{buffer.ndim} dimensions"
        yield f"{buffer.name} has {dims} but {len(indices)} indices"
    lanes = access_lanes(indices)
    for i in indices:
        if not i.dtype.is_integer:
            yield f"the index `{i}` of {buffer.name} is {i.dtype}, not an integer"
        elif i.dtype.lanes not in (1, lanes):
            yield f"the index `{i}` of {buffer.name} has {i.dtype.lanes} lanes, another {lanes}"
    if mask is not None and not (mask.dtype.is_bool and mask.dtype.lanes == lanes):
        wanted = "bool" if lanes == 1 else f"boolx{lanes}"
        yield f"the mask `{mask}` of {buffer.name} is {mask.dtype}, not {wanted}"


def access_lanes(indices: Sequence[Expr]) -> int:
    return max((i.dtype.lanes for i in indices), default=1)


def _load(node: Load) -> Iterator[str]:
    return access_faults(node.buffer, node.indices, node.mask)


def _arithmetic(node: Unary | Binary) -> Iterator[str]:
    operand = node.operands[0]
    if operand.dtype.is_storage_only:
        yield (
            f"{node.op} computes with `{operand}`, which is {operand.dtype}: "
            "such types are only stored and converted; cast it first"
        )


def _call(node: Call) -> Iterator[str]:
    intrinsic = find_intrinsic(node.name)
    if intrinsic is None:
        yield f"{node.name} is no known intrinsic"
        return
    if intrinsic.arity is not None and len(node.args) != intrinsic.arity:
        yield f"{node.name} takes {intrinsic.arity} operands, not {len(node.args)}"
    if node.name == "address_of" and not isinstance(node.args[0], Load):
        yield f"address_of takes an element of a buffer, not `{node.args[0]}`"
    if intrinsic.accepts != "any":
        yield from (
            f"{node.name} computes with `{a}`, which is {a.dtype}; cast it first"
            for a in node.args
            if a.dtype.is_storage_only
        )


def _ramp(node: Ramp) -> Iterator[str]:
    if not node.base.dtype.is_integer or node.base.dtype is not node.stride.dtype:
        yield f"`{node}` needs a base and a stride of one integer type"
    if node.base.dtype.is_vector or not node.dtype.is_vector:
        yield f"`{node}` needs a scalar base and two lanes or more"


def _broadcast(node: Broadcast) -> Iterator[str]:
    if node.a.dtype.is_vector or not node.dtype.is_vector:
        yield f"`{node}` needs a scalar and two lanes or more"


_CHECKS: dict[type[Expr], Callable[[Any], Iterator[str]]] = {
    Load: _load,
    Unary: _arithmetic,
    Binary: _arithmetic,
    Call: _call,
    Ramp: _ramp,
    Broadcast: _broadcast,
}
