"""What is needed to run a compiled model, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.runtime.binding import NativeSpec, TensorSpec
from tilewright.support.denormals import Denormals
from tilewright.support.triples import is_bare


@dataclass(frozen=True)
class Program:
    """All that is needed to run a model, beside its constants."""

    name: str
    objects: tuple[bytes, ...]
    inputs: tuple[NativeSpec, ...]
    outputs: tuple[NativeSpec, ...]
    #: The symbolic dimensions, in the order in which the code takes them.
    dims: tuple[str, ...]
    #: The outputs that the code writes to memory of the caller's, by number.
    direct: tuple[int, ...]
    #: The others: where in the record the address of each stands, before a tensor's dimensions.
    records: Mapping[int, int]
    messages: tuple[str, ...]
    #: Where in the model each call of a kernel comes from, in order.
    origins: tuple[str, ...] = ()
    #: The kernel that each call is of.
    calls: tuple[str, ...] = ()
    #: In what products are computed, for people.
    precision: str = "float32"
    denormals: Denormals = "keep"

    @property
    def record_words(self) -> int:
        """How large the record is."""
        return 1 + sum(map(words_in_record, self.outputs))


def words_in_record(spec: NativeSpec) -> int:
    """What an output takes in the record: its address, and the dimensions of a tensor."""
    return 1 + (len(spec.shape) if isinstance(spec, TensorSpec) else 0)


@dataclass(frozen=True)
class TargetInfo:
    """The machine that code is for, as far as loading must know it."""

    #: What makes the target again; for people, and for those who compile further.
    text: str
    triple: str
    #: What the processor must be able to do, by LLVM's names.
    features: frozenset[str]

    @property
    def kind(self) -> str:
        """The word that the text begins with."""
        return self.text.partition(" ")[0]

    @property
    def arch(self) -> str:
        return self.triple.split("-")[0]

    @property
    def is_bare(self) -> bool:
        """Whether there is no operating system."""
        return is_bare(self.triple)
