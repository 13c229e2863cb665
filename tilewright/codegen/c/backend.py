"""The portable C back end: scalar loops and libm, compiled by the system's compiler."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from tilewright.arith import simplify_function
from tilewright.codegen.backend import Backend, Code
from tilewright.codegen.c.compiler import NO_COMPILER, compile_source, find_compiler
from tilewright.codegen.c.library import library_source
from tilewright.codegen.c.source import CKernel, file_of, generate
from tilewright.codegen.interface import Interface
from tilewright.ir import Function
from tilewright.lower import NamedPass, flat_loop_passes, scalarize
from tilewright.support.denormals import Denormals
from tilewright.support.errors import UserError
from tilewright.target import Target


class CCode(Code):
    """A kernel or host program in C."""

    def __init__(self, source: CKernel, target: Target) -> None:
        self.name, self.messages, self.workspace = source.name, source.messages, source.workspace
        self._target, self._kept = target, source.serialized()

    def text(self) -> str:
        """The source file."""
        return file_of([self._kept])

    def assembly(self) -> str:
        _require_native(self._target)
        return compile_source(self.text(), assembly=True).decode()

    def serialized(self) -> bytes:
        return self._kept

    def object_code(self, seal: bytes = b"") -> bytes:
        _require_native(self._target)
        return compile_source(file_of([self._kept], last=_sealed(self.name, seal)))


def _sealed(name: str, seal: bytes) -> str:
    if not seal:
        return ""
    return (
        f'extern const char tw_seal[{len(seal)}] TW_NAMED("{name}.seal");\n'
        f'const char tw_seal[{len(seal)}] = "{seal.decode()}";\n'
    )


def _why_not_compiled(target: Target) -> str:
    here = Target.of("c")
    if target.arch != here.arch:
        return f"the compiler of this machine is for {here.triple}"
    return "" if find_compiler() else NO_COMPILER


def _require_native(target: Target) -> None:
    """Refuse targets that the compiler at hand does not compile for."""
    if reason := _why_not_compiled(target):
        raise UserError(
            f"cannot compile C for {target.triple}",
            reason=reason,
            remedy="export the source, and compile it with the tools of its target"
            if reason != NO_COMPILER
            else "install one (pip install ziglang will do), or build for target 'llvm'",
        )


class CBackend(Backend):
    """The C back end; see `Backend`."""

    name = "c"

    def passes(
        self, target: Target, *, checked: bool = False, denormals: Denormals = "flush"
    ) -> list[NamedPass]:
        # C keeps denormals, and calls libm for mathematics.
        del target, denormals
        return [
            *flat_loop_passes(checked=checked),
            ("scalarize", scalarize),
            ("simplify_flat", simplify_function),
        ]

    def generate(
        self,
        function: Function,
        target: Target,
        *,
        denormals: Denormals = "flush",
        profiled: bool = False,
    ) -> CCode:
        del denormals
        return CCode(generate(function, profiled=profiled), target)

    def linked(self, kernels: Sequence[bytes], target: Target) -> tuple[bytes, ...]:
        """One file of all kernels, since starting a compiler takes longer than most kernels."""
        _require_native(target)
        return (compile_source(file_of(kernels)),) if kernels else ()

    def source(self, host: Code, kernels: Sequence[bytes]) -> str:
        return file_of([host.serialized(), *kernels])

    def why_not_compiled(self, target: Target) -> str:
        return _why_not_compiled(target)

    def library_source(
        self, model: Interface, code: str, constants: Sequence[Any]
    ) -> Iterator[str]:
        return library_source(model, code, constants)

    def threadpool(self, target: Target) -> bytes:
        from tilewright.codegen.llvm.threadpool import threadpool_object

        return threadpool_object(target.triple)

    def library(self, model: Interface, triple: str) -> bytes:
        from tilewright.codegen.llvm.library import library_object

        return library_object(model, triple)


BACKEND: Final = CBackend()
