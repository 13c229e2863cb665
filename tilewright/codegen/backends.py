"""The table of back ends."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from tilewright.codegen.backend import Backend
from tilewright.target import Target

#: The module of each back end, which defines `BACKEND`; imported on first use.
_MODULES: Final = {
    "llvm": "tilewright.codegen.llvm.backend",
    "c": "tilewright.codegen.c.backend",
    "cuda": "tilewright.codegen.cuda.backend",
    "simt": "tilewright.codegen.simt.backend",
}


def backend_of(target: Target) -> Backend:
    """The back end that generates code for a target."""
    return import_module(_MODULES[target.kind.backend]).BACKEND
