"""Kinds of targets: the first word of a target's text, and what depends on it.

    llvm    a CPU, with code by LLVM
    c       a CPU, with code in portable C for any compiler
    cuda    an NVIDIA GPU with its host CPU: code of both by LLVM
    simt    the same, run by our own executor, which detects races: for tests without a GPU

A kind determines the back end (`codegen.backends`), the device whose rules schedule its loops
(`schedule.rules`), and the features of that device that loops may use, which `verify_for` checks
before lowering.
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
    #: The device whose parameters and scheduling rules apply.
    device: str
    #: The back end that generates its code.
    backend: str
    #: The memory scopes of buffers.
    scopes: tuple[str, ...]
    #: Thread axes that loops can be bound to; parallel loops need none.
    thread_axes: tuple[str, ...] = ()
    #: Whether code may use instructions beyond the architecture's baseline.
    uses_features: bool = True
    #: Whether code sets the treatment of denormals, on architectures that can.
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
    """Refuse a scheduled function that uses what the target's kind does not have."""
    # Imported here, as loading a saved model uses kinds without loops.
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
