"""Kernels: loop functions as object code, each compiled once and kept on disk.

What a kernel's callers must know travels with its code: the messages it can fail with, and how
much workspace it needs, over its numbers (scalars, then dimensions). All of it is plain data, so
that it can lie in the cache and go between processes.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tilewright import __version__
from tilewright.ir import (
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    Iter,
    Param,
    Var,
    While,
    parse_function,
    structural_hash,
    walk,
)
from tilewright.kernels.formulas import Formula, expr_of, formula_of
from tilewright.support.cache import cache_key, default_cache
from tilewright.support.denormals import Denormals
from tilewright.support.faults import during
from tilewright.target import Target, why_not_here

if TYPE_CHECKING:
    from tilewright.codegen import Kernel
    from tilewright.lower import Prepared

#: Instances of blocks in a function that keeps its loops as they are written.
_TINY: Final = 1024


@dataclass(frozen=True)
class Options:
    """What changes the code of a kernel beside its loops and its target."""

    #: Add a bounds check to every access.
    checked: bool = False
    denormals: Denormals = "flush"


@dataclass(frozen=True)
class Preparation:
    """What a kernel does with constants alone, once: it fills buffers that the kernel takes."""

    name: str
    object_code: bytes
    messages: tuple[str, ...]
    #: The kernel's parameters, by number, that this takes before the buffers it fills.
    taken: tuple[int, ...]
    #: The kernel's parameters, by number, that it has no use for any more.
    dropped: tuple[int, ...]
    #: The element types and shapes of the buffers, which follow the kernel's other parameters.
    made: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel's object code with what its callers must know."""

    name: str
    messages: tuple[str, ...]
    workspace: Formula
    object_code: bytes
    preparation: Preparation | None = None

    def packed(self) -> bytes:
        """All of it as bytes."""
        once = self.preparation
        code = b"" if once is None else once.object_code
        head = {
            "kernel": [self.name, self.messages, self.workspace, len(self.object_code)],
            "once": once and [once.name, once.messages, once.taken, once.dropped, once.made],
        }
        text = json.dumps(head).encode()
        return len(text).to_bytes(8, "little") + text + self.object_code + code

    @staticmethod
    def unpacked(data: bytes) -> CompiledKernel:
        """The kernel that `packed` made these bytes of."""
        start = 8 + int.from_bytes(data[:8], "little")
        head = json.loads(data[8:start])
        name, messages, workspace, size = head["kernel"]
        end = start + size
        once = None if head["once"] is None else _preparation(head["once"], data[end:])
        return CompiledKernel(name, tuple(messages), workspace, data[start:end], once)

    def workspace_for(self, numbers: Sequence[Expr]) -> Expr:
        """The bytes of workspace for a call with these numbers."""
        return expr_of(self.workspace, numbers)


def _preparation(fields: Sequence[Any], code: bytes) -> Preparation:
    name, messages, taken, dropped, made = fields
    shapes = tuple((dtype, tuple(shape)) for dtype, shape in made)
    return Preparation(name, code, tuple(messages), tuple(taken), tuple(dropped), shapes)


def compile_kernels(
    functions: Sequence[Function], target: Target, options: Options
) -> list[CompiledKernel]:
    """Object code for all functions: from the cache, or compiled by all cores."""
    from tilewright.kernels.workers import compile_side_by_side

    store = default_cache()
    keys = [_key(f, target, options) for f in functions]
    found = [store.get(key) for key in keys]
    missing = [k for k, data in enumerate(found) if data is None]
    made = compile_side_by_side([functions[k] for k in missing], target, options)
    for k, data in zip(missing, made, strict=True):
        found[k] = data
        store.put(keys[k], data)
    return [CompiledKernel.unpacked(data) for data in found if data is not None]


def compile_text(text: str, target: Target, options: Options) -> bytes:
    """What `compile_function` makes of a function in the text form."""
    return compile_function(parse_function(text), target, options)


