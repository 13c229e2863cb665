"""The LLVM back end: explicit vectors and expanded math functions, for any processor."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, Final

from tilewright.arith import simplify_function
from tilewright.codegen.backend import Backend, Code
from tilewright.codegen.convention import is_host_program
from tilewright.codegen.interface import Interface
from tilewright.codegen.llvm.kernel import LLVMKernel, generate
from tilewright.codegen.llvm.library import (
    firmware_object,
    library_object,
    memory_functions_object,
)
from tilewright.codegen.llvm.machine import (
    emit_assembly,
    emit_object,
    machine_for,
    optimize,
    parse,
)
from tilewright.codegen.llvm.threadpool import threadpool_object
from tilewright.ir import Function
from tilewright.lower import (
    Arithmetic,
    NamedPass,
    bind_quotients,
    expand_angles,
    expand_math,
    expand_rounding,
    flat_loop_passes,
    group_lanes,
    native_formats,
    place_prefetches,
    place_tiles,
    prefetch_next,
    unroll,
    vectorize,
)
from tilewright.support.denormals import Denormals
from tilewright.target import Target

#: Without this intrinsic, code does not use AMX.
_SETS_TILES_UP: Final = "llvm.x86.ldtilecfg"
#: Host programs whose text is longer than this are compiled without optimization.
_LONG: Final = 200_000


class LlvmCode(Code):
    """A module of LLVM IR."""

    def __init__(self, kernel: LLVMKernel, target: Target, *, is_host: bool) -> None:
        self.name, self.messages, self.workspace = kernel.name, kernel.messages, kernel.workspace
        #: The IR as generated, before optimization.
        self.generated = kernel.llvm
        self.uses_amx = _SETS_TILES_UP in kernel.llvm
        self._target, self._is_host = target, is_host

    def text(self) -> str:
        """The LLVM IR, optimized."""
        return str(self._module)

    def assembly(self) -> str:
        return emit_assembly(self._module, self._machine)

    def serialized(self) -> bytes:
        return self.object_code()

    def object_code(self, seal: bytes = b"") -> bytes:
        if not seal:
            return emit_object(self._module, self._machine)
        symbol = f'@"{self.name}.seal" = constant [{len(seal)} x i8] c"{seal.decode()}"\n'
        return emit_object(self._optimized(f"{self.generated}\n{symbol}"), self._machine)

    @cached_property
    def _module(self) -> Any:
        return self._optimized(self.generated)

    def _optimized(self, text: str) -> Any:
        module = parse(text)
        if self._target.pointer_bits == 32:
            # LLVM otherwise optimizes for 64-bit addresses.
            module.data_layout = str(self._machine.target_data)
        optimize(module, self._machine, briefly=self._is_long_program)
        return module

    @cached_property
    def _machine(self) -> Any:
        return machine_for(self._target, 0 if self._is_long_program else 3)

    @property
    def _is_long_program(self) -> bool:
        """Whether LLVM's compile time is superlinear in its length: long runs of calls, in which
        optimizations and instruction selection gain nothing either."""
        return self._is_host and len(self.generated) >= _LONG


class LlvmBackend(Backend):
    """The LLVM back end; see `Backend`."""

    name = "llvm"

    def passes(
        self, target: Target, *, checked: bool = False, denormals: Denormals = "flush"
    ) -> list[NamedPass]:
        arithmetic = Arithmetic.of(target, denormals)
        return [
            *flat_loop_passes(checked=checked, formats=native_formats(target)),
            ("expand_math", lambda f: expand_math(f, arithmetic)),
            ("expand_rounding", lambda f: expand_rounding(f, target)),
            ("vectorize", vectorize),
            ("unroll", unroll),
            # Tests all lanes of a vector at once.
            ("expand_angles", lambda f: expand_angles(f, arithmetic)),
            ("simplify_flat", simplify_function),
            # Needs constant tile indices.
            ("place_tiles", place_tiles),
            # Needs the flat indices that flattening makes.
            ("group_lanes", lambda f: group_lanes(f, target)),
            # Needs the final indices of loads.
            ("place_prefetches", lambda f: place_prefetches(f, target)),
            ("prefetch_next", lambda f: prefetch_next(f, target)),
            # Last, as earlier passes compare indices in their original form.
            ("bind_quotients", bind_quotients),
        ]

    def generate(
        self,
        function: Function,
        target: Target,
        *,
        denormals: Denormals = "flush",
        profiled: bool = False,
    ) -> LlvmCode:
        kernel = generate(function, target, profiled=profiled, denormals=denormals)
        return LlvmCode(kernel, target, is_host=is_host_program(function))

    def linked(self, kernels: Sequence[bytes], target: Target) -> tuple[bytes, ...]:
        del target
        return tuple(kernels)

    def threadpool(self, target: Target) -> bytes:
        return threadpool_object(target.triple) if target.has_threads else b""

    def library(self, model: Interface, triple: str) -> bytes:
        return library_object(model, triple)

    def firmware(self, model: Interface, target: Target) -> bytes:
        return firmware_object(model, target)

    def memory_functions(self, needed: Collection[str], target: Target) -> bytes:
        return memory_functions_object(needed, target)


BACKEND: Final = LlvmBackend()
