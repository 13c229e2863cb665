"""Which device runs code for a kind of target; devices are found when they are asked for."""

from __future__ import annotations

from tilewright.runtime.device import CPU, Device
from tilewright.support import libcuda


def device_for(kind: str) -> Device:
    """The device of this machine that runs code for a kind of target."""
    if kind != "cuda":
        return CPU
    from tilewright.runtime.gpu.cuda import cuda

    return cuda()


def why_no_device(target: str) -> str:
    """The reason why no device of this machine runs code for a target; empty where one does."""
    kind, *words = target.split()
    if kind != "cuda":
        return ""
    if reason := libcuda.why_no_driver():
        return f"it is for an NVIDIA GPU, and {reason}"
    here = libcuda.attribute(libcuda.MAJOR), libcuda.attribute(libcuda.MINOR)
    wanted = next(w.removeprefix("-arch=") for w in words if w.startswith("-arch="))
    if libcuda.runs(wanted, here):
        return ""
    return f"it is for {wanted}, and the GPU of this machine is sm_{here[0]}{here[1]}"
