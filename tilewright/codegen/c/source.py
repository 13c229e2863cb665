"""Source files: kernels, host programs, and the prelude before them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tilewright.codegen.c.frame import CFrame, Unit
from tilewright.codegen.c.inline_functions import Key, inline_sources
from tilewright.codegen.c.stmt import emit_stmt
from tilewright.codegen.c.types import c_type, function_name, memory_type
from tilewright.codegen.convention import (
    EVENT_WORDS,
    Workspace,
    adopt_messages,
    code_called,
    in_place,
    numbers_of,
    parameters,
)
from tilewright.codegen.sizes import saturated
from tilewright.ir import Buffer, Expr, Function, Param

#: Loaders look functions up by names that are not valid in C, which GCC and Clang can assign; other
#: compilers use the C names. Exported files make all of it private.
PRELUDE: Final = """\
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef TW_KERNEL
#define TW_KERNEL
#define TW_POOL
#if defined(__APPLE__)
#define TW_NAMED(name) __asm__("_" name)
#elif defined(__GNUC__)
#define TW_NAMED(name) __asm__(name)
#else
#define TW_NAMED(name)
#endif
#endif
"""

_PROFILE: Final = """\
#include <time.h>

/* The address of an array of events, how many fit there, how many there were. */
uint64_t tw_profile[3] TW_NAMED("{name}.profile");
uint64_t tw_profile[3] = {{0, 0, 0}};

static int64_t tw_now(void) {{
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}}

