"""Emits a GPU kernel as LLVM IR for NVPTX.

All threads of a block run the same code. The variables of loops over blocks and threads are the
hardware's indices; a phase (`lower.gpu.launches`) is skipped by threads without an iteration in it.
A kernel takes its buffers and numbers in order, and last the address of an error record: where a
check fails, the first thread to find it stores the message number and its values there, and every
thread that finds it returns. Kernels whose blocks wait for each other take the address of a counter
before that of the record.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any, Final, NamedTuple

from tilewright.codegen.captured import buffers_of
from tilewright.codegen.convention import MAX_MESSAGE_VALUES, Workspace
from tilewright.codegen.cuda.shared_memory import SHARED_ALIGNMENT, SharedMemory, bytes_of
from tilewright.codegen.llvm.context import AliasScopes, Context
from tilewright.codegen.llvm.frame import Frame
from tilewright.codegen.llvm.stmt import emit_stmt
from tilewright.codegen.llvm.types import (
    LLValue,
    i8,
    i32,
    i64,
    llvm,
    pointer,
    register_type,
    void,
)
from tilewright.ir import (
    Buffer,
    Const,
    For,
    Function,
    Param,
    is_cooperative,
    is_over_threads,
    replace_buffers,
    threads_of,
    walk,
)
from tilewright.lower import MERGED, OVERLAPS, access_of
from tilewright.support.errors import UserError
from tilewright.target import Target

_SHARED_SPACE: Final = 3
_REGISTERS: Final = {"threadIdx": "tid", "blockIdx": "ctaid"}
#: Let dependent launches start (and wait likewise), then wait for the preceding launches to end.
_WAIT: Final = "griddepcontrol.launch_dependents; griddepcontrol.wait;"
#: The attribute that lists a function's parameters that are constants of the model.
CONSTANTS: Final = "constants"
#: Sizes of the constants that a kernel prefetches to L2 while it waits: smaller ones arrive soon
#: enough, and larger ones would evict others.
_LEAST_ASKED, _MOST_ASKED = 1 << 16, 1 << 24
#: Bytes per prefetch: the threads of a launch prefetch the lines of a constant round-robin.
_LINE: Final = 128
_ASK: Final = """{
  .reg .pred done;
  .reg .b32 line, lines, n, k;
  .reg .b64 place;
  mov.u32 line, %ctaid.z;
  mov.u32 n, %nctaid.y;
  mov.u32 k, %ctaid.y;
  mad.lo.u32 line, line, n, k;
  mov.u32 lines, %nctaid.x;
  mov.u32 k, %ctaid.x;
  mad.lo.u32 line, line, lines, k;
  mul.lo.u32 lines, lines, n;
  mov.u32 n, %nctaid.z;
  mul.lo.u32 lines, lines, n;
  mov.u32 n, %ntid.z;
  mov.u32 k, %tid.z;
  mad.lo.u32 line, line, n, k;
  mul.lo.u32 lines, lines, n;
  mov.u32 n, %ntid.y;
  mov.u32 k, %tid.y;
  mad.lo.u32 line, line, n, k;
  mul.lo.u32 lines, lines, n;
  mov.u32 n, %ntid.x;
  mov.u32 k, %tid.x;
  mad.lo.u32 line, line, n, k;
  mul.lo.u32 lines, lines, n;
asking:
  setp.ge.u32 done, line, $1;
  @done bra asked;
  mad.wide.u32 place, line, 128, $0;
  prefetch.global.L2 [place];
  add.u32 line, line, lines;
  bra asking;
asked:
}"""
#: The number of blocks along x, the only axis of launches whose blocks wait for each other.
_BLOCKS: Final = "llvm.nvvm.read.ptx.sreg.nctaid.x"
#: A block adds to the counter, and waits until the counter's highest bit has changed. Its earlier
#: writes are visible to all that see the sum (release and acquire).
_MEET: Final = """{
  .reg .pred changed;
  .reg .b32 before, now;
  atom.acq_rel.gpu.add.u32 before, [$0], $1;
waiting:
  ld.acquire.gpu.u32 now, [$0];
  xor.b32 now, now, before;
  setp.lt.s32 changed, now, 0;
  @!changed bra waiting;
}"""


class DeviceKernel(NamedTuple):
    """A kernel as LLVM IR, with what its launches need."""

    name: str
    llvm: str
    threads: tuple[int, int, int]
    #: Bytes of shared memory.
    shared: int
    messages: tuple[str, ...]
    #: How it accesses each of its buffers (`lower.gpu.accesses`); None where launches wait for all
    #: preceding ones, whatever memory these touch.
    access: tuple[str, ...] | None
    #: Whether its blocks wait for each other.
    is_cooperative: bool
    #: Whether it waits for preceding launches itself, so that it may start before they end.
    waits: bool
    #: The number of launches that were merged into it.
    stands_for: int


def generate_kernel(function: Function, target: Target, alignment: int = 1) -> DeviceKernel:
    """LLVM IR for one kernel, assuming that all buffers are aligned to `alignment` bytes."""
    function = _aligned(function, alignment)
    module = llvm.Module(function.name)
    module.triple = target.triple
    kinds = [pointer if isinstance(p, Buffer) else register_type(p.dtype) for p in function.params]
    together = is_cooperative(function.body)
    kinds += [pointer] * (2 if together else 1)
    kernel = llvm.Function(module, llvm.FunctionType(void, kinds), function.name)
    kernel.calling_convention = "ptx_kernel"
    threads = threads_of(function.body)
    _require_threads(function, threads, target)
    for axis, count in zip("xyz", threads, strict=True):
        note = [kernel, llvm.MetaDataString(module, f"maxntid{axis}"), llvm.Constant(i32, count)]
        module.add_named_metadata("nvvm.annotations", module.add_metadata(note))
    builder = llvm.IRBuilder(kernel.append_basic_block("entry"))
    cx = Context(module, target, builder, AliasScopes(module, function.name))
    cx.aliases.register(buffers_of(function))
    access = dict(zip(function.buffers, access_of(function), strict=True))
    for param, argument in zip(function.params, kernel.args, strict=False):
        if isinstance(param, Buffer):
            # After a barrier this block may read what other blocks have written.
            if not together or "w" not in access[param]:
                argument.add_attribute("noalias")
            argument.attributes.align = param.alignment
            cx.addresses[param] = argument
        else:
            cx.variables[param] = argument
    shared = SharedMemory.of(function.body)
    _require_shared(function, shared.size, target)
    overlaps = OVERLAPS in function.attrs
    can_wait = target.gpu is not None and target.gpu.has_early_launches
    waits = overlaps and not together and can_wait
    if waits:
        numbers: tuple[int, ...] = function.attrs.get(CONSTANTS, ())
        for k in numbers:
            _ask_for(builder, function.params[k], kernel.args[k])
        kind = llvm.FunctionType(void, [])
        builder.asm(kind, _WAIT, "~{memory}", [], side_effect=True)
    counter = kernel.args[-2] if together else None
    frame = DeviceFrame(cx, kernel.args[-1], threads, shared, counter)
    emit_stmt(frame, function.body)
    frame.finish()
    return DeviceKernel(
        function.name,
        str(module),
        threads,
        shared.size,
        tuple(frame.messages),
        tuple(access.values()) if overlaps else None,
        is_cooperative=together,
        waits=waits,
        stands_for=function.attrs.get(MERGED, 1),
    )


def _ask_for(builder: Any, constant: Param, address: LLValue) -> None:
    """Prefetch a constant of suitable size to L2."""
    if not isinstance(constant, Buffer) or not all(isinstance(e, Const) for e in constant.shape):
        return
    size = prod(int(e.value) for e in constant.shape if isinstance(e, Const))
    size *= constant.dtype.itemsize
    if not _LEAST_ASKED <= size <= _MOST_ASKED:
        return
    args = [address, llvm.Constant(i32, -(-size // _LINE))]
    kind = llvm.FunctionType(void, [a.type for a in args])
    builder.asm(kind, _ASK, "l,r", args, side_effect=True)


def _aligned(function: Function, alignment: int) -> Function:
    """The function with this buffer alignment; shared memory has its own."""
    better = {b: b.with_(alignment=alignment) for b in function.buffers if b.alignment < alignment}
    shared = [b for b in buffers_of(function) if b.scope == "shared"]
    better |= {b: b.with_(alignment=SHARED_ALIGNMENT) for b in shared}
    params = tuple(better.get(p, p) if isinstance(p, Buffer) else p for p in function.params)
    return replace(function, params=params, body=replace_buffers(function.body, better))


class DeviceFrame(Frame):
    """A kernel of a GPU under construction."""

    def __init__(
        self,
        cx: Context,
        record: LLValue,
        threads: tuple[int, int, int],
        shared: SharedMemory,
        counter: LLValue | None = None,
    ) -> None:
        super().__init__(cx, record, Workspace(), [], emit_stmt, is_host=False)
        #: The counter of blocks that wait for each other.
        self._counter = counter
        self._shared = shared
        self._threads = dict(zip("xyz", threads, strict=True))
        self._in_phase = False

    def allocate(self, buffer: Buffer) -> None:
        if buffer.scope == "shared":
            self.cx.addresses[buffer] = self._shared_place(self._shared.places[buffer])
        else:
            kind = llvm.ArrayType(i8, bytes_of(buffer))
            self.cx.addresses[buffer] = self.stack_slot(kind)

    def _shared_place(self, offset: int) -> LLValue:
        cx, start = self.cx, llvm.Constant(i64, offset)
        with self._in_entry():
            place = cx.builder.gep(self._shared_memory(), [start], source_etype=i8)
            return cx.builder.addrspacecast(place, pointer)

    def _shared_memory(self) -> LLValue:
        """All shared memory; launches set its size."""
        found = self.cx.module.globals.get("shared")
        if found is None:
            kind = llvm.ArrayType(i8, 0)
            found = llvm.GlobalVariable(self.cx.module, kind, "shared", addrspace=_SHARED_SPACE)
            found.linkage, found.align = "external", self._shared.alignment
        return found

    def thread_loop(self, loop: For) -> None:
        """A loop over blocks or threads: each block or thread runs one iteration."""
        cx = self.cx
        level, _, axis = loop.axis.partition(".")
        number = self._number(level, axis)
        if not is_over_threads(loop):
            cx.variables[loop.var] = number
            self.emit_body(self, loop.body)
            return
        conditions = [] if self._in_phase else self._idle(loop)
        assert isinstance(loop.extent, Const)
        if int(loop.extent.value) < self._threads[axis]:
            extent = llvm.Constant(i64, int(loop.extent.value))
            conditions.append(cx.builder.icmp_unsigned("<", number, extent))
        cx.variables[loop.var] = number
        with self._guarded(conditions), self._phase():
            self.emit_body(self, loop.body)

    def _idle(self, phase: For) -> list[LLValue]:
        """Conditions for axes that a phase does not use: only their first thread takes part."""
        used = {s.axis[-1] for s in walk(phase) if isinstance(s, For) and is_over_threads(s)}
        zero = llvm.Constant(i64, 0)
        return [
            self.cx.builder.icmp_unsigned("==", self._number("threadIdx", axis), zero)
            for axis, count in self._threads.items()
            if count > 1 and axis not in used
        ]

    @contextmanager
    def _guarded(self, conditions: list[LLValue]) -> Generator[None]:
        cx = self.cx
        if not conditions:
            with cx.nested_scope():
                yield
            return
        holds = conditions[0]
        for condition in conditions[1:]:
            holds = cx.builder.and_(holds, condition)
        with cx.builder.if_then(holds), cx.nested_scope():
            yield

    @contextmanager
    def _phase(self) -> Generator[None]:
        before, self._in_phase = self._in_phase, True
        yield
        self._in_phase = before

    def _number(self, level: str, axis: str) -> LLValue:
        """The index of this thread or block along an axis."""
        name = f"llvm.nvvm.read.ptx.sreg.{_REGISTERS[level]}.{axis}"
        with self._in_entry():
            read = self.cx.builder.call(self.cx.declare(name, i32, []), [])
            return self.cx.builder.zext(read, i64)

    def barrier(self) -> None:
        """A barrier of the threads of a block, which makes their writes visible to each other."""
        declared = self.cx.declare("llvm.nvvm.barrier.cta.sync.aligned.all", void, [i32])
        self.cx.builder.call(declared, [llvm.Constant(i32, 0)])
        self.cx.available.forget()

    def grid_barrier(self) -> None:
        """A barrier of all threads of a launch, which makes their writes visible to each other."""
        assert self._counter is not None, "the kernel takes a counter"
        builder, zero, one = self.cx.builder, llvm.Constant(i64, 0), llvm.Constant(i32, 1)
        self.barrier()
        numbers = [self._number("threadIdx", axis) for axis, n in self._threads.items() if n > 1]
        firsts = [builder.icmp_unsigned("==", number, zero) for number in numbers]
        with self._guarded(firsts):
            # The blocks' addends sum to 2**31, which flips the highest bit whatever it was before,
            # so that the counter is never reset.
            blocks = builder.call(self.cx.declare(_BLOCKS, i32, []), [])
            most = builder.sub(llvm.Constant(i32, (1 << 31) + 1), blocks)
            is_first = builder.icmp_unsigned("==", self._number("blockIdx", "x"), zero)
            args = [self._counter, builder.select(is_first, most, one)]
            kind = llvm.FunctionType(void, [a.type for a in args])
            builder.asm(kind, _MEET, "l,r,~{memory}", args, side_effect=True)
        self.barrier()

    def fail(self, message: str, values: Any) -> None:
        self.messages.append(message)
        builder, record = self.cx.builder, self.env
        zero, code = llvm.Constant(i64, 0), llvm.Constant(i64, len(self.messages))
        before = builder.cmpxchg(record, zero, code, "monotonic", "monotonic")
        with builder.if_then(builder.extract_value(before, 1)):
            for k, value in enumerate(values[:MAX_MESSAGE_VALUES], 1):
                builder.store(value, self.env_word(record, k))
        builder.branch(self.leave)


def _require_threads(function: Function, threads: tuple[int, int, int], target: Target) -> None:
    count, gpu = threads[0] * threads[1] * threads[2], target.gpu
    assert gpu is not None
    if count > gpu.most_threads:
        raise UserError(
            f"cannot launch {function.name}",
            reason=f"its blocks have {count} threads, and {gpu.name} takes {gpu.most_threads}",
            remedy="bind loops of smaller extents to threads",
        )


def _require_shared(function: Function, size: int, target: Target) -> None:
    gpu = target.gpu
    assert gpu is not None
    if size > gpu.shared:
        raise UserError(
            f"cannot launch {function.name}",
            reason=f"its blocks share {size} bytes, and {gpu.name} has {gpu.shared}",
            remedy="use smaller tiles",
        )
