"""Runs a loop function whose loops are bound to the threads of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from tilewright.ir import Buffer, Function, Var
from tilewright.simt.lanes import Array
from tilewright.simt.machine import Machine
from tilewright.simt.memory import Memory
from tilewright.support.errors import UserError


def run(function: Function, arguments: Sequence[Any]) -> None:
    """Run a lowered function: host statements once, launches for all threads.

    `arguments` are NumPy arrays (written in place) and numbers: the function's parameters, then its
    symbolic dimensions, which may be left out if the shapes of arrays determine them.
    """
    machine = Machine(function)
    with np.errstate(all="ignore"):
        _bind(function, machine, arguments)
        machine.stmt(function.body)(None)


def _bind(function: Function, machine: Machine, arguments: Sequence[Any]) -> None:
    wanted = [*function.params, *function.dims]
    if not len(function.params) <= len(arguments) <= len(wanted):
        raise UserError(
            f"{function.name} was given {len(arguments)} arguments",
            reason=f"it takes {', '.join(p.name for p in wanted)}",
        )
    given = dict(zip(wanted, arguments, strict=False))
    arrays = {p: _array(function, p, a) for p, a in given.items() if isinstance(p, Buffer)}
    for param, value in given.items():
        if isinstance(param, Var):
            machine.env[param] = np.array(value, param.dtype.numpy)
    for buffer, array in arrays.items():
        _bind_dims(machine, buffer, array)
    for dim in function.dims:
        if dim not in machine.env:
            raise UserError(f"{function.name} does not know {dim.name}", remedy="pass it")
    for buffer, array in arrays.items():
        machine.memories[buffer] = _memory(function, machine, buffer, array)


def _array(function: Function, buffer: Buffer, value: Any) -> Array:
    if not isinstance(value, np.ndarray):
        raise UserError(f"{function.name} takes a NumPy array for {buffer.name}")
    array = cast(Array, value)
    if array.dtype != buffer.dtype.numpy or not array.flags.c_contiguous:
        raise UserError(
            f"{function.name} cannot take this array for {buffer.name}",
            reason=f"it is {array.dtype}"
            + ("" if array.flags.c_contiguous else " with gaps or transposed"),
            remedy=f"pass a contiguous array of {buffer.dtype.numpy}",
        )
    return array


def _bind_dims(machine: Machine, buffer: Buffer, array: Array) -> None:
    """Take dimensions that are plain variables from the shape of an array of the buffer's rank."""
    if array.ndim != buffer.ndim:
        return
    for dim, extent in zip(buffer.shape, array.shape, strict=True):
        if isinstance(dim, Var):
            machine.env.setdefault(dim, np.array(extent, dim.dtype.numpy))


def _memory(function: Function, machine: Machine, buffer: Buffer, array: Array) -> Memory:
    size = machine.size(buffer)
    if array.size != size:
        raise UserError(
            f"{function.name} cannot take this array for {buffer.name}",
            reason=f"it has {array.size} elements, not {size}",
        )
    return Memory(buffer, size, given=array.reshape(-1))
