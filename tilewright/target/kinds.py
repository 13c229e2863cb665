"""Kinds of targets: the word that a target's text begins with, and what hangs on it.

    llvm    a processor, whose code LLVM makes
    c       a processor, whose code is portable C for any compiler
    cuda    an NVIDIA GPU beside a processor: LLVM makes the code of both
    simt    the same, run by an executor of our own that finds races: for tests, without a GPU

A kind names the back end that makes its code (`codegen.backends`), the device whose rules schedule
its loops (`schedule.rules`), and what loops may ask of that device, which `verify_for` checks
before anything is lowered.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.ir import Buffer, Function
    from tilewright.target.target import Target


@dataclass(frozen=True)
class TargetKind:
    """One kind of target."""

    name: str
    #: Whose machine figures and scheduling rules it goes by.
    device: str
    #: The back end that makes its code.
    backend: str
    #: Where buffers can live.
    scopes: tuple[str, ...]
    #: Axes of threads that loops can be bound to; parallel loops need none.
    thread_axes: tuple[str, ...] = ()
    #: Whether code may use instructions beyond those that all processors of the architecture have.
    uses_features: bool = True
    #: Whether threads can be told to treat denormals as zeros, on architectures that can.
    sets_float_state: bool = True


#: The axes of a grid of blocks of threads.
GRID: Final = tuple(f"{level}.{axis}" for level in ("blockIdx", "threadIdx") for axis in "xyz")

KINDS: Final = {
    kind.name: kind
    for kind in (
        TargetKind("llvm", "cpu", "llvm", scopes=("global", "local", "tile")),
        TargetKind(
            "c",
            "cpu",
            "c",
            scopes=("global", "local"),
            uses_features=False,
            sets_float_state=False,
        ),
        *(
            TargetKind(
                name,
                "gpu",
                name,
                scopes=("global", "shared", "local"),
                thread_axes=GRID,
                sets_float_state=False,
            )
            for name in ("cuda", "simt")
        ),
    )
}


def verify_for(function: Function, target: Target) -> None:
    """Refuse a scheduled function that asks for what the target's kind does not have."""
    # Loading a saved model asks for kinds, and knows nothing of loops.
    from tilewright.ir import Alloc, For, walk

    kind = target.kind
    for buffer in function.buffers:
        _require_scope(function, buffer, kind)
    for stmt in walk(function.body):
        if isinstance(stmt, For) and stmt.kind == "thread" and stmt.axis not in kind.thread_axes:
            raise UserError(
                f"cannot build {function.name} for target {kind.name!r}: loop {stmt.var.name} is"
                f" bound to {stmt.axis}",
                reason=f"a {kind.device} has no such axis of threads",
                remedy="make the loop parallel, or build for a target that has it",
            )
        if isinstance(stmt, Alloc):
            for buffer in stmt.buffers:
                _require_scope(function, buffer, kind)


def _require_scope(function: Function, buffer: Buffer, kind: TargetKind) -> None:
    if buffer.scope not in kind.scopes:
        raise UserError(
            f"cannot build {function.name} for target {kind.name!r}: buffer {buffer.name} is in"
            f" scope {buffer.scope!r}",
            reason=f"a {kind.device} has no such memory for code of this kind",
            remedy=f"use {' or '.join(repr(s) for s in kind.scopes)}",
        )
