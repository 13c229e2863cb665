"""From a lowered loop function to an LLVM module with its kernel and the ways to call it.

For a function `f` the module defines
    f            the kernel, as `frame` describes its signature
    f.entry      the same for callers that only know how to pass one pointer: to an array of 8-byte
                 words with the arguments in order, then the three words of `env`; the kernel runs
                 in a floating-point state of its own, and the caller's is put back
    f.workspace  how many bytes of workspace it needs: takes the same words
A function that calls kernels names them in its attribute `kernels`, with the messages of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tilewright.arith import Ranges
from tilewright.codegen.llvm.context import AliasScopes, Context
from tilewright.codegen.llvm.expr import emit
from tilewright.codegen.llvm.float_state import get_state, set_state, state_for, tell_llvm
from tilewright.codegen.llvm.frame import Frame, Workspace
from tilewright.codegen.llvm.profile import Recorder
from tilewright.codegen.llvm.sizes import saturated
from tilewright.codegen.llvm.stmt import emit_stmt
from tilewright.codegen.llvm.streams import emit_streaming
from tilewright.codegen.llvm.types import (
    LLType,
    i32,
    i64,
    llvm,
    pointer,
    register_type,
)
from tilewright.ir import Alloc, Buffer, Expr, Function, Param, Var, walk
from tilewright.support.denormals import Denormals
from tilewright.target import Target


@dataclass(frozen=True)
class Kernel:
    """An LLVM module in text form, with what its callers must know."""

    name: str
    llvm: str
    messages: tuple[str, ...]
    #: Bytes of workspace, over the function's scalars and dimensions.
    workspace: Expr


def generate(
    function: Function,
    target: Target,
    *,
    profiled: bool = False,
    denormals: Denormals = "flush",
) -> Kernel:
    """LLVM IR for a lowered function; a profiled one records its calls (`codegen.llvm.profile`)."""
    module = llvm.Module(function.name)
    module.triple = target.triple
    messages: list[str] = []
    workspace = _emit_kernel(module, function, target, messages, profiled)
    _emit_entry(module, function, target, denormals)
    _emit_workspace(module, function, target, workspace)
    if target.flushes_denormals:
        tell_llvm(module, denormals)
    return Kernel(function.name, str(module), tuple(messages), workspace.size)


def parameters(function: Function) -> list[Param]:
    """What the kernel takes before `env`: the function's parameters, then its dimensions."""
    return [*function.params, *function.dims]


def _parameter_type(param: Param) -> LLType:
    return pointer if isinstance(param, Buffer) else register_type(param.dtype)


def _emit_kernel(
    module: Any, function: Function, target: Target, messages: list[str], profiled: bool
) -> Workspace:
    params = parameters(function)
    signature = llvm.FunctionType(i32, [*(_parameter_type(p) for p in params), pointer])
    kernel = llvm.Function(module, signature, function.name)
    builder = llvm.IRBuilder(kernel.append_basic_block("entry"))
    aliases = AliasScopes(module, function.name)
    together = _in_place(function)
    aliases.know(_buffers_of(function), together)
    cx = Context(module, target, builder, aliases)
    for param, argument in zip(params, kernel.args, strict=False):
        _bind(cx, param, argument, param not in together)
    workspace = Workspace(_numbers(function), Ranges.for_function(function))
    frame = Frame(cx, kernel.args[-1], workspace, messages, emit_stmt, is_host=True)
    frame.recorder = Recorder(cx, function.name) if profiled else None
    frame.first_messages = _adopt_messages(function, messages)
    emit_streaming(frame, function)
    frame.finish()
    return workspace


def _numbers(function: Function) -> list[Var]:
    """What is known of sizes when the function starts: its scalars and dimensions."""
    return [p for p in parameters(function) if isinstance(p, Var)]


def _adopt_messages(function: Function, messages: list[str]) -> dict[str, int]:
    """Add the messages of all kernels to the table; gives where those of each begin."""
    first: dict[str, int] = {}
    for name, own in function.attrs.get("kernels", {}).items():
        if own:
            first[name] = len(messages)
            messages.extend(own)
    return first


def _in_place(function: Function) -> list[Buffer]:
    """The operands that may be written over, and the result."""
    numbers = function.attrs.get("in_place", ())
    buffers = function.buffers
    return [*(buffers[k] for k in numbers), buffers[-1]] if numbers else []


def _bind(cx: Context, param: Param, argument: Any, alone: bool) -> None:
    if isinstance(param, Var):
        cx.variables[param] = argument
        return
    if alone:
        argument.add_attribute("noalias")
    argument.attributes.align = param.alignment
    cx.addresses[param] = argument


def _buffers_of(function: Function) -> Iterator[Buffer]:
    yield from function.buffers
    for stmt in walk(function.body):
        if isinstance(stmt, Alloc):
            yield from stmt.buffers


def _emit_entry(module: Any, function: Function, target: Target, denormals: Denormals) -> None:
    entry = llvm.Function(module, llvm.FunctionType(i32, [pointer]), f"{function.name}.entry")
    builder = llvm.IRBuilder(entry.append_basic_block("entry"))
    words = entry.args[0]
    params = parameters(function)
    values = [_load_word(builder, words, k, _parameter_type(p)) for k, p in enumerate(params)]
    env = _word_address(builder, words, len(params))
    kernel = module.globals[function.name]
    if not target.flushes_denormals:
        builder.ret(builder.call(kernel, [*values, env]))
        return
    # There is one way out of a kernel, whatever happens in it.
    slot = builder.alloca(i64)
    slot.type = pointer
    callers = get_state(builder, target.arch, slot)
    set_state(builder, target.arch, slot, state_for(target.arch, denormals))
    code = builder.call(kernel, [*values, env])
    set_state(builder, target.arch, slot, callers)
    builder.ret(code)


def _emit_workspace(module: Any, function: Function, target: Target, workspace: Workspace) -> None:
    kind = llvm.FunctionType(i64, [pointer])
    size = llvm.Function(module, kind, f"{function.name}.workspace")
    builder = llvm.IRBuilder(size.append_basic_block("entry"))
    cx = Context(module, target, builder, AliasScopes(module, size.name))
    for k, param in enumerate(parameters(function)):
        if isinstance(param, Var):
            cx.variables[param] = _load_word(builder, size.args[0], k, _parameter_type(param))
    builder.ret(emit(cx, saturated(workspace.size)))


def _load_word(builder: Any, words: Any, number: int, kind: LLType) -> Any:
    return builder.load(_word_address(builder, words, number), typ=kind)


def _word_address(builder: Any, words: Any, number: int) -> Any:
    return builder.gep(words, [llvm.Constant(i64, number)], source_etype=i64)
