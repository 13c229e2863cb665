"""What a back end is: the passes that make loops ready for it, and what turns these into code.

A back end is chosen by the target's kind (`target.kinds`). It owns its list of lowering passes, its
code generator, and the form of its code: object files, or source text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from tilewright.codegen.interface import Interface
from tilewright.ir import Expr, Function
from tilewright.lower import NamedPass
from tilewright.support.denormals import Denormals
from tilewright.support.errors import UserError
from tilewright.target import Target


class Code(ABC):
    """A function as a back end has written it, with what its callers must know."""

    name: str
    messages: tuple[str, ...]
    #: Bytes of workspace, over the function's scalars and dimensions.
    workspace: Expr
    #: Whether it uses AMX, for which Linux wants to be asked.
    uses_amx: bool = False

    @abstractmethod
    def text(self) -> str:
        """The code in the back end's own language."""

    @abstractmethod
    def assembly(self) -> str:
        """The code in the machine's language, for people."""

    def machine_code(self) -> str:
        """What becomes of the assembly, for people; empty where that is the same, or not known."""
        return ""

    @abstractmethod
    def object_code(self, seal: bytes = b"") -> bytes:
        """The object file; it defines `NAME.seal` where a seal is given."""

    @abstractmethod
    def serialized(self) -> bytes:
        """The code as bytes, for caches and other processes; `Backend.linked` takes it."""


class Backend(ABC):
    """Turns scheduled loops into code for the targets of its kind."""

    name: str

    @abstractmethod
    def passes(
        self, target: Target, *, checked: bool = False, denormals: Denormals = "flush"
    ) -> list[NamedPass]:
        """The lowering passes that scheduled loops go through, in order."""

    @abstractmethod
    def generate(
        self,
        function: Function,
        target: Target,
        *,
        denormals: Denormals = "flush",
        profiled: bool = False,
    ) -> Code:
        """The code of a lowered function; a profiled host program records its calls."""

    @abstractmethod
    def linked(self, kernels: Sequence[bytes], target: Target) -> tuple[bytes, ...]:
        """Object files with all these kernels, each as `Code.serialized` gave it."""

    def source(self, host: Code, kernels: Sequence[bytes]) -> str:
        """One source file of a program and its kernels; empty where code is object files."""
        del host, kernels
        return ""

    def why_not_compiled(self, target: Target) -> str:
        """The reason why there can be no object files for `target` here; mostly empty."""
        del target
        return ""

    def tools(self) -> str:
        """The versions of tools that code depends on, beside LLVM's."""
        return ""

    @abstractmethod
    def threadpool(self, target: Target) -> bytes:
        """The object file of the thread pool that code for `target` calls."""

    @abstractmethod
    def library(self, model: Interface, triple: str) -> bytes:
        """The object file of the C functions around a model that is exported as a library."""

    def firmware(self, model: Interface, target: Target) -> bytes:
        """The object file of what runs a model where there is no operating system."""
        raise self._needs_system(f"export {model.prefix}", target)

    def memory_functions(self, needed: Collection[str], target: Target) -> bytes:
        """The object file of those of the `needed` names that code calls to copy and fill memory,
        where there is no operating system."""
        del needed
        raise self._needs_system("link code", target)

    def _needs_system(self, doing: str, target: Target) -> UserError:
        return UserError(
            f"cannot {doing} for machines without an operating system",
            reason=f"back end {self.name} makes code for systems ({target.triple})",
            remedy="compile it for a target such as 'llvm -mcpu=cortex-m4'",
        )

    def library_source(
        self, model: Interface, code: str, constants: Sequence[Any]
    ) -> Iterator[str]:
        """A model as one source file, in parts; `code` is the text that `source` gave."""
        raise UserError(
            f"cannot export {model.prefix} as source",
            reason=f"back end {self.name} makes object files",
            remedy="compile the model for target 'c'",
        )
