"""GPU kernels as loops, which the executor in `tilewright.simt` runs, launched as on a GPU.

All but the kernels' code is CUDA's, so that schedules, passes, host programs and the runtime can be
tested without a GPU.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from tilewright.arith import Ranges, simplify
from tilewright.codegen.convention import size_in_bytes
from tilewright.codegen.cuda.backend import CudaBackend, image_of
from tilewright.ir import Alloc, Buffer, Function, function_text, replace_buffers, threads_of, walk
from tilewright.lower import MERGED, OVERLAPS, access_of
from tilewright.target import Target


class _Loops(NamedTuple):
    name: str
    threads: tuple[int, int, int]
    access: tuple[str, ...] | None
    stands_for: int
    shared: int = 0
    messages: tuple[str, ...] = ()
    # The executor detects by itself that blocks wait for each other.
    is_cooperative: bool = False
    waits: bool = False


class SimtBackend(CudaBackend):
    """Kernels as the text of loops."""

    name = "simt"

    def tools(self) -> str:
        return ""

    def images(self, kernel: Function, target: Target) -> tuple[bytes, ...]:
        del target
        text = function_text(_one_dimensional(kernel))
        access = access_of(kernel) if OVERLAPS in kernel.attrs else None
        stands_for = kernel.attrs.get(MERGED, 1)
        head = _Loops(kernel.name, threads_of(kernel.body), access, stands_for)
        return (image_of(head, text),)


def _one_dimensional(kernel: Function) -> Function:
    """A kernel with one-dimensional buffers, matching its accesses, so that its text parses."""
    inner = [b for s in walk(kernel.body) if isinstance(s, Alloc) for b in s.buffers]
    ranges = Ranges.for_function(kernel)
    flat = {b: _flat(b, ranges) for b in (*kernel.buffers, *inner) if b.ndim != 1}
    params = tuple(flat.get(p, p) if isinstance(p, Buffer) else p for p in kernel.params)
    return replace(kernel, params=params, attrs={}, body=replace_buffers(kernel.body, flat))


def _flat(buffer: Buffer, ranges: Ranges) -> Buffer:
    elements = simplify(size_in_bytes(buffer, ranges) // buffer.dtype.itemsize, ranges)
    return Buffer(buffer.name, buffer.dtype, (elements,), scope=buffer.scope)


BACKEND: Final = SimtBackend()
