"""Functions written directly in LLVM IR, not compiled from loops: no Python at run time.

`Library` is a module under construction together with the C functions it calls; `Body` is one
function of it, an `IRBuilder` with the few operations needed for plain memory and atomics. Memory
is addressed by `Field`s (a byte offset and a type), so no C struct has to be mirrored.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import llvmlite.ir.instructions

from tilewright.codegen.llvm import windows
from tilewright.codegen.llvm.libc import C_FUNCTIONS, SIZED, Platform, platform_of
from tilewright.codegen.llvm.types import LLType as Type
from tilewright.codegen.llvm.types import LLValue as Value
from tilewright.codegen.llvm.types import i1, i8, i32, i64, pointer, void
from tilewright.codegen.llvm.types import llvm as ir
from tilewright.target import Target

#: In upper case, since they are called to make constants: `I64(0)`.
VOID, PTR = void, pointer
I1, I8, I32, I64 = i1, i8, i32, i64

Ordering = Literal["monotonic", "acquire", "release", "seq_cst"]


class Field(NamedTuple):
    """A value of `type` that lies `offset` bytes into a block of memory."""

    offset: int
    type: Type = None


# The spin-wait hint of a core. On AArch64 `yield` is a no-op on most cores; `isb` waits a little
# and drains the pipeline, as other spin locks do there too.
_SPIN_HINTS: dict[str, tuple[str, list[int]]] = {
    "x86_64": ("llvm.x86.sse2.pause", []),
    "aarch64": ("llvm.aarch64.isb", [15]),
    "arm64": ("llvm.aarch64.isb", [15]),
}


class Library:
    """A module under construction and the functions it calls; `module` defaults to a new one."""

    def __init__(self, name: str, triple: str, module: Any = None) -> None:
        self.architecture = triple.split("-")[0]
        self.module: Any = ir.Module(name) if module is None else module
        self.module.triple = triple
        target = Target.of(f"llvm -mtriple={triple}")
        #: Bytes of an address, and the type of `size_t`.
        self.pointer_bytes: int = target.pointer_bits // 8
        self.size: Type = ir.IntType(target.pointer_bits)
        self.has_threads: bool = target.has_threads

    @property
    def platform(self) -> Platform:
        return platform_of(self.module.triple)

    def define(
        self, name: str, returns: Type, parameters: Sequence[Type], *, exported: bool = False
    ) -> Body:
        """Begins the function `name`; only exported ones are visible outside the module."""
        return self.define_as(name, ir.FunctionType(returns, parameters), exported=exported)

    def define_as(self, name: str, kind: Type, *, exported: bool = False) -> Body:
        """Begins a function of the given type, which may be variadic."""
        function = ir.Function(self.module, kind, name)
        function.linkage = "external" if exported else "internal"
        function.attributes.add("nounwind")
        return Body(self, function)

    def function(self, name: str) -> Value:
        """The function `name` of this module or of libc."""
        if name in self.module.globals:
            return self.module.globals[name]
        returns, parameters = C_FUNCTIONS[name]
        if windows.is_written(name) and not self.platform.is_posix:
            windows.write(self.define(name, returns, parameters), name)
            return self.module.globals[name]
        # Parameters of type size_t have the target's width.
        own = [self.size if p == I64 and name in SIZED else p for p in parameters]
        return self.declare(name, returns, own)

    def declare(self, name: str, returns: Type, parameters: Sequence[Type]) -> Value:
        if name in self.module.globals:
            return self.module.globals[name]
        function = ir.Function(self.module, ir.FunctionType(returns, parameters), name)
        function.attributes.add("nounwind")
        return function

    def text(self, name: str, text: str) -> Value:
        """A constant C string."""
        data = bytearray(text.encode() + b"\0")
        constant = ir.Constant(ir.ArrayType(I8, len(data)), data)
        variable = ir.GlobalVariable(self.module, constant.type, name)
        variable.linkage, variable.global_constant = "internal", True
        variable.initializer = constant
        return variable


class Body:
    """One function under construction."""

    def __init__(self, library: Library, function: Value) -> None:
        self.library = library
        self.args: Sequence[Value] = function.args
        self.b: Any = ir.IRBuilder(function.append_basic_block("entry"))

    def at(self, base: Value, field: Field, index: Value | None = None, stride: int = 0) -> Value:
        """The address of `field` in the block at `base`, or in element `index` of an array."""
        offset = I64(field.offset)
        if index is not None:
            offset = self.b.add(offset, self.b.mul(index, I64(stride)))
        return self.b.gep(base, [offset], inbounds=True, source_etype=I8)

    def get(self, base: Value, field: Field) -> Value:
        return self.b.load(self.at(base, field), typ=field.type)

    def put(self, value: Value, base: Value, field: Field) -> None:
        self.b.store(value, self.at(base, field))

    def get_atomic(self, base: Value, field: Field, ordering: Ordering) -> Value:
        return self.b.load_atomic(
            self.at(base, field), ordering, _alignment(field.type), typ=field.type
        )

    def put_atomic(self, value: Value, base: Value, field: Field, ordering: Ordering) -> None:
        # IRBuilder.store_atomic asks for typed pointers, which LLVM no longer has.
        address = self.at(base, field)
        store = llvmlite.ir.instructions.StoreAtomicInstr(
            self.b.block, value, address, ordering, _alignment(value.type)
        )
        self.b._insert(store)

    def exchange(self, base: Value, field: Field, expected: Value, desired: Value) -> Value:
        """Compare-and-swap; true where it succeeded."""
        address = self.at(base, field)
        pair = self.b.cmpxchg(address, expected, desired, "acquire", "monotonic")
        return self.b.extract_value(pair, 1)

    def add_atomic(self, value: Value, base: Value, field: Field) -> None:
        """Atomically adds `value`, sequentially consistent."""
        self.b.atomic_rmw("add", self.at(base, field), value, "seq_cst")

    def scratch(self, size: int) -> Value:
        """`size` zeroed bytes on the stack."""
        kind = ir.ArrayType(I64, size // 8)
        memory = self.b.alloca(kind)
        memory.type = PTR
        self.b.store(ir.Constant(kind, None), memory)
        return memory

    def call(self, name: str, *args: Value) -> Value:
        callee = self.library.function(name)
        kinds = callee.function_type.args
        return self.b.call(callee, [self._fitted(a, k) for a, k in zip(args, kinds, strict=True)])

    def _fitted(self, value: Value, kind: Type) -> Value:
        """A value, truncated to the width of the parameter `kind`."""
        return self.b.trunc(value, kind) if value.type == I64 and kind == I32 else value

    def relax(self) -> None:
        """Gives the core the spin-wait hint."""
        if self.library.architecture not in _SPIN_HINTS:
            return
        name, args = _SPIN_HINTS[self.library.architecture]
        hint = self.library.declare(name, VOID, [I32] * len(args))
        self.b.call(hint, [I32(a) for a in args])

    def smaller(self, left: Value, right: Value) -> Value:
        return self.b.select(self.b.icmp_signed("<", left, right), left, right)

    def is_null(self, pointer: Value) -> Value:
        return self.b.icmp_unsigned("==", pointer, PTR(None))

    @contextmanager
    def when(self, condition: Value) -> Generator[None]:
        with self.b.if_then(condition):
            yield

    @contextmanager
    def loop_while(self, condition: Callable[[], Value]) -> Generator[None]:
        """`while condition(): …`; the callable emits the test."""
        head, body, done = (self.b.append_basic_block(n) for n in ("while", "do", "done"))
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(condition(), body, done)
        self.b.position_at_end(body)
        yield
        self.b.branch(head)
        self.b.position_at_end(done)

    @contextmanager
    def loop_from(self, start: Value, stop: Value) -> Generator[tuple[Value, Value]]:
        """`for i in range(start, stop): …`; yields `i` and the block that a break branches to."""
        before = self.b.block
        head, body, done = (self.b.append_basic_block(n) for n in ("for", "do", "done"))
        self.b.branch(head)
        self.b.position_at_end(head)
        index = self.b.phi(I64)
        index.add_incoming(start, before)
        self.b.cbranch(self.b.icmp_signed("<", index, stop), body, done)
        self.b.position_at_end(body)
        yield index, done
        index.add_incoming(self.b.add(index, I64(1)), self.b.block)
        self.b.branch(head)
        self.b.position_at_end(done)

    def ret(self, value: Value | None = None) -> None:
        if value is None:
            self.b.ret_void()
        else:
            self.b.ret(value)


def _alignment(kind: Type) -> int:
    return 4 if kind == I32 else 8
