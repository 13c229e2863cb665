"""Kernels: loop functions as object code, each compiled once and kept on disk.

What a kernel's callers must know travels with its code: the messages it can fail with, and how
much workspace it needs, over its numbers (scalars, then dimensions). All of it is plain data, so
that it can lie in the cache and go between processes.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright import __version__
from tilewright.codegen import numbers_of
from tilewright.ir import Buffer, Const, Expr, Function, parse_function, structural_hash
from tilewright.kernels.formulas import expr_of, formula_of
from tilewright.kernels.pipeline import Options, generated, stages_of
from tilewright.runtime import PackedKernel, Preparation
from tilewright.schedule import UNAPPLIED
from tilewright.support.cache import cache_key, default_cache
from tilewright.support.faults import during
from tilewright.target import KINDS, Target, why_not_here

if TYPE_CHECKING:
    from tilewright.lower import Prepared


class CompiledKernel(PackedKernel):
    """A kernel's code with what its callers must know."""

    def workspace_for(self, numbers: Sequence[Expr]) -> Expr:
        """The bytes of workspace for a call with these numbers."""
        return expr_of(self.workspace, numbers)


def compile_kernels(
    functions: Sequence[Function], target: Target, options: Sequence[Options]
) -> list[CompiledKernel]:
    """Object code for all functions, each by its own options: from the cache, or compiled by all
    cores."""
    from tilewright.kernels.workers import compile_side_by_side

    store = default_cache()
    keys = [_key(f, target, o) for f, o in zip(functions, options, strict=True)]
    found = [store.get(key) for key in keys]
    missing = [k for k, data in enumerate(found) if data is None]
    made = compile_side_by_side(
        [functions[k] for k in missing], target, [options[k] for k in missing]
    )
    for k, data in zip(missing, made, strict=True):
        found[k] = data
        store.put(keys[k], data)
    return [CompiledKernel.unpacked(data) for data in found if data is not None]


def with_schedulers(
    options: Options, functions: Sequence[Function], schedulers: Mapping[str, str]
) -> list[Options]:
    """The options for each function: with the scheduler for its loops, where there is one."""
    if not schedulers:
        return [options] * len(functions)
    keys = [schedulers.get(loops_key(f)) for f in functions]
    return [options if key is None else replace(options, scheduler=key) for key in keys]


def warn_of_notes(kernels: Sequence[CompiledKernel]) -> None:
    """Say, once for all kernels, what their users should know of them."""
    noted = [k for k in kernels if k.note]
    if noted:
        others = f" (and {len(noted) - 1} others)" if len(noted) > 1 else ""
        warnings.warn(
            f"the record for {noted[0].name}{others} does not apply any more, so that the default"
            f" schedule is used: {noted[0].note}",
            stacklevel=2,
        )


def compile_text(text: str, target: Target, options: Options) -> bytes:
    """What `compile_function` makes of a function in the text form."""
    return compile_function(parse_function(text), target, options)


def compile_function(function: Function, target: Target, options: Options) -> bytes:
    """A packed kernel of a loop function under the default schedule."""
    with during("kernel", function.name, function):
        return _compiled(function, target, options).packed()


def _compiled(function: Function, target: Target, options: Options) -> CompiledKernel:
    made, split, code = stages_of(function, target, options)
    workspace = formula_of(code.workspace, numbers_of(function))
    once = _compiled_preparation(split, target, options) if split else None
    note = made.attrs.get(UNAPPLIED, "")
    return CompiledKernel(code.name, code.messages, workspace, code.serialized(), once, note)


def _compiled_preparation(split: Prepared, target: Target, options: Options) -> Preparation:
    code = generated(split.prepare, _preparing(target, options), options)
    made = tuple((b.dtype.name, _static_shape(b)) for b in split.made)
    size = code.workspace
    workspace = int(size.value) if isinstance(size, Const) else None
    return Preparation(
        code.name,
        code.object_code(),
        code.messages,
        split.taken,
        split.dropped,
        made,
        workspace,
    )


def _preparing(target: Target, options: Options) -> Target:
    """The machine that prepares constants: this one, where code for the target cannot run here.

    Code that another program compiles is not waited for.
    """
    is_ours = target.kind is KINDS["llvm"]
    if is_ours and options.prepares_there:
        return target
    runs = is_ours and not why_not_here(target.triple, target.features)
    return target if runs else Target.of("llvm")


def _static_shape(buffer: Buffer) -> tuple[int, ...]:
    return tuple(int(d.value) for d in buffer.shape if isinstance(d, Const))


# ---- keys ---------------------------------------------------------------------------------------


def loops_key(function: Function) -> str:
    """What identifies the loops of a kernel, whatever it, its variables and buffers are called."""
    return structural_hash(function, with_name=False)


def _key(function: Function, target: Target, options: Options) -> str:
    body = loops_key(function)
    machines = f"{target} prepared by {_preparing(target, options)}"
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
