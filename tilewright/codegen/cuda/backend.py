"""The CUDA back end: kernels as PTX inside object files of the host.

A loop function becomes a host function, called like any other (`codegen.convention`), whose
launches carry the device's code: a line of JSON with the launch parameters, then PTX, and machine
code if NVIDIA's assembler is available (`support.ptxas`), so that loading compiles nothing;
`runtime.gpu.image` reads it. So host programs, artifacts and loading are the same as for CPUs.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from tilewright.arith import simplify_function
from tilewright.codegen.backend import Backend, Code
from tilewright.codegen.convention import is_host_program
from tilewright.codegen.cuda.kernel import CONSTANTS, DeviceKernel, generate_kernel
from tilewright.codegen.interface import Interface
from tilewright.codegen.llvm.backend import BACKEND as LLVM
from tilewright.codegen.llvm.backend import LlvmCode
from tilewright.codegen.llvm.launch import WIDEST
from tilewright.codegen.llvm.machine import emit_assembly, optimize, parse, target_machine
from tilewright.ir import Function, Param
from tilewright.lower import (
    MERGED,
    OVERLAPS,
    Arithmetic,
    NamedPass,
    drop_thread_dimensions,
    expand_math,
    expand_rounding,
    fence_operands,
    flat_loop_passes,
    join_pairs,
    merge_launches,
    native_formats,
    overlap_launches,
    place_barriers,
    read_early,
    single_threaded,
    split_launches,
    stage_copies,
    swizzle_operands,
    unroll,
    vectorize,
    wait_for_products,
)
from tilewright.support.denormals import Denormals
from tilewright.support.errors import UserError
from tilewright.support.ptxas import Assembled, disassembled, find_assembler
from tilewright.target import Target

#: Attributes of a function that its launches inherit.
_KNOWN: Final = (MERGED, OVERLAPS)
#: Before this pass, local buffers lose their thread dimensions, while accesses still have all.
_BEFORE: Final = "flatten"


class Launchable(Protocol):
    """What a kernel's launches need to know."""

    @property
    def name(self) -> str: ...
    @property
    def threads(self) -> tuple[int, int, int]: ...
    @property
    def shared(self) -> int: ...
    @property
    def messages(self) -> tuple[str, ...]: ...
    @property
    def is_cooperative(self) -> bool: ...
    @property
    def waits(self) -> bool: ...
    @property
    def access(self) -> tuple[str, ...] | None: ...
    @property
    def stands_for(self) -> int: ...


def _told(kernel: Function, known: Mapping[str, Any], constants: set[Param]) -> Function:
    """The kernel with these attributes, and a list of its parameters that are constants."""
    own = tuple(k for k, param in enumerate(kernel.params) if param in constants)
    return kernel.with_attrs(**known, **({CONSTANTS: own} if own else {}))


class DeviceCode(Code):
    """A host function, and the device code of the kernels it launches, by name."""

    def __init__(
        self, host: LlvmCode, images: Mapping[str, Sequence[bytes]], target: Target
    ) -> None:
        self._host, self._images, self._target = host, images, target
        self.name, self.messages, self.workspace = host.name, host.messages, host.workspace

    def text(self) -> str:
        """The LLVM IR of the host function."""
        return self._host.text()

    def assembly(self) -> str:
        """The code of the kernels, for aligned arrays."""
        return "\n".join(self._texts())

    def machine_code(self) -> str:
        """The assembler's report on each kernel, and its instructions where they can be shown."""
        assembler = find_assembler()
        if assembler is None:
            return ""
        arch = self._target.cpu
        made = [assembler.assemble(text, arch) for text in self._texts()]
        head = f"// machine code for {arch} by ptxas {assembler.version}"
        return "\n".join([head, *map(_shown, made)])

    def _texts(self) -> Iterator[str]:
        for best, *_ in self._images.values():
            yield best.partition(b"\n")[2].partition(b"\0")[0].decode()

    def object_code(self, seal: bytes = b"") -> bytes:
        return self._host.object_code(seal)

    def serialized(self) -> bytes:
        return self.object_code()


