"""The calling convention of compiled functions, common to all back ends.

A kernel `NAME` takes its buffers and scalars in order, then its symbolic dimensions, then `env`:
the address of three words of eight bytes, which hold the thread pool, the workspace for
intermediate buffers, and the error record. The record holds the number of the message, up to four
integers for it, and, where the kernel calls others, the number of the failed call, counted from 1.
The kernel returns the number of the message; 0 means success. Two more functions are defined:
    NAME.entry      the kernel for callers that can only pass one pointer: to an array of words
                    with the arguments in order, then the three words of `env`
    NAME.workspace  the size of the workspace in bytes, from the same array of words

On machines without an operating system, functions are called by their own signatures alone, and the
workspace of a program is a static array, `NAME.arena`.

A function that calls kernels lists them in its attribute `kernels`, with the messages of each.
Kernels that share code are in its attribute `shared`, with the name of the code and the sizes that
are its leading arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tilewright.arith import Ranges, bounds, simplify
from tilewright.ir import Buffer, Expr, Function, Param, Var, const, free_vars
from tilewright.support.errors import UserError
from tilewright.support.memory import ALIGNMENT

#: The indices of the words of an `env`.
POOL, WORKSPACE, ERROR = range(3)
MAX_MESSAGE_VALUES: Final = 4
#: The message of a kernel that cannot allocate a buffer on the heap.
OUT_OF_MEMORY: Final = "out of memory: {} bytes are needed"
#: Most bytes of buffers on a thread's stack.
STACK_LIMIT: Final = 1 << 20

#: A profiled program writes an event for each call: its number, its start and end time, and the
#: numbers that the kernel was called with, as far as there is room.
EVENT_NUMBERS: Final = 13
EVENT_WORDS: Final = 3 + EVENT_NUMBERS


def parameters(function: Function) -> list[Param]:
    """The kernel's parameters before `env`: the function's parameters, then its dimensions."""
    return [*function.params, *function.dims]


def numbers_of(function: Function) -> list[Var]:
    """The kernel's numeric parameters: its scalars, then its dimensions."""
    return [p for p in parameters(function) if isinstance(p, Var)]


def in_place(function: Function) -> list[Buffer]:
    """The operands that may be overwritten, and the result; empty where there are none."""
    numbers = function.attrs.get("in_place", ())
    buffers = function.buffers
    return [*(buffers[k] for k in numbers), buffers[-1]] if numbers else []


def adopt_messages(function: Function, messages: list[str]) -> dict[str, int]:
    """Append the messages of all kernels to the table; returns the first number of each."""
    first: dict[str, int] = {}
    for name, own in function.attrs.get("kernels", {}).items():
        if own:
            first[name] = len(messages)
            messages.extend(own)
    return first


def code_called(function: Function) -> dict[str, tuple[str, tuple[int, ...]]]:
    """For each kernel with shared code, the name of the code and its leading size arguments."""
    shared: Mapping[str, Sequence[Any]] = function.attrs.get("shared", {})
    return {kernel: (name, tuple(sizes)) for kernel, (name, *sizes) in shared.items()}


def arena_name(program: str) -> str:
    """The name of the static array that is the workspace of a program."""
    return f"{program}.arena"


def is_host_program(function: Function) -> bool:
    """Whether the function calls kernels."""
    return "kernels" in function.attrs


class Workspace:
    """Memory that the caller provides for intermediate buffers, stored one after the other."""

    def __init__(self, dims: Sequence[Var] = (), ranges: Ranges | None = None) -> None:
        self.dims = frozenset(dims)
        #: Known ranges of sizes.
        self.ranges = Ranges() if ranges is None else ranges
        self.size: Expr = const(0)
        self._placed: dict[Buffer, Expr] = {}

    @staticmethod
    def of(function: Function) -> Workspace:
        """The workspace of a function, whose sizes depend on the numbers it takes."""
        return Workspace(numbers_of(function), Ranges.for_function(function))

    def place(self, buffer: Buffer) -> Expr:
        """The offset of `buffer` in bytes; its size may only depend on symbolic dimensions."""
        if buffer not in self._placed:
            size = size_in_bytes(buffer, self.ranges)
            require_known(buffer, size, self.dims)
            self._placed[buffer] = self.size
            whole = (size + (ALIGNMENT - 1)) // ALIGNMENT * ALIGNMENT
            self.size = simplify(self.size + whole, self.ranges)
        return self._placed[buffer]


def size_in_bytes(buffer: Buffer, ranges: Ranges) -> Expr:
    """The memory that a buffer needs, gaps between its elements included."""
    if buffer.is_compact:
        elements: Expr = const(1)
        for extent in buffer.shape:
            elements = elements * extent
    else:
        elements = buffer.offset + 1
        for extent, stride in zip(buffer.shape, buffer.stride_exprs(), strict=True):
            elements = elements + (extent - 1) * stride
    return simplify(elements * buffer.dtype.itemsize, ranges)


def most_bytes(size: Expr, ranges: Ranges) -> int | None:
    """An upper bound of a size in bytes, if one is known."""
    return bounds(size, ranges).high


def require_known(buffer: Buffer, size: Expr, known: frozenset[Var]) -> None:
    """Refuse a buffer whose size depends on variables other than these."""
    unknown = free_vars(size) - known
    if unknown:
        names = ", ".join(sorted(v.name for v in unknown))
        raise UserError(
            f"cannot allocate {buffer.name}",
            reason=f"its size depends on {names}, which is not known when the function starts",
            remedy="give it the greatest size that it can need",
        )