static void tw_record(int64_t call, int64_t began, const int64_t *numbers, int count) {{
  const int64_t ended = tw_now();
  if (tw_profile[2] < tw_profile[1]) {{
    int64_t *const event = (int64_t *)(uintptr_t)tw_profile[0] + {words} * tw_profile[2];
    event[0] = call, event[1] = began, event[2] = ended;
    for (int k = 0; k < count; ++k) event[3 + k] = numbers[k];
  }}
  ++tw_profile[2];
}}
"""


@dataclass(frozen=True)
class CKernel:
    """A kernel in C, with what its callers must know."""

    name: str
    inline_functions: tuple[Key, ...]
    declarations: tuple[str, ...]
    body: str
    messages: tuple[str, ...]
    workspace: Expr

    def serialized(self) -> bytes:
        """The parts of the text as JSON, for `file_of`."""
        return json.dumps([self.inline_functions, self.declarations, self.body]).encode()


def file_of(kept: Iterable[bytes], *, first: str = "", last: str = "") -> str:
    """One source file of several kernels, each from `CKernel.serialized`."""
    used, declarations = set[Key](), dict[str, None]()
    bodies: list[str] = []
    for data in kept:
        own, declared, body = json.loads(data)
        used.update(tuple(key) for key in own)
        declarations.update(dict.fromkeys(declared))
        bodies.append(body)
    texts = [
        first,
        PRELUDE,
        inline_sources(used),
        "\n".join(declarations),
        *bodies,
        last,
    ]
    return "\n".join(t for t in texts if t) + "\n"


def generate(function: Function, *, profiled: bool = False) -> CKernel:
    """C for a lowered function: the kernel, and its entry points."""
    unit, messages = Unit(), list[str]()
    workspace = Workspace.of(function)
    if profiled:
        unit.functions.append(_PROFILE.format(name=function.name, words=EVENT_WORDS))
    _emit_kernel(unit, function, workspace, messages, profiled)
    _emit_entry(unit, function)
    _emit_workspace(unit, function, workspace)
    if any("tw_list_release" in d for d in unit.declarations):
        _emit_release(unit, function)
    return CKernel(
        function.name,
        tuple(sorted(unit.inline_functions)),
        tuple(unit.declarations),
        "\n".join(unit.functions),
        tuple(messages),
        workspace.size,
    )


def _emit_kernel(
    unit: Unit, function: Function, workspace: Workspace, messages: list[str], profiled: bool
) -> None:
    frame = CFrame(unit, function_name(function.name), workspace, messages, is_main=True)
    frame.first_messages = adopt_messages(function, messages)
    frame.shared = code_called(function)
    frame.profiled = profiled
    frame.known = frozenset(numbers_of(function))
    together, params, first = in_place(function), list[str](), list[str]()
    for param in parameters(function):
        name = frame.names.new(param.name)
        if isinstance(param, Buffer):
            kind = memory_type(param.dtype)
            alone = "" if param in together else "restrict "
            taken = frame.names.new(f"{param.name}_at")
            first += [f"  {kind} *{alone}const {name} = {taken};", f"  (void){name};"]
            params.append(f"void *{taken}")
            frame.place(param, name)
        else:
            params.append(f"{c_type(param.dtype)} {name}")
            frame.bind(param, name)
    emit_stmt(frame, function.body)
    head = f"{frame.name}({', '.join([*params, 'const uint64_t *env'])})"
    kinds = ", ".join([*map(_kind, parameters(function)), "const uint64_t *"])
    # Must equal the text by which host programs declare it.
    declared = f'TW_KERNEL int32_t {frame.name}({kinds}) TW_NAMED("{function.name}");'
    unit.declare(declared)
    unit.functions.append(frame.finished(f"TW_KERNEL int32_t {head}", [*first, "  (void)env;"]))


def _kind(param: Param) -> str:
    return "void *" if isinstance(param, Buffer) else c_type(param.dtype)


def _emit_entry(unit: Unit, function: Function) -> None:
    frame = CFrame(unit, "", Workspace(), [], is_main=False)
    own, params = function_name(function.name), parameters(function)
    args = [_from_word(frame, param, k) for k, param in enumerate(params)]
    call = f"{own}({', '.join([*args, f'words + {len(params)}'])})"
    _add(unit, f"int32_t {own}_entry", f"{function.name}.entry", [f"  return {call};"])


def _emit_workspace(unit: Unit, function: Function, workspace: Workspace) -> None:
    frame = CFrame(unit, "", Workspace(), [], is_main=False)
    for k, param in enumerate(parameters(function)):
        if not isinstance(param, Buffer) and param in saturated(workspace.size).variables:
            text = _from_word(frame, param, k)
            frame.bind(param, frame.named(param.dtype, text, param.name))
    size = frame.value(saturated(workspace.size))
    body = ["  (void)words;", *frame.lines, f"  return {size};"]
    name = function_name(function.name)
    _add(unit, f"int64_t {name}_workspace", f"{function.name}.workspace", body)


def _add(unit: Unit, head: str, label: str, body: Sequence[str]) -> None:
    """Add a function that takes words, by the name that loaders look up."""
    unit.declare(f'TW_KERNEL {head}(const uint64_t *) TW_NAMED("{label}");')
    text = [f"TW_KERNEL {head}(const uint64_t *words) {{", *body, "}"]
    unit.functions.append("\n".join(text) + "\n")


def _from_word(frame: CFrame, param: Param, number: int) -> str:
    word = f"words[{number}]"
    if isinstance(param, Buffer):
        return f"(void *)(uintptr_t){word}"
    if not param.dtype.is_float:
        return f"(bool)({word} & 1)" if param.dtype.is_bool else f"({c_type(param.dtype)}){word}"
    bits = f"u{param.dtype.bits}"
    return frame.inline(("bits", bits, param.dtype.short), f"(uint{param.dtype.bits}_t){word}")


def _emit_release(unit: Unit, function: Function) -> None:
    """The function by which the caller of a program releases lists that it received."""
    name = f"{function_name(function.name)}_release"
    unit.declare(f'TW_KERNEL void {name}(uint64_t *) TW_NAMED("{function.name}.release");')
    unit.functions.append(
        f"TW_KERNEL void {name}(uint64_t *list) {{\n  tw_list_release(list);\n}}\n"
    )
