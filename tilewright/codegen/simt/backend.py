"""GPU kernels as loops: what the executor in `tilewright.simt` runs, launched as on a GPU.

Everything up to the kernels themselves is CUDA's, so that schedules, passes, host programs and the
runtime are tested where there is no GPU.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.codegen.cuda.backend import CudaBackend, image_of
from tilewright.ir import Function, function_text
from tilewright.lower import threads_of
from tilewright.target import Target


class _Loops(NamedTuple):
    name: str
    threads: tuple[int, int, int]
    shared: int = 0
    messages: tuple[str, ...] = ()


class SimtBackend(CudaBackend):
    """Kernels in the text form of loops."""

    name = "simt"

    def images(self, kernel: Function, target: Target) -> tuple[bytes, ...]:
        del target
        return (image_of(_Loops(kernel.name, threads_of(kernel)), function_text(kernel)),)


BACKEND: Final = SimtBackend()