def compile_function(function: Function, target: Target, options: Options) -> bytes:
    """A packed kernel of a loop function under the default schedule."""
    with during("kernel", function.name, function):
        return _compiled(function, target, options).packed()


def _compiled(function: Function, target: Target, options: Options) -> CompiledKernel:
    from tilewright.lower import split_constant_work

    scheduled = default_schedule(function, target)
    split = split_constant_work(scheduled)
    kernel, code = _object_code(split.function if split else scheduled, target, options)
    workspace = formula_of(kernel.workspace, numbers_of(function))
    once = _compiled_preparation(split, target, options) if split else None
    return CompiledKernel(kernel.name, kernel.messages, workspace, code, once)


def default_schedule(function: Function, target: Target) -> Function:
    """The function under the schedule that its kernel gets."""
    from tilewright.schedule import schedule_by_rules

    if _is_tiny(function):
        return function
    return schedule_by_rules(function, target, by_address=True)


def _is_tiny(function: Function) -> bool:
    """Whether all loops together take so few turns that no schedule is worth being found."""
    turns = 0
    for stmt in walk(function.body):
        if isinstance(stmt, While) or (
            isinstance(stmt, For) and not isinstance(stmt.extent, Const)
        ):
            return False
        if isinstance(stmt, Block):
            turns += prod(_extent(it) for it in stmt.iters)
    return turns <= _TINY


def _extent(it: Iter) -> int:
    return int(it.extent.value) if isinstance(it.extent, Const) else _TINY + 1


def _compiled_preparation(split: Prepared, target: Target, options: Options) -> Preparation:
    kernel, code = _object_code(split.prepare, _preparing(target), options)
    made = tuple((b.dtype.name, _static_shape(b)) for b in split.made)
    return Preparation(kernel.name, code, kernel.messages, split.taken, split.dropped, made)


def _preparing(target: Target) -> Target:
    """The machine that prepares constants: this one, where code for the target cannot run here."""
    return Target.of("llvm") if why_not_here(target.triple, target.features) else target


def _static_shape(buffer: Buffer) -> tuple[int, ...]:
    return tuple(int(d.value) for d in buffer.shape if isinstance(d, Const))


def _object_code(function: Function, target: Target, options: Options) -> tuple[Kernel, bytes]:
    from tilewright.codegen import emit_object, generate, optimize, parse, target_machine
    from tilewright.lower import lower

    checked, denormals = options.checked, options.denormals
    lowered = lower(function, target, checked=checked, denormals=denormals)
    kernel = generate(lowered, target, denormals=denormals)
    machine = target_machine(target.triple, target.llvm_cpu, target.llvm_features)
    module = parse(kernel.llvm)
    optimize(module, machine)
    return kernel, emit_object(module, machine)


def numbers_of(function: Function) -> list[Var]:
    """The numbers that a kernel takes: its scalars, then its dimensions."""
    params: list[Param] = [*function.params, *function.dims]
    return [p for p in params if isinstance(p, Var)]


# ---- keys ---------------------------------------------------------------------------------------


def _key(function: Function, target: Target, options: Options) -> str:
    body = structural_hash(function, with_name=False)
    machines = f"{target} prepared by {_preparing(target)}"
    return cache_key("kernel", body, function.name, machines, str(options), tool_version())


@cache
def tool_version() -> str:
    """Whose code it is: the text of this package, and the LLVM below. Others' code is not taken."""
    import llvmlite

    return cache_key(
        __version__, llvmlite.__version__, sources_digest(Path(__file__).parent.parent)
    )


def sources_digest(root: Path) -> str:
    """The digest of all Python files below `root`: what they are called and what they say."""
    # Reading them all takes no longer than asking for their times, and two copies are the same.
    paths = (os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)
    digest = hashlib.sha256()
    for path in sorted(p for p in paths if p.endswith(".py")):
        with open(path, "rb", buffering=0) as file:
            text = file.read()
        digest.update(f"{path[len(str(root)) :]} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()
