"""The functions of an exported library on plain pointers: run, init, free, error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tilewright.codegen.interface import PARAMS, Interface
from tilewright.codegen.llvm.functions import (
    I8,
    I32,
    I64,
    PTR,
    VOID,
    Body,
    Field,
    Library,
    Value,
    ir,
)
from tilewright.codegen.llvm.library.state import (
    ERROR,
    ERROR_BYTES,
    POOL,
    SPARE,
    swap,
    variable,
    workspace_of,
)
from tilewright.codegen.llvm.windows import write_snprintf

#: Return values of `run` without memory for a workspace, or without permission to use AMX; positive
#: ones are message numbers.
_NO_MEMORY: Final = -1
_NO_AMX: Final = -2
_ERROR_WORDS: Final = 6
#: Bytes between the addresses of constants.
_WORD: Final = 8
#: Most placeholders of a message.
_PLACEHOLDERS: Final = 8
_PLACEHOLDER = re.compile(r"\{(\d*)\}|\{\{|\}\}|%")


def emit_run(library: Library, model: Interface) -> None:
    """Adds the functions to `library`."""
    library.declare(f"{model.program}.entry", I32, [PTR])
    library.declare(f"{model.program}.workspace", I64, [PTR])
    _declare_snprintf(library)
    _emit_tables(library, model)
    for emit in (_emit_explain, _run, _init, _free, _error):
        emit(library, model)


def _declare_snprintf(library: Library) -> None:
    if not library.platform.is_posix:
        write_snprintf(library)
        return
    printing = ir.FunctionType(I32, [PTR, library.size, PTR], var_arg=True)
    ir.Function(library.module, printing, "snprintf")


def _emit_tables(library: Library, model: Interface) -> None:
    """Tables of constants' addresses, and of the texts of messages and origins."""
    params = ir.GlobalVariable(library.module, I8, PARAMS)
    params.global_constant = True
    places = [f"getelementptr (i8, ptr @{PARAMS}, i64 {at})" for at in model.constants]
    _table(library, "tw_constants", places, _WORD)
    formats = [_as_format(m) for m in model.messages]
    _texts(library, "tw_messages", [f.text for f in formats])
    _emit_orders(library, formats)
    _texts(library, "tw_origins", model.origins)


def _texts(library: Library, name: str, texts: Sequence[str]) -> None:
    shared: dict[str, str] = {}
    for text in texts:
        if text not in shared:
            shared[text] = f"{name}.{len(shared)}"
            library.text(shared[text], text)
    _table(library, name, [f"@{shared[t]}" for t in texts], library.pointer_bytes)


def _table(library: Library, name: str, elements: Sequence[str], stride: int) -> None:
    """A table of addresses, `stride` bytes apart."""
    filling = stride - library.pointer_bytes
    row = ir.LiteralStructType([PTR, *[I8] * filling])
    kind = ir.ArrayType(row, max(1, len(elements)))
    made = ir.GlobalVariable(library.module, kind, name)
    made.linkage, made.global_constant = "internal", True
    values = [f"{row} {{ptr {e}{', i8 0' * filling}}}" for e in elements or ["null"]]
    made.initializer = ir.FormattedConstant(kind, f"[{', '.join(values)}]")
    made.type = PTR


class _Format(NamedTuple):
    """A message as a printf format, and the index of the value of each placeholder.

    Values are passed in that order, since not every C library supports numbered placeholders.
    """

    text: str
    order: list[int]


def _as_format(message: str) -> _Format:
    """The printf format of a message with Python placeholders."""
    order: list[int] = []

    def spelled(match: re.Match[str]) -> str:
        text = match[0]
        if text == "%":
            return "%%"
        if text in ("{{", "}}"):
            return text[0]
        order.append(int(match[1]) if match[1] else len(order))
        return "%lld"

    return _Format(_PLACEHOLDER.sub(spelled, message), order)


def _emit_orders(library: Library, formats: Sequence[_Format]) -> None:
    rows = [[*f.order, *[0] * _PLACEHOLDERS][:_PLACEHOLDERS] for f in formats] or [[0]]
    data = bytearray(value for row in rows for value in row)
    kind = ir.ArrayType(I8, len(data))
    made = ir.GlobalVariable(library.module, kind, "tw_orders")
    made.linkage, made.global_constant = "internal", True
    made.initializer = ir.Constant(kind, data)
    made.type = PTR


# ---- errors -------------------------------------------------------------------------------------


def set_error(f: Body, text: str, *values: Value) -> Value:
    """Write the text that `NAME_error` returns; gives its length."""
    known: dict[str, Any] = f.library.module.globals
    name = f"tw_text.{sum(k.startswith('tw_text.') for k in known)}"
    place = variable(f.library, ERROR)
    format_ = f.library.text(name, text)
    size = f.library.size(ERROR_BYTES)
    return f.b.call(known["snprintf"], [place, size, _as_pointer(f, format_), *values])


def _as_pointer(f: Body, value: Value) -> Value:
    return f.b.bitcast(value, PTR)


