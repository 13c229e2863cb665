"""Code generation through LLVM: all native targets, and the thread pool."""

from tilewright.codegen.llvm.kernel import Kernel, generate
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
    "Kernel",
    "emit_assembly",
    "emit_object",
    "generate",
    "optimize",
    "parse",
    "target_machine",
    "threadpool_object",
]
