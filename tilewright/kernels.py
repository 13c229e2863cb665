"""Kernels: loop functions as object code, each compiled once and kept on disk.

What a kernel's callers must know travels with its code: the messages it can fail with, and how
much workspace it needs, over its numbers (scalars, then dimensions). All of it is plain data, so
that it can lie in the cache and go between processes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tilewright import __version__
from tilewright.ir import (
    Binary,
    Const,
    Expr,
    Function,
    Param,
    Select,
    Unary,
    Var,
    binary,
    const,
    parse_function,
    select,
    structural_hash,
    unary,
)
from tilewright.support.cache import cache_key, default_cache
from tilewright.support.errors import InternalError
from tilewright.target import Target

#: A formula as plain data: a number, ["number", k] or [operation, operand, …].
Formula = Any


@dataclass(frozen=True)
class Options:
    """What changes the code of a kernel beside its loops and its target."""

    #: Add a bounds check to every access.
    checked: bool = False


@dataclass(frozen=True)
class CompiledKernel:
    """A kernel's object code with what its callers must know."""

    name: str
    messages: tuple[str, ...]
    workspace: Formula
    object_code: bytes

    def packed(self) -> bytes:
        """All of it as bytes."""
        head = {"name": self.name, "messages": self.messages, "workspace": self.workspace}
        text = json.dumps(head).encode()
        return len(text).to_bytes(8, "little") + text + self.object_code

    @staticmethod
    def unpacked(data: bytes) -> CompiledKernel:
        """The kernel that `packed` made these bytes of."""
        end = 8 + int.from_bytes(data[:8], "little")
        head = json.loads(data[8:end])
        return CompiledKernel(head["name"], tuple(head["messages"]), head["workspace"], data[end:])

    def workspace_for(self, numbers: Sequence[Expr]) -> Expr:
        """The bytes of workspace for a call with these numbers."""
        return _expr(self.workspace, numbers)


def compile_kernels(
    functions: Sequence[Function], target: Target, options: Options
) -> list[CompiledKernel]:
    """Object code for all functions: from the cache, or compiled by all cores."""
    from tilewright.workers import compile_side_by_side

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
    from tilewright.codegen import emit_object, generate, optimize, parse, target_machine
    from tilewright.lower import lower
    from tilewright.schedule import schedule_by_rules

    scheduled = schedule_by_rules(function, target)
    lowered = lower(scheduled, target, checked=options.checked)
    kernel = generate(lowered, target)
    machine = target_machine(target.triple, target.llvm_cpu, target.llvm_features)
    module = parse(kernel.llvm)
    optimize(module, machine)
    code = emit_object(module, machine)
    workspace = _formula(kernel.workspace, numbers_of(function))
    return CompiledKernel(kernel.name, kernel.messages, workspace, code).packed()


def numbers_of(function: Function) -> list[Var]:
    """The numbers that a kernel takes: its scalars, then its dimensions."""
    params: list[Param] = [*function.params, *function.dims]
    return [p for p in params if isinstance(p, Var)]


# ---- keys ---------------------------------------------------------------------------------------


def _key(function: Function, target: Target, options: Options) -> str:
    body = structural_hash(function, with_name=False)
    return cache_key("kernel", body, function.name, str(target), str(options), tool_version())


@cache
def tool_version() -> str:
    """The version, and what the package's files look like: code made by others is not taken."""
    digest = hashlib.sha256(__version__.encode())
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        stat = path.stat()
        digest.update(f"{path.relative_to(root)} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


# ---- formulas -----------------------------------------------------------------------------------


def _formula(expr: Expr, numbers: Sequence[Var]) -> Formula:
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, Var):
        return ["number", numbers.index(expr)]
    if isinstance(expr, Binary | Unary):
        return [expr.op, *(_formula(o, numbers) for o in expr.operands)]
    if isinstance(expr, Select):
        return ["select", *(_formula(o, numbers) for o in expr.operands)]
    raise InternalError(f"a workspace takes `{expr}` bytes, which is no formula")


def _expr(formula: Formula, numbers: Sequence[Expr]) -> Expr:
    if isinstance(formula, int):
        return const(formula)
    name: str = formula[0]
    operands: list[Formula] = formula[1:]
    if name == "number":
        return numbers[int(operands[0])]
    args = [_expr(o, numbers) for o in operands]
    if name == "select":
        return select(*args)
    return unary(name, *args) if len(args) == 1 else binary(name, *args)
