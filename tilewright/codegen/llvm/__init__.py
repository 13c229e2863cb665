"""Code generation through LLVM: all native targets, and the thread pool."""

from tilewright.codegen.llvm.kernel import Kernel, generate
from tilewright.codegen.llvm.library import PARAMS, Interface, Tensor, library_object
from tilewright.codegen.llvm.machine import (
    emit_assembly,
    emit_object,
    optimize,
    parse,
    target_machine,
)
from tilewright.codegen.llvm.profile import EVENT_WORDS
from tilewright.codegen.llvm.threadpool import threadpool_object

__all__ = [
    "EVENT_WORDS",
    "PARAMS",
    "Interface",
    "Kernel",
    "Tensor",
    "emit_assembly",
    "emit_object",
    "generate",
    "library_object",
    "optimize",
    "parse",
    "target_machine",
    "threadpool_object",
]
