"""Exported libraries: generated C functions around a compiled model."""

from __future__ import annotations

from tilewright.codegen.interface import Interface
from tilewright.codegen.llvm.functions import Library
from tilewright.codegen.llvm.library.dlpack import emit_dlpack
from tilewright.codegen.llvm.library.firmware import firmware_object, memory_functions_object
from tilewright.codegen.llvm.library.run import emit_run
from tilewright.codegen.llvm.library.state import emit_request_amx, emit_state
from tilewright.codegen.llvm.machine import emit_object, plain_machine

__all__ = ["firmware_object", "library_object", "memory_functions_object"]


def library_object(model: Interface, triple: str) -> bytes:
    """Object code of the functions that `model.exported` names.

    It calls the program's and the thread pool's functions, and refers to the parameters by the name
    `PARAMS`; all these are defined in other objects.
    """
    library = Library(f"tilewright.library.{model.prefix}", triple)
    # Callees come before their callers.
    emit_state(library)
    if model.may_use_amx:
        emit_request_amx(library)
    emit_run(library, model)
    if model.takes_dlpack:
        emit_dlpack(library, model)
    return emit_object(str(library.module), plain_machine(triple))
