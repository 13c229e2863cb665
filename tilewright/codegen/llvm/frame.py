"""One LLVM function under construction: its stack, its exit, its parallel loops."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.arith import simplify
from tilewright.codegen.convention import (
    ERROR,
    MAX_MESSAGE_VALUES,
    OUT_OF_MEMORY,
    POOL,
    WORKSPACE,
    Workspace,
    most_bytes,
    require_known,
    size_in_bytes,
)
from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.expr import emit
from tilewright.codegen.llvm.lists import list_function
from tilewright.codegen.llvm.profile import EventEmitter
from tilewright.codegen.llvm.types import (
    LLType,
    LLValue,
    i8,
    i32,
    i64,
    llvm,
    pointer,
    void,
)
from tilewright.ir import Buffer, Expr, For, Stmt, Var
from tilewright.support.errors import InternalError
from tilewright.support.memory import ALIGNMENT


class Frame:
    """The function under construction; `emit_body` emits statements, passed in because its module
    imports this one."""

    def __init__(
        self,
        cx: Context,
        env: LLValue,
        workspace: Workspace,
        messages: list[str],
        emit_body: Callable[[Frame, Stmt], None],
        *,
        is_host: bool,
    ) -> None:
        self.cx, self.env, self.workspace, self.messages = cx, env, workspace, messages
        self.emit_body, self.is_host = emit_body, is_host
        self.can_fork = is_host and cx.target.has_threads
        self.function = cx.builder.function
        self.entry = cx.builder.block
        self.leave = self.function.append_basic_block("leave")
        self._heap: list[LLValue] = []
        #: The table of the addresses of numbered heap blocks.
        self._blocks: Any = None
        self._stack_used = 0
        self._known = frozenset(cx.variables)
        #: Results that are written by non-temporal stores (`codegen.llvm.streams`).
        self.streamed: frozenset[Buffer] = frozenset()
        self._kernel_env: LLValue | None = None
        #: Calls of kernels so far.
        self.calls = 0
        #: Records the start and end of kernels, in profiled programs.
        self.recorder: EventEmitter | None = None
        #: For each kernel that can fail, the offset of its messages in the table.
        self.first_messages: dict[str, int] = {}
        #: For kernels with shared code, its name and its leading size arguments.
        self.shared: dict[str, tuple[str, tuple[int, ...]]] = {}
        #: The variables of the enclosing loops, outermost first.
        self.around: list[Var] = []
        #: Whether heap blocks are in the memory of a device.
        self.on_device = False
        #: The device code of kernels that this function launches, by name.
        self.images: dict[str, Sequence[bytes]] = {}
        self._status = self.stack_slot(i32, llvm.Constant(i32, 0)) if is_host else None

    # ---- memory ---------------------------------------------------------------------------------

    def allocate(self, buffer: Buffer) -> None:
        """Give `buffer` an address."""
        size = size_in_bytes(buffer, self.workspace.ranges)
        wants_stack = buffer.scope == "local" or not self.is_host
        most = most_bytes(size, self.workspace.ranges) if wants_stack else None
        if most is not None and self._fits_stack(most):
            address = self.stack_slot(llvm.ArrayType(i8, max(1, most)))
        elif self.is_host:
            offset = emit(self.cx, self.workspace.place(buffer))
            address = self.cx.builder.gep(self.word(WORKSPACE), [offset], source_etype=i8)
        else:
            require_known(buffer, size, self._known)
            address = self._from_heap(size)
        self.cx.addresses[buffer] = address

    def _fits_stack(self, size: int) -> bool:
        if self._stack_used + size > self.cx.target.stack_limit:
            return False
        self._stack_used += size
        return True

    def stack_slot(self, kind: Any, start: LLValue | None = None) -> LLValue:
        """Stack memory for a value while the function runs, initialized to `start` in its entry."""
        builder = self.cx.builder
        with self._in_entry():
            slot = builder.alloca(kind)
            slot.type = pointer  # llvmlite still gives it the type that it points to
            has_vectors = isinstance(kind, llvm.ArrayType) and self.cx.target.vector_bits > 0
            slot.align = ALIGNMENT if has_vectors else 8
            if start is not None:
                builder.store(start, slot)
        return slot

    @contextmanager
    def _in_entry(self) -> Generator[None]:
        """Emit the code of the block at the end of the function's entry block."""
        builder = self.cx.builder
        with builder.goto_block(self.entry):
            if self.entry.is_terminated:
                builder.position_before(self.entry.terminator)
            yield

    def _from_heap(self, size: Expr) -> LLValue:
        """Memory for a buffer too large for a worker's stack: one block for all its iterations."""
        cx, builder = self.cx, self.cx.builder
        null = llvm.Constant(pointer, None)
        slot = self.stack_slot(pointer, start=null)
        self._heap.append(slot)
        with builder.if_then(builder.icmp_unsigned("==", builder.load(slot, typ=pointer), null)):
            with cx.nested_scope():
                amount = emit(cx, simplify(size + ALIGNMENT))
            word = llvm.IntType(cx.target.pointer_bits)
            amount = amount if word == i64 else builder.trunc(amount, word)
            taken = builder.call(cx.declare("malloc", pointer, [word]), [amount])
            with builder.if_then(builder.icmp_unsigned("==", taken, null), likely=False):
                self.fail(OUT_OF_MEMORY, [builder.zext(amount, i64)])
            builder.store(taken, slot)
        number = builder.ptrtoint(builder.load(slot, typ=pointer), i64)
        up = builder.add(number, llvm.Constant(i64, ALIGNMENT - 1))
        aligned = builder.and_(up, llvm.Constant(i64, -ALIGNMENT))
        return builder.inttoptr(aligned, pointer)

    def word(self, number: int) -> LLValue:
        """The value of a word of the function's own `env`."""
        return self.cx.builder.load(self.env_word(self.env, number), typ=pointer)

    def env_word(self, env: LLValue, number: int) -> LLValue:
        """The address of a word of an `env`."""
        return self.cx.builder.gep(env, [llvm.Constant(i64, number)], source_etype=i64)

    def kernel_env(self) -> LLValue:
        """The `env` for kernels that this function calls, with a workspace of their own."""
        if self._kernel_env is None:
            self._kernel_env = self.stack_slot(llvm.ArrayType(i64, 3))
            with self._in_entry():
                for number in (POOL, ERROR):
                    self.cx.builder.store(
                        self.word(number), self.env_word(self._kernel_env, number)
                    )
        return self._kernel_env

    def heap_block(self, number: int) -> LLValue:
        """The slot for the address of a numbered heap block, which is freed at the end.

        Slots are in one table, which a loop frees: as separate variables, each would become a phi
        over all places where the function may fail.
        """
        blocks, builder = self.cx.blocks, self.cx.builder
        if number not in blocks:
            self._blocks = self._blocks or self.stack_slot(llvm.ArrayType(pointer, 1))
            self._blocks.allocated_type = llvm.ArrayType(pointer, len(blocks) + 1)
            with self._in_entry():
                blocks[number] = self._address_of(llvm.Constant(i64, len(blocks)))
                builder.store(llvm.Constant(pointer, None), blocks[number])
        return blocks[number]

    def _address_of(self, block: LLValue) -> LLValue:
        return self.cx.builder.gep(self._blocks, [block], source_etype=pointer)

    def _free_blocks(self) -> None:
        builder, count = self.cx.builder, llvm.Constant(i64, len(self.cx.blocks))
        before, body, done = builder.block, *map(builder.append_basic_block, ("free", "freed"))
        builder.branch(body)
        builder.position_at_end(body)
        number = builder.phi(i64)
        self.free(builder.load(self._address_of(number), typ=pointer))
        following = builder.add(number, llvm.Constant(i64, 1))
        number.add_incoming(llvm.Constant(i64, 0), before)
        number.add_incoming(following, body)
        builder.cbranch(builder.icmp_unsigned("<", following, count), body, done)
        builder.position_at_end(done)

    def take(self, size: LLValue) -> LLValue:
        """Allocate a heap block; null where there is no memory."""
        return self._memory_call("malloc", "tw_take", pointer, [size])

    def grow(self, block: LLValue, size: LLValue) -> LLValue:
        """Reallocate a heap block to a larger one with the same contents."""
        return self._memory_call("realloc", "tw_grow", pointer, [block, size])

    def free(self, block: LLValue) -> None:
        """Free a heap block, which may be null."""
        self._memory_call("free", "tw_free", void, [block])

    def _memory_call(self, here: str, there: str, result: LLType, args: list[LLValue]) -> LLValue:
        """A call of libc's function, or of the runtime's function for device memory."""
        if self.on_device:
            here, args = there, [self.word(POOL), *args]
        return self.cx.builder.call(self.cx.declare(here, result, [a.type for a in args]), args)

    def list_slot(self, number: int) -> LLValue:
        """The stack slot that holds the address of a numbered list, released at the end."""
        if number not in self.cx.lists:
            self.cx.lists[number] = self.stack_slot(pointer, start=llvm.Constant(pointer, None))
        return self.cx.lists[number]

    # ---- leaving --------------------------------------------------------------------------------

    def fail(self, message: str, values: Sequence[LLValue]) -> None:
        """Write the error record and leave the function."""
        self.messages.append(message)
        code = len(self.messages)
        builder, record = self.cx.builder, self.word(ERROR)
        words = [llvm.Constant(i64, code), *values[:MAX_MESSAGE_VALUES]]
        for k, word in enumerate(words):
            slot = builder.gep(record, [llvm.Constant(i64, k)], source_etype=i64)
            builder.store(word, slot)
        self._leave_with(llvm.Constant(i32, code))

    def _leave_with(self, status: LLValue) -> None:
        """Branch to the exit; functions on other threads have no status but the error record."""
        if self._status is not None:
            self.cx.builder.store(status, self._status)
        self.cx.builder.branch(self.leave)

    def finish(self) -> None:
        """Emit the exit: free heap blocks and lists, return the status."""
        builder = self.cx.builder
        builder.branch(self.leave)
        builder.position_at_end(self.leave)
        for slot in self._heap:
            self.free(builder.load(slot, typ=pointer))
        if self._blocks is not None:
            self._free_blocks()
        for slot in self.cx.lists.values():
            builder.call(list_function(self.cx, "release"), [builder.load(slot, typ=pointer)])
        if self._status is None:
            builder.ret_void()
        else:
            builder.ret(builder.load(self._status, typ=i32))

    def _leave_if_failed(self) -> None:
        """After an outlined loop: leave if one of its iterations failed."""
        builder = self.cx.builder
        code = builder.load(self.word(ERROR), typ=i64)
        failed = builder.icmp_signed("!=", code, llvm.Constant(i64, 0))
        with builder.if_then(failed, likely=False):
            self._leave_with(builder.trunc(code, i32))

    def leave_if_kernel_failed(self, code: LLValue, first: int, call: int) -> None:
        """Leave with the kernel's error code plus `first`, the offset of its messages."""
        builder = self.cx.builder
        failed = builder.icmp_signed("!=", code, llvm.Constant(i32, 0))
        with builder.if_then(failed, likely=False):
            number = builder.add(code, llvm.Constant(i32, first))
            record = self.word(ERROR)
            builder.store(builder.zext(number, i64), record)
            builder.store(llvm.Constant(i64, call), self.env_word(record, 1 + MAX_MESSAGE_VALUES))
            self._leave_with(number)

    # ---- parallel loops -------------------------------------------------------------------------

    def call_outlined(self, loop: For) -> None:
        """Outline the loop, and call it."""
        from tilewright.codegen.llvm.parallel import emit_outlined

        messages_before = len(self.messages)
        emit_outlined(self, loop)
        if len(self.messages) > messages_before:
            self._leave_if_failed()

    def thread_loop(self, loop: For) -> None:
        """A loop over the threads of a device, whose kernels have frames of their own."""
        raise InternalError(f"loop {loop.var.name} over {loop.axis} is in code for a processor")

    def barrier(self) -> None:
        """A barrier of the threads of a device."""
        raise InternalError("a barrier of a device's threads is in code for a processor")

    def grid_barrier(self) -> None:
        """A barrier of all threads of a launch."""
        raise InternalError("a barrier of a device's threads is in code for a processor")

    def fork(self, loop: For) -> None:
        """Outline the loop's body; the thread pool runs it on ranges of iterations."""
        from tilewright.codegen.llvm.parallel import emit_parallel

        messages_before = len(self.messages)
        pool = self.word(POOL)
        forked = emit_parallel(self, loop, pool)
        body = self.cx.builder.bitcast(forked.function, pointer)
        run = self.cx.declare("tw_pool_run", void, [pointer, pointer, pointer, i64])
        self.cx.builder.call(run, [pool, body, forked.record, forked.extent])
        if len(self.messages) > messages_before:
            self._leave_if_failed()