class CudaBackend(Backend):
    """The CUDA back end; see `Backend`."""

    name = "cuda"

    def passes(
        self, target: Target, *, checked: bool = False, denormals: Denormals = "flush"
    ) -> list[NamedPass]:
        # Denormals cost nothing on GPUs, so they are kept.
        arithmetic = Arithmetic.of(target, "keep")
        flat = flat_loop_passes(checked=checked, formats=native_formats(target))
        at = [name for name, _ in flat].index(_BEFORE)
        return [
            *flat[:at],
            ("drop_thread_dimensions", drop_thread_dimensions),
            *flat[at:],
            ("expand_math", lambda f: expand_math(f, arithmetic)),
            ("expand_rounding", lambda f: expand_rounding(f, target)),
            ("vectorize", vectorize),
            ("unroll", unroll),
            # Matches explicit vectors.
            ("join_pairs", join_pairs),
            ("wait_for_products", wait_for_products),
            # Matches copies of whole vectors.
            ("stage_copies", stage_copies),
            ("swizzle_operands", swizzle_operands),
            # Needs whole launches, and introduces sums of block counts.
            ("merge_launches", lambda f: merge_launches(f, target)),
            ("overlap_launches", overlap_launches),
            ("simplify_flat", simplify_function),
            ("single_threaded", single_threaded),
            ("read_early", read_early),
            # Analyses whole phases, which no later pass changes.
            ("place_barriers", place_barriers),
            ("fence_operands", fence_operands),
        ]

    def generate(
        self,
        function: Function,
        target: Target,
        *,
        denormals: Denormals = "flush",
        profiled: bool = False,
    ) -> Code:
        host = target.runs_on
        if is_host_program(function):
            return LLVM.generate(function, host, denormals="keep", profiled=profiled)
        parts = split_launches(function)
        known = {name: function.attrs[name] for name in _KNOWN if name in function.attrs}
        numbers: tuple[int, ...] = function.attrs.get(CONSTANTS, ())
        constants = {function.params[k] for k in numbers}
        kernels = [_told(kernel, known, constants) for kernel in parts.kernels]
        images = {kernel.name: self.images(kernel, target) for kernel in kernels}
        calling = replace(parts.host, attrs={"images": images})
        return DeviceCode(LLVM.generate(calling, host, denormals="keep"), images, target)

    def images(self, kernel: Function, target: Target) -> tuple[bytes, ...]:
        """The code of a kernel for aligned arrays, and for unaligned ones if it differs."""
        made = [generate_kernel(kernel, target, alignment) for alignment in (WIDEST, 1)]
        (best, text), (least, other) = ((k, ptx_of(k, target)) for k in made)
        # Unaligned arrays are rare: the driver compiles their code on demand.
        images = image_of(best, text, machine_code_of(text, target)), image_of(least, other)
        return images if text != other else images[:1]

    def tools(self) -> str:
        assembler = find_assembler()
        return f"ptxas {assembler.version}" if assembler else "no ptxas"

    def linked(self, kernels: Sequence[bytes], target: Target) -> tuple[bytes, ...]:
        return LLVM.linked(kernels, target.runs_on)

    def threadpool(self, target: Target) -> bytes:
        return LLVM.threadpool(target.runs_on)

    def library(self, model: Interface, triple: str) -> bytes:
        raise UserError(
            f"cannot export {model.prefix} as a library",
            reason="code for GPUs needs the runtime that launches it",
            remedy="save it, and load it by tilewright.load",
        )


def image_of(kernel: Launchable, code: str, machine_code: bytes = b"") -> bytes:
    """A kernel's device code, preceded by a line of JSON with its launch parameters."""
    head: dict[str, Any] = {
        "entry": kernel.name,
        "threads": kernel.threads,
        "shared": kernel.shared,
        "messages": kernel.messages,
        "access": kernel.access,
        "cooperative": kernel.is_cooperative,
        "waits": kernel.waits,
        "stands_for": kernel.stands_for,
    }
    if machine_code:
        head["machine_code"] = len(machine_code), zlib.crc32(machine_code)
    return f"{json.dumps(head)}\n{code}\0".encode() + machine_code


def ptx_of(kernel: DeviceKernel, target: Target) -> str:
    """The PTX of a kernel."""
    machine = target_machine(target.triple, target.llvm_cpu, target.llvm_features)
    module = parse(kernel.llvm)
    optimize(module, machine)
    return emit_assembly(module, machine)


def machine_code_of(text: str, target: Target) -> bytes:
    """The machine code for PTX; empty without an assembler, in which case the driver compiles."""
    assembler = find_assembler()
    return assembler.assemble(text, target.cpu).code if assembler else b""


def _shown(made: Assembled) -> str:
    lines = (f"// {line}" for line in made.said.splitlines())
    return "\n".join([*lines, disassembled(made.code) if made.code else ""])


BACKEND: Final = CudaBackend()
