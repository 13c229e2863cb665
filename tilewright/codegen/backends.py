"""The table of back ends."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from tilewright.codegen.backend import Backend
from tilewright.target import Target

#: By name, the module whose `BACKEND` it is; imported when it is asked for.
_MODULES: Final = {
    "llvm": "tilewright.codegen.llvm.backend",
    "c": "tilewright.codegen.c.backend",
    "cuda": "tilewright.codegen.cuda.backend",
    "simt": "tilewright.codegen.simt.backend",
}


def backend_of(target: Target) -> Backend:
    """The back end that makes code for a target."""
    return import_module(_MODULES[target.kind.backend]).BACKEND
