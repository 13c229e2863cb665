"""A compiled model without its constants, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.runtime.binding import NativeSpec, TensorSpec
from tilewright.support.denormals import Denormals
from tilewright.support.triples import is_bare


@dataclass(frozen=True)
class Program:
    """Everything needed to run a model, except its constants."""

    name: str
    objects: tuple[bytes, ...]
    inputs: tuple[NativeSpec, ...]
    outputs: tuple[NativeSpec, ...]
    #: The symbolic dimensions, in the code's order.
    dims: tuple[str, ...]
    #: The indices of outputs that the code writes to the caller's memory.
    direct: tuple[int, ...]
    #: The other outputs: the word of the record with the address of each; dimensions follow it.
    records: Mapping[int, int]
    messages: tuple[str, ...]
    #: The operator behind each kernel call, in order.
    origins: tuple[str, ...] = ()
    #: The kernel of each call.
    calls: tuple[str, ...] = ()
    #: The types of products, for display.
    precision: str = "float32"
    denormals: Denormals = "keep"

    @property
    def record_words(self) -> int:
        """The size of the record."""
        return 1 + sum(map(words_in_record, self.outputs))


def words_in_record(spec: NativeSpec) -> int:
    """An output's words in the record: its address, and the dimensions of a tensor."""
    return 1 + (len(spec.shape) if isinstance(spec, TensorSpec) else 0)


@dataclass(frozen=True)
class TargetInfo:
    """The machine that code is for, as far as loading needs it."""

    #: The text of the target, for display and for further compilation.
    text: str
    triple: str
    #: The processor features required, by LLVM's names.
    features: frozenset[str]

    @property
    def kind(self) -> str:
        """The first word of the text."""
        return self.text.partition(" ")[0]

    @property
    def arch(self) -> str:
        return self.triple.split("-")[0]

    @property
    def is_bare(self) -> bool:
        """Whether there is no operating system."""
        return is_bare(self.triple)
