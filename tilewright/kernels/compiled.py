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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import __version__
from tilewright.codegen import numbers_of
from tilewright.ir import Buffer, Const, Expr, Function, parse_function, structural_hash
from tilewright.kernels.formulas import Formula, expr_of, formula_of
from tilewright.kernels.pipeline import Options, generated, stages_of
from tilewright.support.cache import cache_key, default_cache
from tilewright.support.faults import during
from tilewright.target import KINDS, Target, why_not_here

if TYPE_CHECKING:
    from tilewright.lower import Prepared


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
    """A kernel's code with what its callers must know."""

    name: str
    messages: tuple[str, ...]
    workspace: Formula
    #: The code in the form in which the target's back end keeps it.
    code: bytes
    preparation: Preparation | None = None

    def packed(self) -> bytes:
        """All of it as bytes."""
        once = self.preparation
        prepares = b"" if once is None else once.object_code
        head = {
            "kernel": [self.name, self.messages, self.workspace, len(self.code)],
            "once": once and [once.name, once.messages, once.taken, once.dropped, once.made],
        }
        text = json.dumps(head).encode()
        return len(text).to_bytes(8, "little") + text + self.code + prepares

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
    _, split, code = stages_of(function, target, options)
    workspace = formula_of(code.workspace, numbers_of(function))
    once = _compiled_preparation(split, target, options) if split else None
    return CompiledKernel(code.name, code.messages, workspace, code.kept(), once)


def _compiled_preparation(split: Prepared, target: Target, options: Options) -> Preparation:
    code = generated(split.prepare, _preparing(target), options)
    made = tuple((b.dtype.name, _static_shape(b)) for b in split.made)
    object_code = code.object_code()
    return Preparation(code.name, object_code, code.messages, split.taken, split.dropped, made)


def _preparing(target: Target) -> Target:
    """The machine that prepares constants: this one, where code for the target cannot run here.

    Code that another program compiles is not waited for.
    """
    is_ours = target.kind is KINDS["llvm"]
    runs = is_ours and not why_not_here(target.triple, target.features)
    return target if runs else Target.of("llvm")


def _static_shape(buffer: Buffer) -> tuple[int, ...]:
    return tuple(int(d.value) for d in buffer.shape if isinstance(d, Const))


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
