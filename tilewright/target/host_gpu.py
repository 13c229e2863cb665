"""Detects this machine's GPU by NVIDIA's driver."""

from __future__ import annotations

from functools import cache

from tilewright.support import libcuda
from tilewright.support.errors import UserError
from tilewright.target.gpus import GPUS


@cache
def host_gpu() -> str:
    """The architecture of this machine's GPU, or the nearest older described one."""
    reason = libcuda.why_no_driver() or ("" if libcuda.devices() else "the driver has no GPU")
    if reason:
        raise UserError(
            "target 'cuda' without -arch is the GPU of this machine",
            reason=reason,
            remedy="name the GPU to compile for, such as 'cuda -arch=sm_90a'",
        )
    here = libcuda.attribute(libcuda.MAJOR), libcuda.attribute(libcuda.MINOR)
    return nearest_gpu(here)


def nearest_gpu(capability: tuple[int, int]) -> str:
    """The newest described architecture whose code runs on a device of this capability."""
    able = [gpu for gpu in GPUS.values() if libcuda.runs(gpu.name, capability)]
    if not able:
        oldest = next(iter(GPUS))
        raise UserError(
            "the GPU of this machine is too old",
            reason=f"its architecture is sm_{capability[0]}{capability[1]}",
            remedy=f"{oldest} and later are supported",
        )
    return max(able, key=lambda gpu: (gpu.capability, len(gpu.name))).name
