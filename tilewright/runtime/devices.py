"""The device for each kind of target, imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from tilewright.runtime.device import CPU, Device
from tilewright.support import libcuda

#: The modules that define `DEVICE`, by kind of target; all other kinds use the CPU.
_MODULES: Final = {
    "cuda": "tilewright.runtime.gpu.cuda",
    "simt": "tilewright.simt.device",
}


def device_for(kind: str) -> Device:
    """This machine's device for a kind of target."""
    return import_module(_MODULES[kind]).DEVICE if kind in _MODULES else CPU


def why_no_device(target: str) -> str:
    """The reason why no device here can run code for a target; empty if one can."""
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
