"""Code generation: back ends, which turn lowered functions into code, and the linking of files."""

from tilewright.codegen.backend import Backend, Code
from tilewright.codegen.backends import backend_of
from tilewright.codegen.convention import EVENT_WORDS, OUT_OF_MEMORY, arena_name, numbers_of
from tilewright.codegen.interface import PARAMS, Interface, Tensor
from tilewright.codegen.link import DataSymbol, Member, archive, members, merge

__all__ = [
    "EVENT_WORDS",
    "OUT_OF_MEMORY",
    "PARAMS",
    "Backend",
    "Code",
    "DataSymbol",
    "Interface",
    "Member",
    "Tensor",
    "archive",
    "arena_name",
    "backend_of",
    "members",
    "merge",
    "numbers_of",
]
