"""Kernels: loop functions as object code, with what their callers must know.

That is the error messages of a kernel, and the size of its workspace as a formula over its numbers
(scalars, then dimensions). All of it is plain data, to be cached and sent between processes.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright import __version__
from tilewright.codegen import OUT_OF_MEMORY, backend_of, numbers_of
from tilewright.ir import (
    Assert,
    Buffer,
    Const,
    Expr,
    Function,
    const,
    function_text,
    parse_function,
    structural_hash,
    walk,
)
from tilewright.kernels.formulas import expr_of, formula_of
from tilewright.kernels.pipeline import After, Options, generated, scheduled, split_of
from tilewright.runtime import PackedKernel, Preparation
from tilewright.schedule import UNAPPLIED
from tilewright.support.cache import cache_key
from tilewright.support.errors import UserError
from tilewright.support.faults import during
from tilewright.target import KINDS, Target, why_not_here

if TYPE_CHECKING:
    from tilewright.codegen import Code


@dataclass(frozen=True)
class CompiledKernel(PackedKernel):
    """A kernel's code with what its callers must know."""

    #: Leading arguments of code that kernels share (`kernels.families`).
    sizes: tuple[int, ...] = ()

    def workspace_for(self, numbers: Sequence[Expr]) -> Expr:
        """The bytes of workspace for a call with these numbers."""
        return expr_of(self.workspace, [*map(const, self.sizes), *numbers])


class Once(NamedTuple):
    """Work on constants that is done once: the parameters it reads, those the kernel drops, and the
    element types and shapes of its results."""

    taken: tuple[int, ...]
    dropped: tuple[int, ...]
    made: tuple[tuple[str, tuple[int, ...]], ...]


class ScheduledKernel(NamedTuple):
    """A scheduled kernel in parts: the function for every call, and the one that runs once."""

    parts: tuple[Function, ...]
    once: Once | None
    note: str

    def packed(self) -> bytes:
        """The kernel as bytes."""
        return json.dumps([[function_text(p) for p in self.parts], self.once, self.note]).encode()

    @staticmethod
    def unpacked(data: bytes) -> ScheduledKernel:
        """The kernel that `packed` serialized."""
        texts, once, note = json.loads(data)
        return ScheduledKernel(
            tuple(parse_function(t) for t in texts), once and once_of(once), note
        )


def once_of(fields: Sequence[Any]) -> Once:
    """`Once` from its fields after JSON, which has made lists of tuples."""
    taken, dropped, made = fields
    shapes = tuple((dtype, tuple(shape)) for dtype, shape in made)
    return Once(tuple(taken), tuple(dropped), shapes)


def with_schedulers(
    options: Options, functions: Sequence[Function], schedulers: Mapping[str, str]
) -> list[Options]:
    """The options for each function, with the tuned scheduler for its loops if there is one."""
    if not schedulers:
        return [options] * len(functions)
    keys = [schedulers.get(loops_key(f)) for f in functions]
    return [options if key is None else replace(options, scheduler=key) for key in keys]


def warn_of_notes(kernels: Mapping[str, CompiledKernel]) -> None:
    """Warn once, for all kernels, of tuning records that no longer apply."""
    noted = [(name, kernel.note) for name, kernel in kernels.items() if kernel.note]
    if noted:
        others = f" (and {len(noted) - 1} others)" if len(noted) > 1 else ""
        warnings.warn(
            f"the record for {noted[0][0]}{others} does not apply any more, so that the default"
            f" schedule is used: {noted[0][1]}",
            stacklevel=2,
        )


def compile_function(function: Function, target: Target, options: Options) -> bytes:
    """A loop function compiled to a serialized kernel, with its name in error reports."""
    with during("kernel", function.name, function):
        return compiled_kernel(function, target, options).packed()


def compiled_kernel(function: Function, target: Target, options: Options) -> CompiledKernel:
    """The kernel of a loop function."""
    return generated_kernel(scheduled_kernel(function, target, options), target, options)


def scheduled_kernel(function: Function, target: Target, options: Options) -> ScheduledKernel:
    """A loop function under its schedule, with the work on constants split off."""
    made = scheduled(function, target, options)
    split, note = split_of(made, target), made.attrs.get(UNAPPLIED, "")
    if split is None:
        return ScheduledKernel((made,), None, note)
    shapes = tuple((b.dtype.name, _static_shape(b)) for b in split.made)
    once = Once(split.taken, split.dropped, shapes)
    return ScheduledKernel((split.function, split.prepare), once, note)