def _emit_explain(library: Library, model: Interface) -> None:
    """Adds tw_explain, which formats a program's error record as the text of `NAME_error`."""
    f = library.define("tw_explain", VOID, [I32, PTR])
    code, record = f.args
    call = f.get(record, Field(8 * (_ERROR_WORDS - 1), I64))
    length = f.b.sext(set_error(f, f"{model.prefix} stopped: "), I64)
    last = I64(len(model.origins))
    in_range = f.b.and_(f.b.icmp_signed(">", call, I64(0)), f.b.icmp_signed("<=", call, last))
    slot = f.scratch(8)
    f.put(length, slot, Field(0, I64))
    with f.when(in_range):
        origin = _element(f, "tw_origins", f.b.sub(call, I64(1)))
        written = set_error(f, f"{model.prefix} stopped at %s: ", origin)
        f.put(f.smaller(f.b.sext(written, I64), I64(ERROR_BYTES - 1)), slot, Field(0, I64))
    length = f.get(slot, Field(0, I64))
    message = _element(f, "tw_messages", f.b.sub(f.b.sext(code, I64), I64(1)))
    place = f.at(variable(library, ERROR), Field(0), length, 1)
    values = [_value_of(f, code, k, record) for k in range(_PLACEHOLDERS)]
    room = f.b.sub(I64(ERROR_BYTES), length)
    room = room if library.size == I64 else f.b.trunc(room, library.size)
    f.b.call(library.module.globals["snprintf"], [place, room, message, *values])
    f.ret()


def _value_of(f: Body, code: Value, place: int, record: Value) -> Value:
    """The value in an error record for one placeholder of a message."""
    message = f.b.sub(f.b.sext(code, I64), I64(1))
    order = f.at(variable(f.library, "tw_orders"), Field(place), message, _PLACEHOLDERS)
    number = f.b.zext(f.b.load(order, typ=I8), I64)
    return f.b.load(f.at(record, Field(8), number, 8), typ=I64)


def _element(f: Body, table: str, index: Value) -> Value:
    stride = f.library.pointer_bytes
    return f.b.load(f.at(variable(f.library, table), Field(0), index, stride), typ=PTR)


# ---- running ------------------------------------------------------------------------------------


def run_parameters(model: Interface) -> list[Any]:
    """Parameter types: inputs, outputs, then dimensions and shapes, if there are any."""
    return [PTR] * (2 + bool(model.dims) + bool(model.records))


def _run(library: Library, model: Interface) -> None:
    f = library.define(f"{model.prefix}_run", I32, run_parameters(model), exported=True)
    inputs, outputs, *others = f.args
    if model.may_use_amx:
        _require_amx(f, model)
    words = _Words(f, len(model.inputs) + len(model.direct) + len(model.dims) + 5)
    for k in range(len(model.inputs)):
        words.add(_address_at(f, inputs, k))
    for k in model.direct:
        words.add(_address_at(f, outputs, k))
    record = f.scratch(8 * (1 + sum(1 + len(t.shape) for t in model.outputs)))
    words.add(f.b.ptrtoint(variable(library, "tw_constants"), I64))
    words.add(f.b.ptrtoint(record, I64))
    for k in range(len(model.dims)):
        words.add(f.get(others[0], Field(8 * k, I64)))
    size = f.call(f"{model.program}.workspace", words.memory)
    block = f.call("tw_take_workspace", size)
    with f.when(f.is_null(block)):
        set_error(f, f"{model.prefix} stopped: out of memory, %lld bytes are needed", size)
        f.ret(I32(_NO_MEMORY))
    error = f.scratch(8 * _ERROR_WORDS)
    words.add(f.b.ptrtoint(f.call("tw_the_pool"), I64))
    words.add(f.b.ptrtoint(workspace_of(f, block), I64))
    words.add(f.b.ptrtoint(error, I64))
    code = f.call(f"{model.program}.entry", words.memory)
    f.call("tw_return_workspace", block)
    with f.when(f.b.icmp_signed("!=", code, I32(0))):
        f.call("tw_explain", code, error)
        f.ret(code)
    _hand_over(f, model, record, outputs, others)
    f.ret(I32(0))


def _address_at(f: Body, array: Value, k: int) -> Value:
    """An element of the caller's array of addresses."""
    return f.b.ptrtoint(f.get(array, Field(f.library.pointer_bytes * k, PTR)), I64)


def _require_amx(f: Body, model: Interface) -> None:
    with f.when(f.b.icmp_signed("==", f.call("tw_may_use_amx"), I32(0))):
        reason = "it may use AMX, which the system does not let this process use"
        remedy = "compile it with -mattr=-amx-tile"
        set_error(f, f"{model.prefix} stopped: {reason}; {remedy}")
        f.ret(I32(_NO_AMX))


class _Words:
    """The words of a program's arguments, filled one after the other."""

    def __init__(self, f: Body, count: int) -> None:
        self._f, self._used = f, 0
        self.memory = f.scratch(8 * count)

    def add(self, word: Value) -> None:
        self._f.put(word, self.memory, Field(8 * self._used, I64))
        self._used += 1


def _hand_over(
    f: Body, model: Interface, record: Value, outputs: Value, others: Sequence[Value]
) -> None:
    """Return outputs whose sizes the run computes: their memory, and their shapes, in order."""
    at = 0
    for k, place in model.records.items():
        made = f.get(record, Field(8 * place, PTR))
        f.put(made, outputs, Field(f.library.pointer_bytes * k, PTR))
        for axis in range(len(model.outputs[k].shape)):
            extent = f.get(record, Field(8 * (place + 1 + axis), I64))
            f.put(extent, others[-1], Field(8 * at, I64))
            at += 1


def _init(library: Library, model: Interface) -> None:
    f = library.define(f"{model.prefix}_init", VOID, [I32], exported=True)
    if library.has_threads:
        f.call("tw_pool_destroy", swap(f, POOL, f.call("tw_make_pool", f.args[0])))
    f.ret()


def _free(library: Library, model: Interface) -> None:
    f = library.define(f"{model.prefix}_free", VOID, [], exported=True)
    if library.has_threads:
        f.call("tw_pool_destroy", swap(f, POOL, PTR(None)))
    f.call("free", swap(f, SPARE, PTR(None)))
    f.ret()


def _error(library: Library, model: Interface) -> None:
    f = library.define(f"{model.prefix}_error", PTR, [], exported=True)
    f.ret(f.at(variable(library, ERROR), Field(0)))
