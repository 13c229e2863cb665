"""The interface of a model, as its exported library must know it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tilewright.ir import DType
from tilewright.support.denormals import Denormals

#: The library's symbol for the bytes of all constants.
PARAMS: Final = "tw_params"

#: A number, the name of a symbolic dimension, or an operation over two such values.
Dim = int | str | tuple[str, "Dim", "Dim"]


@dataclass(frozen=True)
class Tensor:
    """An input or output."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]


@dataclass(frozen=True)
class Interface:
    """The interface of a model. `prefix` begins the names of all functions of the library."""

    prefix: str
    #: The name of the program whose `entry` and `workspace` are called.
    program: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    #: The symbolic dimensions, which callers pass to a run.
    dims: tuple[str, ...]
    #: The indices of the outputs whose memory the caller provides.
    direct: tuple[int, ...]
    #: The other outputs, whose sizes are computed by the run: for each, its first word in the
    #: record of results.
    records: Mapping[int, int]
    messages: tuple[str, ...]
    #: The operator behind each kernel call, for messages.
    origins: tuple[str, ...]
    #: The offset of each constant in the parameters.
    constants: tuple[int, ...]
    #: Whether AMX may be used, for which Linux requires a permission.
    may_use_amx: bool = False
    denormals: Denormals = "flush"
    #: Whether to offer functions on DLPack tensors, where possible.
    offers_dlpack: bool = True
    #: Whether to offer tvm_ffi's entry point, on Linux; its library is only needed for calls of it.
    offers_tvm_ffi: bool = True

    @property
    def takes_dlpack(self) -> bool:
        """DLPack tensors must exist before the run, so no output may have a computed size."""
        return self.offers_dlpack and not self.records

    @property
    def exported(self) -> list[str]:
        """The functions that a library exports."""
        names = [f"{self.prefix}_{n}" for n in ("run", "init", "free", "error")]
        if not self.takes_dlpack:
            return names
        names.append(f"{self.prefix}_run_dlpack")
        return [*names, f"__tvm_ffi_{self.prefix}_run"] if self.offers_tvm_ffi else names
