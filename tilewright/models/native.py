"""Native models: inspection, target information, artifacts and exports."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tilewright.models.recording import Recorder
from tilewright.runtime import (
    CPU,
    Build,
    CompiledContents,
    CompiledModel,
    Inputs,
    Program,
    Recording,
    TargetInfo,
    device_for,
    install,
    is_installed,
    kernels_in,
    request_amx,
    why_no_device,
)
from tilewright.support.errors import UserError, nearest
from tilewright.support.faults import at_the_border
from tilewright.target import Target, why_not_here

if TYPE_CHECKING:
    from tilewright.graph import Decision
    from tilewright.ir import Function
    from tilewright.models.micro import Footprint
    from tilewright.models.profiling import Profiled
    from tilewright.support.profile import Profile

#: The names of a model's texts in an artifact.
GRAPH_TEXT: Final = "graph.txt"
HOST_TEXT: Final = "host.txt"
#: The source code, for targets that have it.
SOURCE_TEXT: Final = "code.c"
_LOOPS: Final = "loops/"


def loops_text(kernel: str) -> str:
    """The name of the text with a kernel's loops."""
    return f"{_LOOPS}{kernel}.txt"


def target_info(target: Target) -> TargetInfo:
    """A target in the form stored in artifacts."""
    begins_on = target.runs_on
    return TargetInfo(str(target), begins_on.triple, begins_on.features)


def why_not(target: TargetInfo) -> str:
    """The reason why this process cannot run code for a target; empty where it can."""
    if reason := why_not_here(target.triple, target.features):
        return reason
    if "amx-tile" in target.features and not request_amx():
        return "it may use AMX, which the system does not let this process use"
    return why_no_device(target.text)


class NativeModel(CompiledModel):
    """A model as native code for a target, which may be a different machine from this one."""

    #: The decisions of graph passes that had alternatives; not stored in artifacts.
    decisions: tuple[Decision, ...] = ()
    #: The scheduler keys from records, by kernel name; not stored either.
    schedulers: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        program: Program,
        constants: Sequence[Any],
        target: TargetInfo,
        pool: bytes,
        threads: int | None = None,
    ) -> None:
        self._target, self._pool_code = target, pool
        self._recorder: Recorder | None = None
        self._profiling = threading.Lock()
        reason = why_not(target)
        if not program.objects:
            reason = reason or "its code is source that was not compiled: there is no C compiler"
        if not reason and not is_installed():
            install(pool)
        device = CPU if reason else device_for(target.kind)
        super().__init__(program, constants, threads, why_not=reason, device=device)

    @cached_property
    def target(self) -> Target:
        """The machine the code is for."""
        return Target.of(self._target.text)

    def as_build(self) -> Build:
        if not self._program.objects:
            raise UserError(
                "the model cannot be saved",
                reason="its code is source that was not compiled",
                remedy="export it as a C file, or compile it where there is a C compiler",
            )
        constants = tuple(self._device.taken(list(self._constants)))
        recording = self.recording if self._is_recorded_elsewhere else None
        contents = CompiledContents(self._program, constants, self.texts, recording)
        return Build(self._target, self._pool_code, contents, self.memory)

    @property
    def _is_recorded_elsewhere(self) -> bool:
        """Whether it will probably be profiled without a compiler, as most machines with a GPU have
        none."""
        return self.target.kind.device == "gpu"

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of constants, of code, and of the arena if its size is static."""
        sizes = {
            "constants": sum(c.nbytes for c in self._constants),
            "code": sum(len(code) for code in self._program.objects),
        }
        return sizes if self.arena_bytes is None else {**sizes, "arena": self.arena_bytes}

    @property
    def kernels(self) -> tuple[str, ...]:
        names = [n for n in self.texts if n.startswith(_LOOPS)]
        return tuple(n.removeprefix(_LOOPS).removesuffix(".txt") for n in names)

    @property
    def launches(self) -> dict[str, dict[str, Any]]:
        """The launch parameters of a GPU's kernels, by name (`codegen.cuda.backend.image_of`).

        The driver compiles kernels without machine code when they are loaded."""
        found: dict[str, dict[str, Any]] = {}
        for said in (s for code in self._program.objects for s in kernels_in(code)):
            found[said["entry"]] = {**found.get(said["entry"], {}), **said}
        return found

    @property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """The kernel of each call and the operator behind it, in order."""
        return tuple(zip(self._program.calls, self._program.origins, strict=True))

    def ir(self, name: str = "main") -> Function:
        """The unscheduled loops of a kernel, or the host program."""
        from tilewright.ir import parse_function

        file = HOST_TEXT if str(name) == self._program.name else loops_text(str(name))
        if file not in self.texts:
            raise UserError(f"no kernel {name}", remedy=nearest(name, self.kernels))
        return parse_function(self.texts[file])

    def profile_of(self, inputs: Inputs, runs: int, warmup: int) -> Profile:
        self._require_loaded()
        with self._profiling:
            profiled = self.profiled
            if self._recorder is None:
                self._recorder = Recorder(self, profiled.code, profiled.words)
            events = self._recorder.record(inputs, runs, warmup)
            return profiled.profile(runs, events, self._recorder.copies)

    @cached_property
    def recording(self) -> Recording:
        """The recording host program, compiled on first use."""
        from tilewright.models.profiling import recording_of

        return recording_of(self)

    @cached_property
    def profiled(self) -> Profiled:
        """The recorder for runs, also on another machine."""
        from tilewright.models.profiling import Profiled

        return Profiled(self, self.recording)

    def export_library(
        self,
        path: str | os.PathLike[str],
        header: str | os.PathLike[str] | None = None,
        *,
        name: str | None = None,
    ) -> None:
        from tilewright.models.export import export_library

        source = self.texts.get(SOURCE_TEXT, "")
        with at_the_border(f"exporting {path!r} failed"):
            export_library(
                self._program,
                self._constants,
                self._pool_code,
                self._target,
                path,
                header,
                name,
                source,
            )

    def export_micro(self, folder: str | os.PathLike[str], *, name: str | None = None) -> Footprint:
        from tilewright.models.micro import export_micro

        with at_the_border(f"exporting {folder!r} failed"):
            return export_micro(self._program, self._constants, self._target, folder, name)

    def recording_object(self, name: str) -> bytes:
        """The NAME.o of `export_micro`, for a program that records its calls."""
        from tilewright.models.micro import recording_object

        recorder = self.profiled.code
        return recording_object(self._program, self._constants, self._target, recorder, name)

    def __repr__(self) -> str:
        megabytes = sum(c.nbytes for c in self._constants) / 1e6
        summary = f"{len(self._program.calls)} kernel calls, {megabytes:.3g} MB of constants"
        precision = "" if self.precision == "float32" else f", {self.precision}"
        return f"{super().__repr__()[:-1]}, {summary}{precision}, for {self._target.text}>"


class LoadedModel(NativeModel):
    """A native model from an artifact."""

    def __init__(self, build: Build, contents: CompiledContents, threads: int | None) -> None:
        self._texts = contents.texts
        if contents.recording is not None:
            self.recording = contents.recording
        super().__init__(contents.program, contents.constants, build.target, build.pool, threads)

    @property
    def texts(self) -> Mapping[str, str]:
        return self._texts
