"""The contents of an artifact as plain data: models for one or several targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.runtime.arrays import Array
from tilewright.runtime.program import Program, TargetInfo

#: What a program is specialised for: the value or the shape of inputs, by name.
CaseKey = tuple[tuple[tuple[str, "InputValue"], ...], tuple[tuple[str, tuple[int, ...]], ...]]
#: Shape, element type and data of a tensor; several for a sequence.
InputValue = tuple["InputValue", ...] | tuple[tuple[int, ...], str, bytes | tuple[str, ...]]


@dataclass(frozen=True)
class Recording:
    """The code of a host program that records the start and end of its kernels; an event has
    `words` words."""

    code: bytes
    words: int


@dataclass(frozen=True)
class CompiledContents:
    """A model that is compiled as a whole."""

    program: Program
    constants: tuple[Array, ...]
    #: Text files: the graph, the loops of each kernel.
    texts: Mapping[str, str] = field(default_factory=dict[str, str])
    #: For `profile`, in models that mostly run where there is no compiler.
    recording: Recording | None = None


@dataclass(frozen=True)
class HostedContents:
    """A graph that Python runs, with the native functions it calls."""

    graph: str
    constants: Mapping[str, Array]
    native: Mapping[str, CompiledContents]


@dataclass(frozen=True)
class CasesContents:
    """A program for each set of input values or shapes that the model has seen."""

    names: tuple[str, ...]
    by_value: frozenset[str]
    by_shape: frozenset[str]
    cases: tuple[tuple[CaseKey, CompiledContents | HostedContents], ...]


Contents = CompiledContents | HostedContents | CasesContents


@dataclass(frozen=True)
class Build:
    """A model compiled for one target."""

    target: TargetInfo
    #: The object code of the thread pool.
    pool: bytes
    contents: Contents
    #: Bytes of each kind of memory that a run takes, as far as known in advance.
    memory: Mapping[str, int] = field(default_factory=dict[str, int])