def generated_kernel(kernel: ScheduledKernel, target: Target, options: Options) -> CompiledKernel:
    """The code of a scheduled kernel."""
    code = _serialized(kernel.parts, _codes(kernel.parts, target, options))
    return completed(code, kernel.once, kernel.note)


def shared_code(
    parts: Sequence[Function], target: Target, options: Options
) -> CompiledKernel | None:
    """The code of a family of kernels; None where each needs its own.

    That is where a fact holds for the sizes of each kernel but cannot be proved for all: the code
    then has checks, whose messages would name buffers of no kernel. Only "out of memory" may occur.
    """
    try:
        codes = _codes(parts, target, options, _require_proofs)
    except UserError:
        # A workspace whose size is static in each kernel alone, or a checked access.
        return None
    messages = {message for code in codes for message in code.messages}
    return _serialized(parts, codes) if messages <= {OUT_OF_MEMORY} else None


def _require_proofs(after: str, function: Function) -> None:
    """Stop the compilation of a function that contains checks, before more work is spent on it."""
    if after == "check_bounds" and any(isinstance(s, Assert) for s in walk(function.body)):
        raise UserError(f"{function.name} checks what it accesses")


def _codes(
    parts: Sequence[Function], target: Target, options: Options, after: After | None = None
) -> list[Code]:
    machines = (target, preparing(target, options))
    return [generated(p, m, options, after) for p, m in zip(parts, machines, strict=False)]


def _serialized(parts: Sequence[Function], codes: Sequence[Code]) -> CompiledKernel:
    code, *rest = codes
    workspace = formula_of(code.workspace, numbers_of(parts[0]))
    once = _preparation(rest[0]) if rest else None
    return CompiledKernel(code.name, code.messages, workspace, code.serialized(), once)


def completed(
    code: CompiledKernel, once: Once | None, note: str, sizes: Sequence[int] = ()
) -> CompiledKernel:
    """The code with the data of one kernel: its work on constants, note and sizes."""
    prepares = code.preparation
    if prepares is not None and once is not None:
        prepares = replace(prepares, **once._asdict())
    return replace(code, preparation=prepares, note=note, sizes=tuple(sizes))


def _preparation(code: Code) -> Preparation:
    size = code.workspace
    workspace = int(size.value) if isinstance(size, Const) else None
    return Preparation(code.name, code.object_code(), code.messages, (), (), (), workspace)


def preparing(target: Target, options: Options) -> Target:
    """The target that packs constants: this machine if code for the target cannot run here.

    Also this machine for code that another compiler generates, to avoid waiting for that compiler.
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
    """Cache key of a kernel's loops, regardless of the names of function, variables and buffers."""
    return structural_hash(function, with_name=False)


def kernel_key(function: Function, target: Target, options: Options) -> str:
    """Cache key of a kernel's code."""
    body = loops_key(function)
    machines = f"{target} prepared by {preparing(target, options)}"
    made_by = tool_version(), backend_of(target).tools()
    return cache_key("kernel", body, function.name, machines, str(options), *made_by)


def shared_key(parts: Sequence[Function], target: Target, options: Options) -> str:
    """Cache key of a family's code; its functions are scheduled already."""
    texts = [function_text(part) for part in parts]
    machines = f"{target} prepared by {preparing(target, options)}"
    known = str(replace(options, scheduler=""))
    return cache_key("family", *texts, machines, known, tool_version(), backend_of(target).tools())


@cache
def tool_version() -> str:
    """Digest of this package's sources and LLVM's version: code made by others is not reused."""
    import llvmlite

    return cache_key(
        __version__, llvmlite.__version__, sources_digest(Path(__file__).parent.parent)
    )


def sources_digest(root: Path) -> str:
    """The digest of all Python files below `root`, by path and content."""
    # Reading takes no longer than stat, and gives equal digests for two copies of the package.
    paths = (os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)
    digest = hashlib.sha256()
    for path in sorted(p for p in paths if p.endswith(".py")):
        with open(path, "rb", buffering=0) as file:
            text = file.read()
        digest.update(f"{path[len(str(root)) :]} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()
