"""The tuning tasks of a model: its kernels, each once, with their run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.codegen import numbers_of
from tilewright.ir import Function, with_plain_names
from tilewright.kernels.compiled import loops_key
from tilewright.kernels.pipeline import DEFAULTS, Options
from tilewright.models.made_up import made_up, usual_sizes
from tilewright.models.native import NativeModel
from tilewright.runtime import Inputs, RunnableModel
from tilewright.support.errors import UserError
from tilewright.support.profile import Event, Profile
from tilewright.target import Target


@dataclass(frozen=True)
class Task:
    """One kernel, for one machine."""

    function: Function
    target: Target
    #: The scalars and dimensions it is measured with.
    numbers: tuple[int, ...] = ()
    #: Calls per run of the model, and their total seconds.
    calls: int = 1
    seconds: float = 0.0
    #: Per call.
    flops: int = 0
    bytes: int = 0
    #: Bytes of all constants of its model.
    model_bytes: int = 0
    #: Compile options other than the schedule.
    options: Options = DEFAULTS
    threads: int | None = None

    @property
    def name(self) -> str:
        return self.function.name

    @property
    def key(self) -> str:
        """Identifies the loops, regardless of the names of nodes, variables and buffers."""
        return loops_key(self.function)


def tasks_of(
    model: RunnableModel,
    inputs: Inputs,
    threads: int | None = None,
    runs: int = 3,
    runs_on: RunnableModel | None = None,
) -> list[Task]:
    """The kernels of a compiled model, most expensive first.

    `runs_on` is the same model on the device where it is profiled.
    """
    model = native(model)
    profile = (runs_on or model).profile(inputs, runs=runs)
    options = Options(denormals=model.denormals, prepares_there=runs_on is not None)
    found = {
        name: _task(model.ir(name), model, events, profile, options, threads)
        for name, events in _by_kernel(profile).items()
    }
    return sorted(found.values(), key=lambda t: -t.seconds)


#: Calls per run and their total seconds, by task key.
KernelTimes = Mapping[str, tuple[int, float]]


def kernel_times(model: RunnableModel, inputs: Inputs, keys: Mapping[str, str]) -> KernelTimes:
    """The times of kernels in a run of a model after a warm-up, by the task keys of their names."""
    found: dict[str, tuple[int, float]] = {}
    for name, events in _by_kernel(model.profile(inputs, runs=1, warmup=1)).items():
        calls, seconds = found.get(keys[name], (0, 0.0))
        own = sum(e.end - e.start for e in events) / 1e9
        found[keys[name]] = (calls + len(events), seconds + own)
    return found


def kernel_seconds(model: RunnableModel, inputs: Inputs, runs: int) -> dict[str, float]:
    """The minimum seconds of a call of each kernel, in some runs of a model."""
    events = _by_kernel(model.profile(inputs, runs=runs))
    return {name: min(e.end - e.start for e in calls) / 1e9 for name, calls in events.items()}


def key_of_kernel(model: NativeModel, name: str) -> str:
    """The task key of a kernel of a model."""
    return loops_key(with_plain_names(model.ir(name)))


def native(model: RunnableModel) -> NativeModel:
    """The model, if its kernels can be tuned; else an error."""
    if not isinstance(model, NativeModel):
        raise UserError(
            "the model cannot be tuned",
            reason="parts of it are made or run by Python",
            remedy="fix what its structure depends on with `shapes`",
        )
    return model


def _by_kernel(profile: Profile) -> Mapping[str, Sequence[Event]]:
    found: dict[str, list[Event]] = {}
    for event in profile.events:
        found.setdefault(event.name, []).append(event)
    return found


def _task(
    function: Function,
    model: NativeModel,
    events: Sequence[Event],
    profile: Profile,
    options: Options,
    threads: int | None,
) -> Task:
    function = with_plain_names(function)
    slowest = max(events, key=lambda e: e.end - e.start)
    count = len(events) // profile.runs
    return Task(
        function,
        model.target,
        slowest.numbers[: len(numbers_of(function))],
        count,
        count * min(e.end - e.start for e in events) / 1e9,
        slowest.flops,
        slowest.bytes,
        model.memory["constants"],
        options,
        threads,
    )


def made_up_inputs(model: RunnableModel, dims: Mapping[str, int], seed: int) -> dict[str, Any]:
    """Random arrays for all inputs of a model."""
    return made_up(model.inputs, usual_sizes(model.inputs) | dict(dims), "random", seed)
