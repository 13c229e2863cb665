"""Code generation: object code and assembly from lowered functions."""

from tilewright.codegen.llvm import (
    EVENT_WORDS,
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
