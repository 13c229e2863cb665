"""Code generation: object code and assembly from lowered functions."""

from tilewright.codegen.link import Data, archive, merge
from tilewright.codegen.llvm import (
    EVENT_WORDS,
    PARAMS,
    Interface,
    Kernel,
    Tensor,
    emit_assembly,
    emit_object,
    generate,
    library_object,
    optimize,
    parse,
    target_machine,
    threadpool_object,
)

__all__ = [
    "EVENT_WORDS",
    "PARAMS",
    "Data",
    "Interface",
    "Kernel",
    "Tensor",
    "archive",
    "emit_assembly",
    "emit_object",
    "generate",
    "library_object",
    "merge",
    "optimize",
    "parse",
    "target_machine",
    "threadpool_object",
]
