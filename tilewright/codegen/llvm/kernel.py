"""From a lowered loop function to an LLVM module with its kernel and its entry points.

The module follows `codegen.convention`. `NAME.entry` runs the kernel in its own floating-point
state and restores the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.arith import Ranges
from tilewright.codegen.captured import buffers_of
from tilewright.codegen.convention import (
    Workspace,
    adopt_messages,
    arena_name,
    code_called,
    in_place,
    is_host_program,
    parameters,
)
from tilewright.codegen.llvm.context import AliasScopes, Context
from tilewright.codegen.llvm.expr import emit
from tilewright.codegen.llvm.float_state import declare_float_state, get_state, set_state, state_for
from tilewright.codegen.llvm.frame import Frame
from tilewright.codegen.llvm.profile import EventEmitter
from tilewright.codegen.llvm.stmt import emit_stmt
from tilewright.codegen.llvm.streams import emit_streaming
from tilewright.codegen.llvm.types import (
    LLType,
    i8,
    i32,
    i64,
    llvm,
    pointer,
    register_type,
)
from tilewright.codegen.sizes import saturated
from tilewright.ir import Buffer, Const, Expr, Function, Param, Var
from tilewright.support.denormals import Denormals
from tilewright.support.memory import ALIGNMENT
from tilewright.target import Target


@dataclass(frozen=True)
class LLVMKernel:
    """An LLVM module as text, with what its callers must know."""

    name: str
    llvm: str
    messages: tuple[str, ...]
    #: Bytes of workspace, as an expression over the function's scalars and dimensions.
    workspace: Expr


def generate(
    function: Function,
    target: Target,
    *,
    profiled: bool = False,
    denormals: Denormals = "flush",
) -> LLVMKernel:
    """LLVM IR for a lowered function; a profiled one records its calls (`codegen.llvm.profile`)."""
    module = llvm.Module(function.name)
    module.triple = target.triple
    messages: list[str] = []
    workspace = _emit_kernel(module, function, target, messages, profiled)
    if target.is_bare:
        _emit_arena(module, function, workspace)
    else:
        _emit_entry(module, function, target, denormals)
        _emit_workspace(module, function, target, workspace)
    if target.flushes_denormals:
        declare_float_state(module, denormals)
    text = str(module)
    _take_apart(module)
    return LLVMKernel(function.name, text, tuple(messages), workspace.size)


def _take_apart(module: Any) -> None:
    """Remove the references in circles among a module's parts, so that memory is freed at once and
    not by a search of the garbage collector through all of them."""
    for function in module.functions:
        for block in function.blocks:
            for phi in filter(_is_phi, block.instructions):
                phi.incomings.clear()
            block.instructions.clear()
            block.terminator = None
        function.blocks.clear()
    module.globals.clear()


def _is_phi(instruction: Any) -> bool:
    return isinstance(instruction, llvm.PhiInstr)


def _parameter_type(param: Param) -> LLType:
    return pointer if isinstance(param, Buffer) else register_type(param.dtype)


def _emit_kernel(
    module: Any, function: Function, target: Target, messages: list[str], profiled: bool
) -> Workspace:
    params = parameters(function)
    signature = llvm.FunctionType(i32, [*(_parameter_type(p) for p in params), pointer])
    kernel = llvm.Function(module, signature, function.name)
    if target.is_bare:
        kernel.attributes.add("nounwind")
    builder = llvm.IRBuilder(kernel.append_basic_block("entry"))
    aliases = AliasScopes(module, function.name)
    aliased = in_place(function)
    aliases.register(buffers_of(function), aliased)
    cx = Context(module, target, builder, aliases, ranges=Ranges.for_function(function))
    for param, argument in zip(params, kernel.args, strict=False):
        _bind(cx, param, argument, param not in aliased)
    workspace = Workspace.of(function)
    frame = Frame(cx, kernel.args[-1], workspace, messages, emit_stmt, is_host=True)
    frame.recorder = EventEmitter(cx, function.name) if profiled else None
    frame.on_device = bool(function.attrs.get("device"))
    frame.images = dict(function.attrs.get("images", {}))
    frame.first_messages = adopt_messages(function, messages)
    frame.shared = code_called(function)
    emit_streaming(frame, function)
    frame.finish()
    return workspace


def _bind(cx: Context, param: Param, argument: Any, is_unaliased: bool) -> None:
    if isinstance(param, Var):
        cx.variables[param] = argument
        return
    if is_unaliased:
        argument.add_attribute("noalias")
    argument.attributes.align = param.alignment
    cx.addresses[param] = argument


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
    # A kernel has a single exit, so the state can be restored after the call.
    slot = builder.alloca(i64)
    slot.type = pointer
    callers = get_state(builder, target.arch, slot)
    set_state(builder, target.arch, slot, state_for(target.arch, denormals))
    code = builder.call(kernel, [*values, env])
    set_state(builder, target.arch, slot, callers)
    builder.ret(code)


def _emit_arena(module: Any, function: Function, workspace: Workspace) -> None:
    """The static workspace of a program of constant size; kernels use their program's."""
    if not is_host_program(function) or not isinstance(workspace.size, Const):
        return
    kind = llvm.ArrayType(i8, int(workspace.size.value))
    arena = llvm.GlobalVariable(module, kind, arena_name(function.name))
    arena.initializer, arena.align = llvm.Constant(kind, None), ALIGNMENT


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
