"""Copies to shared memory that threads do not wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from tilewright.arith import conjuncts
from tilewright.ir import (
    Broadcast,
    Const,
    Evaluate,
    Expr,
    If,
    Load,
    Ramp,
    Select,
    Stmt,
    Store,
    address_of,
    all_of,
    call,
    const,
    map_stmt,
    select,
)

#: The lengths of asynchronous copies, in bytes.
_LENGTHS: Final = (4, 8, 16)


def asynchronous(stmt: Stmt) -> Stmt:
    """Turn stores of loaded values, in whole words, into asynchronous copies."""
    return map_stmt(stmt, lambda s: _copy(s) if isinstance(s, Store) else None)


def _copy(store: Store) -> Stmt | None:
    value = store.value
    conditions, others = list[Expr](), list[Expr]()
    while isinstance(value, Select) and not value.condition.dtype.is_vector:
        conditions += conjuncts(value.condition)
        others.append(value.b)
        value = value.a
    if not isinstance(value, Load) or store.mask is not None or not _is_whole(value, conditions):
        return None
    (to,), (source,) = store.indices, value.indices
    length = store.buffer.dtype.itemsize * value.dtype.lanes
    is_same = store.buffer.dtype == value.buffer.dtype
    if not is_same or length not in _LENGTHS or None in (first := [_first(to), _first(source)]):
        return None
    places = [
        address_of(Load(b, (at,)))
        for b, at in zip((store.buffer, value.buffer), first, strict=True)
        if at is not None
    ]
    if all(map(_is_zero, others)):
        read = select(all_of(*conditions), const(length), const(0)) if conditions else const(length)
        return Evaluate(call("async_copy", *places, const(length), read))
    if not all(map(_is_number, others)):
        return None
    # A border value other than zero, such as a zero point, is written synchronously.
    copy = Evaluate(call("async_copy", *places, const(length), const(length)))
    return If(all_of(*conditions), copy, replace(store, value=_without_load(store.value)))


def _without_load(value: Expr) -> Expr:
    """The value that is selected where no element is read."""
    if isinstance(value, Select) and isinstance(value.a, Select):
        return select(value.condition, _without_load(value.a), value.b)
    assert isinstance(value, Select)
    return value.b


def _is_whole(load: Load, conditions: Sequence[Expr]) -> bool:
    """Whether a load reads all of its lanes wherever it is selected."""
    mask = load.mask.a if isinstance(load.mask, Broadcast) else load.mask
    return mask is None or {*conjuncts(mask)} <= {*conditions}


def _first(index: Expr) -> Expr | None:
    """The first of contiguous indices; None if they are not contiguous."""
    if isinstance(index, Ramp):
        return index.base if index.stride is const(1) else None
    return None if index.dtype.is_vector else index


def _is_zero(value: Expr) -> bool:
    scalar = value.a if isinstance(value, Broadcast) else value
    return (
        isinstance(scalar, Const)
        and not np.any(np.asarray(scalar.value))
        and not (np.signbit(float(scalar.value)))
    )


def _is_number(value: Expr) -> bool:
    return isinstance(value.a if isinstance(value, Broadcast) else value, Const)
