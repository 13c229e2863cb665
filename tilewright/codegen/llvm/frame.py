"""One LLVM function while it is being filled: its stack, its way out, its parallel loops.

A kernel's signature is `i32 NAME(buffers and scalars in order, symbolic dimensions, env)`; `env` points to
three words: the thread pool, the workspace for intermediate buffers, and the error record. The
record holds the number of the message and up to four integers for it. The kernel returns that number;
0 means success.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from llvmlite import ir as llvm

from tilewright.arith import simplify
from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.expr import emit
from tilewright.codegen.llvm.types import (
    LLValue,
    i8,
    i32,
    i64,
    memory_type,
    pointer,
    void,
)
from tilewright.ir import Buffer, Expr, For, Stmt, Var, const, free_vars
from tilewright.support.errors import UserError

MAX_MESSAGE_VALUES: Final = 4
#: Buffers up to this size live on the stack of the thread that uses them.
STACK_LIMIT: Final = 1 << 20
_ALIGNMENT: Final = 64
_POOL, _WORKSPACE, _ERROR = range(3)


class Workspace:
    """Memory that the caller provides for intermediate buffers, laid out one after the other."""

    def __init__(self, dims: Sequence[Var]) -> None:
        self.dims = frozenset(dims)
        self.size: Expr = const(0)

    def place(self, buffer: Buffer) -> Expr:
        """The offset of `buffer` in bytes; its size may depend on symbolic dimensions alone."""
        size = size_in_bytes(buffer)
        unknown = free_vars(size) - self.dims
        if unknown:
            names = ", ".join(sorted(v.name for v in unknown))
            raise UserError(
                f"cannot allocate {buffer.name}",
                reason=f"its size depends on {names}, which is not known when the function starts",
                remedy="give it the greatest size that it can need",
            )
        offset = self.size
        self.size = simplify(offset + (size + (_ALIGNMENT - 1)) // _ALIGNMENT * _ALIGNMENT)
        return offset


def size_in_bytes(buffer: Buffer) -> Expr:
    size: Expr = const(buffer.dtype.itemsize)
    for extent in buffer.shape:
        size = size * extent
    return simplify(size)


class Frame:
    """The function being filled; `fill` is the statement emitter, handed in to keep files apart."""

    def __init__(
        self,
        cx: Context,
        env: LLValue,
        workspace: Workspace,
        messages: list[str],
        fill: Callable[[Frame, Stmt], None],
        *,
        is_host: bool,
    ) -> None:
        self.cx, self.env, self.workspace, self.messages = cx, env, workspace, messages
        self.fill, self.can_fork = fill, is_host
        self.function = cx.builder.function
        self.entry = cx.builder.block
        self.leave = self.function.append_basic_block("leave")
        self._heap: list[LLValue] = []
        self._streams = False
        self._status = self.stack_slot(i32) if is_host else None
        if self._status is not None:
            cx.builder.store(llvm.Constant(i32, 0), self._status)

    # ---- memory ---------------------------------------------------------------------------------

    def allocate(self, buffer: Buffer) -> None:
        """Give `buffer` an address."""
        size = buffer.static_size()
        small = size is not None and size * buffer.dtype.itemsize <= STACK_LIMIT
        if buffer.scope == "local" and small or (small and not self.can_fork):
            kind = llvm.ArrayType(memory_type(buffer.dtype), max(1, size or 0))
            address = self.stack_slot(kind)
        elif self.can_fork:
            offset = emit(self.cx, self.workspace.place(buffer))
            address = self.cx.builder.gep(self._word(_WORKSPACE), [offset], source_etype=i8)
        else:
            address = self._from_heap(buffer)
        self.cx.addresses[buffer] = address

    def stack_slot(self, kind: Any) -> LLValue:
        with self.cx.builder.goto_block(self.entry):
            if self.entry.is_terminated:
                self.cx.builder.position_before(self.entry.terminator)
            slot = self.cx.builder.alloca(kind)
        slot.type = pointer  # llvmlite still gives it the type that it points to
        slot.align = _ALIGNMENT if isinstance(kind, llvm.ArrayType) else 8
        return slot

    def _from_heap(self, buffer: Buffer) -> LLValue:
        """Too large for the stack of a worker thread: one block for all its iterations."""
        size = emit(self.cx, simplify(size_in_bytes(buffer) + _ALIGNMENT))
        malloc = self.cx.declare("malloc", pointer, [i64])
        slot = self.stack_slot(pointer)
        with self.cx.builder.goto_entry_block():
            self.cx.builder.store(llvm.Constant(pointer, None), slot)
        block = self.cx.builder.call(malloc, [size])
        self.cx.builder.store(block, slot)
        self._heap.append(slot)
        number = self.cx.builder.ptrtoint(block, i64)
        up = self.cx.builder.add(number, llvm.Constant(i64, _ALIGNMENT - 1))
        aligned = self.cx.builder.and_(up, llvm.Constant(i64, -_ALIGNMENT))
        return self.cx.builder.inttoptr(aligned, pointer)

    def _word(self, number: int) -> LLValue:
        builder = self.cx.builder
        slot = builder.gep(self.env, [llvm.Constant(i64, number)], source_etype=pointer)
        return builder.load(slot, typ=pointer)

    # ---- leaving --------------------------------------------------------------------------------

    def fail(self, message: str, values: Sequence[LLValue]) -> None:
        """Record what went wrong and leave."""
        self.messages.append(message)
        code = len(self.messages)
        builder, record = self.cx.builder, self._word(_ERROR)
        words = [llvm.Constant(i64, code), *values[:MAX_MESSAGE_VALUES]]
        for k, word in enumerate(words):
            slot = builder.gep(record, [llvm.Constant(i64, k)], source_etype=i64)
            builder.store(word, slot)
        if self._status is not None:
            builder.store(llvm.Constant(i32, code), self._status)
        builder.branch(self.leave)

    def finish(self) -> None:
        """Close the function: free what it took, return its status."""
        builder = self.cx.builder
        builder.branch(self.leave)
        builder.position_at_end(self.leave)
        free = self.cx.declare("free", void, [pointer]) if self._heap else None
        for slot in self._heap:
            builder.call(free, [builder.load(slot, typ=pointer)])
        if self._status is None:
            builder.ret_void()
        else:
            builder.ret(builder.load(self._status, typ=i32))

    def _leave_if_failed(self) -> None:
        """After a parallel loop: did one of its iterations fail?"""
        builder = self.cx.builder
        code = builder.load(self._word(_ERROR), typ=i64)
        failed = builder.icmp_signed("!=", code, llvm.Constant(i64, 0))
        with builder.if_then(failed, likely=False):
            builder.store(builder.trunc(code, i32), self._status)
            builder.branch(self.leave)

    # ---- stores that bypass the caches ----------------------------------------------------------

    @contextmanager
    def streaming(self, wanted: bool) -> Iterator[None]:
        before, self._streams = self._streams, self._streams or wanted
        yield
        self._streams = before

    def streams(self, buffer: Buffer) -> bool:
        return self._streams and buffer.scope == "global"

    # ---- parallel loops -------------------------------------------------------------------------

    def fork(self, loop: For) -> None:
        """Make the loop's body a function that the thread pool runs on ranges of iterations."""
        from tilewright.codegen.llvm.parallel import emit_parallel

        messages_before = len(self.messages)
        body, record = emit_parallel(self, loop)
        run = self.cx.declare("tw_pool_run", void, [pointer, pointer, pointer, i64])
        extent = emit(self.cx, loop.extent)
        self.cx.builder.call(run, [self._word(_POOL), body, record, extent])
        if len(self.messages) > messages_before:
            self._leave_if_failed()
