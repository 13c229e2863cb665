"""Which device runs code for a kind of target; devices are found when they are asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from tilewright.runtime.device import CPU, Device
from tilewright.support import libcuda

#: By kind of target, the module whose `DEVICE` it is; the CPU for all others.
_MODULES: Final = {
    "cuda": "tilewright.runtime.gpu.cuda",
    "simt": "tilewright.simt.device",
}


def device_for(kind: str) -> Device:
    """The device of this machine that runs code for a kind of target."""
    return import_module(_MODULES[kind]).DEVICE if kind in _MODULES else CPU


def why_no_device(target: str) -> str:
    """The reason why no device of this machine runs code for a target; empty where one does."""
    kind, *words = target.split() or [""]
    if kind != "cuda":
        return ""
    if reason := libcuda.why_no_driver():
        return f"it is for an NVIDIA GPU, and {reason}"
    here = libcuda.attribute(libcuda.MAJOR), libcuda.attribute(libcuda.MINOR)
    named = (w.removeprefix("-arch=") for w in words if w.startswith("-arch="))
    wanted = next(named, "no GPU by name")
    if libcuda.runs(wanted, here):
        return ""
    return f"it is for {wanted}, and the GPU of this machine is sm_{here[0]}{here[1]}"
