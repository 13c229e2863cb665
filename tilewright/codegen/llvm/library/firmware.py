"""The function that runs a model on machines without an operating system.

    int32_t NAME_run(const void *input, …, void *output, …)

All memory is static: the arena is part of the program, constants are read in place. The functions
that LLVM itself calls to copy and fill memory are here as well, so that no C library is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from tilewright.codegen.convention import MAX_MESSAGE_VALUES, arena_name
from tilewright.codegen.interface import PARAMS, Interface
from tilewright.codegen.llvm.functions import I8, I32, I64, PTR, VOID, Body, Field, Library, ir
from tilewright.codegen.llvm.machine import emit_object, machine_for
from tilewright.target import Target


def firmware_object(model: Interface, target: Target) -> bytes:
    """Object code of `NAME_run`."""
    library = Library(f"tilewright.firmware.{model.prefix}", target.triple)
    _emit_run(library, model, target.pointer_bits // 8)
    return emit_object(str(library.module), machine_for(target))


def memory_functions_object(needed: Collection[str], target: Target) -> bytes:
    """Object code of the memcpy and memset variants among the needed names."""
    library = Library("tilewright.firmware.memory", target.triple)
    for name in sorted(MEMORY_FUNCTIONS.keys() & set(needed)):
        MEMORY_FUNCTIONS[name](library, name)
    return emit_object(str(library.module), machine_for(target))


def _emit_run(library: Library, model: Interface, pointer_bytes: int) -> None:
    constants = _constants(library, model, pointer_bytes)
    record = _static(library, "tw_error", ir.ArrayType(I64, 2 + MAX_MESSAGE_VALUES))
    env = _static(library, "tw_env", ir.ArrayType(I64, 3))
    arena = ir.GlobalVariable(library.module, I8, arena_name(model.program))
    arena.type = PTR
    tensors = [PTR] * (len(model.inputs) + len(model.direct))
    program = library.declare(model.program, I32, [*tensors, PTR, PTR, PTR])
    f = library.define(f"{model.prefix}_run", I32, tensors, exported=True)
    for k, word in enumerate((PTR(None), arena, record)):
        f.put(word, env, Field(8 * k, PTR))
    # Not written to, as such programs have no outputs of computed size.
    f.ret(f.b.call(program, [*f.args, constants, record, env]))


def _constants(library: Library, model: Interface, pointer_bytes: int) -> Any:
    """The addresses of constants, each in a word of eight bytes."""
    params = ir.GlobalVariable(library.module, I8, PARAMS)
    params.global_constant = True
    word = ir.LiteralStructType([PTR, *[I8] * (8 - pointer_bytes)])
    kind = ir.ArrayType(word, max(1, len(model.constants)))
    filling = ", i8 0" * (8 - pointer_bytes)
    places = [f"ptr getelementptr (i8, ptr @{PARAMS}, i32 {at})" for at in model.constants]
    rows = [f"{word} {{{place}{filling}}}" for place in places or ["ptr null"]]
    made = ir.GlobalVariable(library.module, kind, "tw_constants")
    made.linkage, made.global_constant = "internal", True
    made.initializer = ir.FormattedConstant(kind, f"[{', '.join(rows)}]")
    made.type = PTR
    return made


def _static(library: Library, name: str, kind: Any) -> Any:
    made = ir.GlobalVariable(library.module, kind, name)
    made.linkage, made.initializer = "internal", ir.Constant(kind, None)
    made.type = PTR
    return made


# ---- memory -------------------------------------------------------------------------------------


def _emit_copy(library: Library, name: str) -> None:
    """memcpy and memmove: backward where the source would be overwritten, else by words."""
    f = library.define(name, PTR, [PTR, PTR, I32], exported=True)
    to, source, size = f.args
    places = [f.b.ptrtoint(p, I32) for p in (to, source)]
    distance = f.b.sub(*places)
    with f.b.if_else(f.b.icmp_unsigned("<", distance, size)) as (overlaps, apart):
        with overlaps:
            _each(f, size, 1, lambda at: _move(f, to, source, _from_end(f, size, at), I8))
        with apart:
            _copy_forward(f, to, source, size, places)
    f.ret(to)


def _from_end(f: Body, size: Any, at: Any) -> Any:
    return f.b.sub(f.b.sub(size, I32(1)), at)


def _copy_forward(f: Body, to: Any, source: Any, size: Any, places: list[Any]) -> None:
    rest = f.b.and_(f.b.or_(*places), I32(3))
    aligned = f.b.icmp_unsigned("==", rest, I32(0))
    words = f.b.select(aligned, f.b.and_(size, I32(-4)), I32(0))
    _each(f, words, 4, lambda at: _move(f, to, source, at, I32))
    _each(
        f,
        f.b.sub(size, words),
        1,
        lambda at: _move(f, to, source, f.b.add(words, at), I8),
    )


def _move(f: Body, to: Any, source: Any, at: Any, kind: Any) -> None:
    value = f.b.load(f.b.gep(source, [at], source_etype=I8), typ=kind)
    f.b.store(value, f.b.gep(to, [at], source_etype=I8))


def _emit_fill(library: Library, name: str) -> None:
    """memset."""
    f = library.define(name, PTR, [PTR, I32, I32], exported=True)
    _fill(f, f.args[0], f.args[2], f.args[1])
    f.ret(f.args[0])


def _emit_fill_first(library: Library, name: str) -> None:
    """Arm's variant of memset, which takes the value last."""
    f = library.define(name, VOID, [PTR, I32, I32], exported=True)
    to, size, value = f.args
    _fill(f, to, size, value)
    f.ret()


