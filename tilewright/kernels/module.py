"""A compiled loop function: call it, time it, inspect it at every level."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tilewright.ir import (
    Binary,
    Buffer,
    Call,
    Const,
    Evaluate,
    Expr,
    Function,
    Stmt,
    Store,
    Unary,
    Var,
    loads_in,
    walk,
)
from tilewright.runtime import (
    ArrayParam,
    Device,
    Dim,
    KernelCode,
    NativeFunction,
    ScalarParam,
    Signature,
    TargetInfo,
    device_for,
    install,
    is_installed,
    request_amx,
    why_no_device,
)
from tilewright.support.errors import UserError, nearest
from tilewright.support.timing import Timing
from tilewright.target import Target, why_not_here

if TYPE_CHECKING:
    from tilewright.codegen import Code


class Module:
    """One loop function as native code for one target.

    Calling it runs it on NumPy arrays (or anything that supports DLPack), outputs included. Code
    for another kind of machine can be inspected and written to files, but not called.
    """

    def __init__(
        self,
        source: Function,
        code: Code,
        target: Target,
        stages: Mapping[str, Function],
        threads: int | None,
    ) -> None:
        self.name, self.target = source.name, target
        self.signature = signature_of(source)
        self._stages = stages
        self._threads = threads
        self._code = code

    # ---- running --------------------------------------------------------------------------------

    def __call__(self, *args: Any) -> None:
        """Run the function; the output arrays are among the arguments and are written to."""
        self.native(*args)

    def time(
        self, *args: Any, repeat: int = 20, min_repeat_ms: float = 50.0, warmup: int = 2
    ) -> Timing:
        """Time the native code on these arguments: median, minimum, spread."""
        return self._device.time(self.native.prepared(*args), repeat, min_repeat_ms, warmup)

    def set_threads(self, count: int | None = None, affinity: Sequence[int] | None = None) -> None:
        """Set the number of threads (None: all cores) and, optionally, the processors to use."""
        self.native.set_threads(count, affinity)

    @cached_property
    def native(self) -> NativeFunction:
        """The function, loaded into this process."""
        begins_on = self.target.runs_on
        reason = why_not_here(begins_on.triple, begins_on.features)
        if reason := reason or why_no_device(str(self.target)):
            raise UserError(
                f"{self.name} cannot run here",
                reason=f"it is compiled for {self.target}; {reason}",
                remedy="build it for target 'llvm' to run it on this machine",
            )
        if self._code.uses_amx and not request_amx():
            raise UserError(
                f"{self.name} cannot run here",
                reason="it uses AMX, which the system does not let this process use",
                remedy="build it with -mattr=-amx-tile",
            )
        install_threadpool()
        return NativeFunction(
            self.object_code, self.signature, self._code.messages, self._threads, self._device
        )

    def as_code(self) -> KernelCode:
        """The kernel as data, to be called on a machine of its target (`tilewright.rpc`)."""
        from tilewright.codegen import backend_of

        begins_on = self.target.runs_on
        info = TargetInfo(str(self.target), begins_on.triple, begins_on.features)
        pool = backend_of(self.target).threadpool(self.target)
        code = self.object_code
        messages, size = self._code.messages, self._code.workspace
        known = int(size.value) if self.target.is_bare and isinstance(size, Const) else None
        return KernelCode(info, self.signature, code, messages, pool, self._threads, known)

    @property
    def _device(self) -> Device:
        return device_for(self.target.kind.name)

    # ---- looking --------------------------------------------------------------------------------

    def ir(self, stage: str = "lowered") -> Function:
        """The loops at a stage: as given, as scheduled, as lowered, or after one lowering pass."""
        if stage not in self._stages:
            raise UserError(f"no stage {stage!r}", remedy=nearest(stage, self._stages))
        return self._stages[stage]

    @property
    def code(self) -> str:
        """The code in the language of the target's back end: LLVM IR, or C."""
        return self._code.text()

    @property
    def llvm(self) -> str:
        """The LLVM IR, as generated and cleaned up."""
        if self.target.kind.backend != "llvm":
            raise UserError(
                f"there is no LLVM IR of {self.name}",
                reason=f"it is built for target {self.target.kind.name!r}",
                remedy="read its .code",
            )
        return self.code

    @cached_property
    def asm(self) -> str:
        """The assembly."""
        return self._code.assembly()

    @cached_property
    def object_code(self) -> bytes:
        """The object file."""
        return self._code.object_code()

    def __repr__(self) -> str:
        params = ", ".join(f"{p.name}: {p}" for p in self.signature.params)
        return f"<Module {self.name}({params}) for {self.target}>"


def install_threadpool() -> None:
    """Load the thread pool of compiled code, once per process."""
    from tilewright.codegen import backend_of

    if not is_installed():
        here = Target.of("llvm")
        install(backend_of(here).threadpool(here))


# ---- signatures ---------------------------------------------------------------------------------


def signature_of(function: Function) -> Signature:
    """The parameters that callers of `function` must pass."""
    written = buffers_written(function.body)
    names = unique_names([*(p for p in function.params if isinstance(p, Var)), *function.dims])
    params = tuple(
        ScalarParam(names[p], p.dtype)
        if isinstance(p, Var)
        else ArrayParam(
            p.name,
            p.dtype,
            tuple(dim_of(d, names) for d in p.shape),
            None if p.strides is None else tuple(dim_of(s, names) for s in p.strides),
            p.alignment,
            p in written,
        )
        for p in function.params
    )
    return Signature(function.name, params, tuple(names[d] for d in function.dims))


def buffers_written(body: Stmt) -> set[Buffer]:
    """Buffers that are stored to, or whose address is passed to a call other than a prefetch."""
    written: set[Buffer] = set()
    for stmt in walk(body):
        if isinstance(stmt, Store):
            written.add(stmt.buffer)
        if isinstance(stmt, Evaluate) and not _only_prefetches(stmt):
            written.update(load.buffer for load in loads_in(stmt.call))
    return written


def _only_prefetches(stmt: Evaluate) -> bool:
    return isinstance(stmt.call, Call) and stmt.call.name == "prefetch"


def unique_names(variables: Sequence[Var]) -> dict[Var, str]:
    """Unique names for variables, based on their own."""
    names: dict[Var, str] = {}
    for var in variables:
        tries = itertools.chain([var.name], (f"{var.name}_{k}" for k in itertools.count(1)))
        taken = set(names.values())
        names[var] = next(name for name in tries if name not in taken)
    return names


def dim_of(expr: Expr, names: Mapping[Var, str]) -> Dim:
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, Var):
        return names[expr]
    if isinstance(expr, Binary):
        return (expr.op, dim_of(expr.a, names), dim_of(expr.b, names))
    if isinstance(expr, Unary) and expr.op == "neg":
        return ("sub", 0, dim_of(expr.a, names))
    raise UserError(
        f"`{expr}` cannot be a dimension of a parameter", remedy="use + - * // % min max"
    )
