"""A kernel at every level: loops as defined, as scheduled, the back end's language, assembly."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import Function
from tilewright.kernels.pipeline import DEFAULTS, Options, stages_of
from tilewright.support.denormals import Denormals
from tilewright.target import Target


@dataclass(frozen=True)
class Levels:
    """One kernel at each stage of the pipeline, as text."""

    name: str
    loops: str
    scheduled: str
    #: The code in the language of the target's back end: LLVM IR, or C.
    code: str
    asm: str


def kernel_levels(
    function: Function,
    target: Target,
    denormals: Denormals = "flush",
    scheduler: str = DEFAULTS.scheduler,
) -> Levels:
    """All levels of a kernel of a model; `scheduler` is the key of its scheduler."""
    made = stages_of(function, target, Options(denormals=denormals, scheduler=scheduler))
    code = made.code
    asm = "\n".join(filter(None, (code.assembly(), code.machine_code())))
    return Levels(function.name, str(function), str(made.scheduled), code.text(), asm)
