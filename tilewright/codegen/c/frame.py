"""One C function under construction: its names, its memory, its exit.

`Unit` is the translation unit that all functions of a kernel go into.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tilewright.arith import simplify
from tilewright.codegen.c.expr import emit
from tilewright.codegen.c.inline_functions import Key, inline_name
from tilewright.codegen.c.types import Names, c_type, memory_type
from tilewright.codegen.convention import (
    ERROR,
    MAX_MESSAGE_VALUES,
    OUT_OF_MEMORY,
    STACK_LIMIT,
    WORKSPACE,
    Workspace,
    most_bytes,
    require_known,
    size_in_bytes,
)
from tilewright.ir import Buffer, Call, DType, Expr, Var
from tilewright.support.errors import InternalError
from tilewright.support.memory import ALIGNMENT


def declared_type(expr: Expr) -> str:
    """The type of an operand: addresses are pointers."""
    is_address = isinstance(expr, Call) and expr.name == "address_of"
    return "void *" if is_address else c_type(expr.dtype)


@dataclass
class Unit:
    """The parts of a source file: inline functions it uses, declarations, functions."""

    inline_functions: set[Key] = field(default_factory=set[Key])
    declarations: list[str] = field(default_factory=list[str])
    functions: list[str] = field(default_factory=list[str])

    def declare(self, text: str) -> None:
        if text not in self.declarations:
            self.declarations.append(text)


class CFrame:
    """A function under construction; `is_main` for the kernel itself, not a loop's body."""

    def __init__(
        self, unit: Unit, name: str, workspace: Workspace, messages: list[str], *, is_main: bool
    ) -> None:
        self.unit, self.name, self.workspace, self.messages = unit, name, workspace, messages
        self.is_main = is_main
        self.names = Names()
        self.lines: list[str] = []
        self._depth = 1
        self._values: dict[Var, str] = {}
        self._addresses: dict[Buffer, str] = {}
        self._stack_used = 0
        self._heap: list[str] = []
        self._leaves = False
        #: The variables known when the function starts, on which sizes may depend.
        self.known: frozenset[Var] = frozenset()
        #: For each kernel that can fail, the offset of its messages in the table.
        self.first_messages: dict[str, int] = {}
        #: For kernels with shared code, its name and its leading size arguments.
        self.shared: dict[str, tuple[str, tuple[int, ...]]] = {}
        #: Number of kernel calls so far, and whether each is recorded.
        self.calls, self.profiled = 0, False
        #: The variables of numbered heap blocks and lists.
        self.blocks: dict[int, str] = {}
        self.lists: dict[int, str] = {}

    # ---- text -----------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("  " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Generator[None]:
        """`head { … }`."""
        self.line(f"{head} {{".strip())
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    def value(self, expr: Expr, *, as_index: bool = False) -> str:
        return emit(self, expr, as_index=as_index)

    def named(self, dtype: DType, text: str, hint: str = "t") -> str:
        """Give a value a name."""
        name = self.names.new(hint)
        self.line(f"const {c_type(dtype)} {name} = {text};")
        return name

    def inline(self, key: Key, *args: str) -> str:
        """A call of an inline function."""
        self.unit.inline_functions.add(key)
        return f"{inline_name(key)}({', '.join(args)})"

    # ---- names ----------------------------------------------------------------------------------

    def bind(self, var: Var, name: str) -> None:
        self._values[var] = name

    def variable(self, var: Var) -> str:
        if var not in self._values:
            raise InternalError(f"variable {var.name} has no value while code is generated")
        return self._values[var]

    def place(self, buffer: Buffer, name: str) -> None:
        self._addresses[buffer] = name

    def buffer(self, buffer: Buffer) -> str:
        if buffer not in self._addresses:
            raise InternalError(f"buffer {buffer.name} has no address while code is generated")
        return self._addresses[buffer]

    def knows(self, item: Var | Buffer) -> bool:
        return item in self._values or item in self._addresses

    # ---- memory ---------------------------------------------------------------------------------

    def allocate(self, buffer: Buffer) -> None:
        """Give `buffer` an address."""
        size, kind = size_in_bytes(buffer, self.workspace.ranges), memory_type(buffer.dtype)
        name = self.names.new(buffer.name)
        wants_stack = buffer.scope == "local" or not self.is_main
        most = most_bytes(size, self.workspace.ranges) if wants_stack else None
        if most is not None and self._fits_stack(most):
            count = max(1, -(-most // buffer.dtype.itemsize))
            self.line(f"{kind} {name}[{count}];")
        elif self.is_main:
            offset = self.value(self.workspace.place(buffer), as_index=True)
            base = f"(char *)(uintptr_t)env[{WORKSPACE}]"
            self.line(f"{kind} *const {name} = ({kind} *)({base} + {offset});")
        else:
            require_known(buffer, size, self.known)
            self.line(f"{kind} *const {name} = ({kind} *){self._from_heap(size)};")
        self.place(buffer, name)

    def _fits_stack(self, size: int) -> bool:
        if self._stack_used + size > STACK_LIMIT:
            return False
        self._stack_used += size
        return True

    def _from_heap(self, size: Expr) -> str:
        """Memory for a buffer too large for a worker's stack: one block for all its iterations."""
        slot = self.heap_slot()
        with self.block(f"if ({slot} == NULL)"):
            amount = self.named(size.dtype, self.value(simplify(size + ALIGNMENT)), "bytes")
            self.line(f"{slot} = malloc((size_t){amount});")
            with self.block(f"if ({slot} == NULL)"):
                self.fail(OUT_OF_MEMORY, [amount])
        return slot

    def heap_slot(self) -> str:
        """A pointer, initially null, that is freed at the end."""
        slot = self.names.new("heap")
        self._heap.append(slot)
        return slot

    def heap_block(self, number: int) -> str:
        """The variable that holds the address of a numbered heap block."""
        if number not in self.blocks:
            self.blocks[number] = self.heap_slot()
        return self.blocks[number]

    def list_slot(self, number: int) -> str:
        """The variable that holds the address of a numbered list, which is released at the end."""
        if number not in self.lists:
            self.lists[number] = self.names.new("list")
        return self.lists[number]

    # ---- leaving --------------------------------------------------------------------------------

    def fail(self, message: str, values: Sequence[str]) -> None:
        """Write the error record and leave the function."""
        self.messages.append(message)
        code = len(self.messages)
        self.line(f"uint64_t *const error = (uint64_t *)(uintptr_t)env[{ERROR}];")
        self.line(f"error[0] = {code};")
        for k, value in enumerate(values[:MAX_MESSAGE_VALUES], start=1):
            self.line(f"error[{k}] = (uint64_t){value};")
        self.leave(str(code))

    def leave(self, status: str) -> None:
        """Jump to the exit; functions on other threads have no status besides the error record."""
        if self.is_main:
            self.line(f"status = {status};")
        self.line("goto leave;")
        self._leaves = True

    def leave_if_failed(self) -> None:
        """After an outlined loop: leave if one of its iterations failed."""
        with self.block(f"if (*(const uint64_t *)(uintptr_t)env[{ERROR}] != 0)"):
            self.leave(f"(int32_t)*(const uint64_t *)(uintptr_t)env[{ERROR}]")

    def finished(self, head: str, first: Sequence[str] = ()) -> str:
        """The whole function."""
        begin = [f"  void *{slot} = NULL;" for slot in self._heap]
        begin += [f"  uint64_t *{slot} = NULL;" for slot in self.lists.values()]
        end = ["leave:"] if self._leaves else []
        end += [f"  free({slot});" for slot in self._heap]
        end += [f"  tw_list_release({slot});" for slot in self.lists.values()]
        if self.is_main:
            begin.append("  int32_t status = 0;")
            end.append("  return status;")
        elif self._leaves:
            end.append("  return;")
        return "\n".join([f"{head} {{", *begin, *first, *self.lines, *end, "}"]) + "\n"
