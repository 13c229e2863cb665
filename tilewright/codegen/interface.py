"""What an exported library must know of the model that it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tilewright.ir import DType
from tilewright.support.denormals import Denormals

#: What the code of a library calls the bytes of all constants.
PARAMS: Final = "tw_params"

#: A number, the name of a symbolic dimension, or an operation over two of these.
Dim = int | str | tuple[str, "Dim", "Dim"]


@dataclass(frozen=True)
class Tensor:
    """An input or output."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]


@dataclass(frozen=True)
class Interface:
    """A model from outside. `prefix` begins the names of all functions of the library."""

    prefix: str
    #: The name of the program whose `entry` and `workspace` are called.
    program: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    #: The symbolic dimensions that a run is given.
    dims: tuple[str, ...]
    #: The numbers of the outputs whose memory the caller provides.
    direct: tuple[int, ...]
    #: The other outputs, whose sizes the run determines, with the word of the results' record that
    #: each begins at.
    records: Mapping[int, int]
    messages: tuple[str, ...]
    #: What each call of a kernel computes, for messages.
    origins: tuple[str, ...]
    #: Where each constant lies in the parameters.
    constants: tuple[int, ...]
    #: Whether AMX may be used, for which Linux wants to be asked.
    may_use_amx: bool = False
    denormals: Denormals = "flush"
    #: Whether there are functions that take DLPack's tensors, where these can be.
    offers_dlpack: bool = True
    #: Whether tvm_ffi can call it, whose library is looked for only when it does: on Linux.
    offers_tvm_ffi: bool = True

    @property
    def takes_dlpack(self) -> bool:
        """Tensors must exist before the run: outputs whose sizes it determines cannot."""
        return self.offers_dlpack and not self.records

    @property
    def exported(self) -> list[str]:
        """The functions that a library offers."""
        names = [f"{self.prefix}_{n}" for n in ("run", "init", "free", "error")]
        if not self.takes_dlpack:
            return names
        names.append(f"{self.prefix}_run_dlpack")
        return [*names, f"__tvm_ffi_{self.prefix}_run"] if self.offers_tvm_ffi else names
