"""Code generation: object code and assembly from lowered functions."""

from tilewright.codegen.llvm import (
    Kernel,
    emit_assembly,
    emit_object,
    generate,
    optimize,
    parse,
    target_machine,
    threadpool_object,
)

__all__ = [
    "Kernel",
    "emit_assembly",
    "emit_object",
    "generate",
    "optimize",
    "parse",
    "target_machine",
    "threadpool_object",
]
