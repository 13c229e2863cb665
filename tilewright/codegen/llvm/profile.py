"""Host programs that record the start and end time of each of their kernels.

The module of a profiled program `f` has a variable `f.profile` of three words: the address of an
array of events, its capacity, and the number of events so far. An event is `EVENT_WORDS` words: the
number of the call, counted from 0; its start and end, in nanoseconds; and the numbers that the
kernel was called with. Programs that are not profiled have none of this.

Without an operating system there is no known clock: `f.profile` then has a fourth word, the address
of a function that reads one (`uint64_t (*)(void)`), in ticks of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.convention import EVENT_WORDS
from tilewright.codegen.llvm.context import Context
from tilewright.codegen.llvm.libc import platform_of
from tilewright.codegen.llvm.types import LLValue, i8, i32, i64, llvm, pointer

_EVENTS, _CAPACITY, _COUNT, _CLOCK = range(4)


class EventEmitter:
    """Emits the recording of events into a function."""

    def __init__(self, cx: Context, name: str) -> None:
        self._cx, is_bare = cx, cx.target.is_bare
        kind = llvm.ArrayType(i64, _CLOCK + is_bare)
        self._state = llvm.GlobalVariable(cx.module, kind, f"{name}.profile")
        self._state.initializer = llvm.Constant(kind, None)
        self._state.type = pointer  # llvmlite still gives it the type that it points to
        self._clock = None if is_bare else _clock_function(cx, f"{name}.clock")

    def now(self) -> LLValue:
        """The time, in nanoseconds; in ticks where there is no operating system."""
        return self._cx.builder.call(self._clock or self._given_clock(), [])

    def _given_clock(self) -> LLValue:
        kind = llvm.FunctionType(i64, []).as_pointer()
        return self._cx.builder.load(self._word(self._state, _CLOCK), typ=kind)

    def record(self, call: int, start: LLValue, numbers: Sequence[LLValue]) -> None:
        """Record that call number `call` began at `start` and has ended now."""
        builder, end = self._cx.builder, self.now()
        count = builder.load(self._word(self._state, _COUNT), typ=i64)
        room = builder.load(self._word(self._state, _CAPACITY), typ=i64)
        with builder.if_then(builder.icmp_signed("<", count, room)):
            events = builder.load(self._word(self._state, _EVENTS), typ=pointer)
            offset = builder.mul(count, llvm.Constant(i64, 8 * EVENT_WORDS))
            event = builder.gep(events, [offset], source_etype=i8)
            words = [llvm.Constant(i64, call), start, end, *map(self._as_word, numbers)]
            for k, word in enumerate(words[:EVENT_WORDS]):
                builder.store(word, self._word(event, k))
        following = builder.add(count, llvm.Constant(i64, 1))
        builder.store(following, self._word(self._state, _COUNT))

    def _word(self, base: LLValue, number: int) -> LLValue:
        return self._cx.builder.gep(base, [llvm.Constant(i64, number)], source_etype=i64)

    def _as_word(self, value: LLValue) -> LLValue:
        """An integer as a word; other types, on which no loop depends, as zero."""
        if not isinstance(value.type, llvm.IntType):
            return llvm.Constant(i64, 0)
        return value if value.type == i64 else self._cx.builder.sext(value, i64)


def _clock_function(cx: Context, name: str) -> LLValue:
    function = llvm.Function(cx.module, llvm.FunctionType(i64, []), name)
    function.linkage = "internal"
    builder = llvm.IRBuilder(function.append_basic_block("entry"))
    time = builder.alloca(llvm.ArrayType(i64, 2))
    time.type = pointer
    clock = llvm.Constant(i32, platform_of(cx.target.triple).clock_monotonic)
    builder.call(cx.declare("clock_gettime", i32, [i32, pointer]), [clock, time])

    def word(k: int) -> LLValue:
        at = builder.gep(time, [llvm.Constant(i64, k)], source_etype=i64)
        return builder.load(at, typ=i64)

    seconds = builder.mul(word(0), llvm.Constant(i64, 10**9))
    builder.ret(builder.add(seconds, word(1)))
    return function