def _emit_clear(library: Library, name: str) -> None:
    f = library.define(name, VOID, [PTR, I32], exported=True)
    to, size = f.args
    _fill(f, to, size, I32(0))
    f.ret()


def _fill(f: Body, to: Any, size: Any, value: Any) -> None:
    byte = f.b.trunc(value, I8)
    word = f.b.mul(f.b.and_(value, I32(255)), I32(0x01010101))
    aligned = f.b.icmp_unsigned("==", f.b.and_(f.b.ptrtoint(to, I32), I32(3)), I32(0))
    words = f.b.select(aligned, f.b.and_(size, I32(-4)), I32(0))
    _each(f, words, 4, lambda at: f.b.store(word, f.b.gep(to, [at], source_etype=I8)))
    rest = f.b.gep(to, [words], source_etype=I8)
    left = f.b.sub(size, words)
    _each(f, left, 1, lambda at: f.b.store(byte, f.b.gep(rest, [at], source_etype=I8)))


def _each(f: Body, end: Any, step: int, body: Callable[[Any], Any]) -> None:
    """Runs `body` for 0, step, … below `end`, which is a multiple of the step."""
    b = f.b
    before, test = b.block, b.append_basic_block("test")
    b.branch(test)
    b.position_at_end(test)
    at = b.phi(I32)
    at.add_incoming(I32(0), before)
    inside, after = b.append_basic_block("each"), b.append_basic_block("after")
    b.cbranch(b.icmp_unsigned("<", at, end), inside, after)
    b.position_at_end(inside)
    body(at)
    at.add_incoming(b.add(at, I32(step)), b.block)
    b.branch(test)
    b.position_at_end(after)


#: The functions that LLVM calls to copy and fill memory, by their names in Arm's EABI and in C.
MEMORY_FUNCTIONS: Final[dict[str, Callable[[Library, str], None]]] = {
    "memcpy": _emit_copy,
    "memmove": _emit_copy,
    "memset": _emit_fill,
    **{f"__aeabi_mem{what}{n}": _emit_copy for what in ("cpy", "move") for n in ("", "4", "8")},
    **{f"__aeabi_memset{n}": _emit_fill_first for n in ("", "4", "8")},
    **{f"__aeabi_memclr{n}": _emit_clear for n in ("", "4", "8")},
}
