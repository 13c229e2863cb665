"""The public interface: `tw.tune(model, …)` and `tw.tune.apply_best(records)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tilewright.support.errors import UserError
from tilewright.support.files import AnyPath
from tilewright.target import Target
from tilewright.tune.records.best import decisions_of, schedulers_of
from tilewright.tune.records.file import read_records
from tilewright.tune.settings import Settings, seconds_of

if TYPE_CHECKING:
    from tilewright.graph import DecisionTable, PassContext
    from tilewright.models.native import NativeModel
    from tilewright.rpc import Device, Pool, SerialDevice
    from tilewright.runtime import BundledOutcome, TrialModel
    from tilewright.tune.bundling import BundleSummary
    from tilewright.tune.in_place import Schedulers
    from tilewright.tune.measuring.devices import Devices
    from tilewright.tune.measuring.measurer import Measurer
    from tilewright.tune.summary import Summary


def tune(
    model: Any,
    target: Target | str | None = None,
    *,
    on: Device | SerialDevice | Pool | None = None,
    budget: str | float = "10m",
    records: AnyPath = "tuning.jsonl",
    tuner: str | None = None,
    space: str = "rules",
    trials: int | None = None,
    inputs: Mapping[str, Any] | None = None,
    dims: Mapping[str, int] | None = None,
    transfer: Sequence[AnyPath] = (),
    threads: int | None = None,
    seed: int = 0,
    variants: bool = True,
    progress: bool | None = None,
    measurer: Measurer | None = None,
    **compiling: Any,
) -> Summary:
    """Search for faster schedules of a model's kernels, and graph decisions, by measuring them.

    Measurements are made on this machine, or `on` others: a device from `tw.rpc.connect`, a board
    from `tw.rpc.connect_serial`, or all devices of a tracker's pool at once. Kernels are built
    here, for the `target` of the device unless another is given, and run there. In the end winners
    are timed inside the model, and dropped if they are not faster there.

    `budget` is the time to spend ("10m", "90s", seconds), `trials` the most samples of each kernel.
    Every measurement is appended to the file `records`, and those in it are not repeated, so that a
    search can be interrupted (Ctrl-C) and resumed. `tuner` is "gbt", "ga", "annealing", "random" or
    "grid"; `space` is the search space: "rules", the choices of the default rules, or "sketches",
    which are independent of operators and rules. Kernels are measured with the sizes of a run of
    the model, with `inputs` or with made-up ones whose symbolic dimensions have the sizes `dims`.
    `transfer` names record files of other models or machines, whose best schedules are tried first.
    With `variants`, up to a third of the time is spent on decisions of graph passes: runs of the
    model with one decision changed alternate with runs of the unchanged model. All other arguments
    are those of `tw.compile`.
    """
    from tilewright.tune.in_place import InPlace
    from tilewright.tune.in_turns import InTurns
    from tilewright.tune.search import require_measurer, search
    from tilewright.tune.spaces.table import space_named
    from tilewright.tune.tasks import made_up_inputs, tasks_of
    from tilewright.tune.variants import Varied, search_variants

    space_of, devices = space_named(space), _devices(on, measurer)
    if devices is not None:
        from tilewright.tune.measuring.remote import RemoteMeasurer

        measurer, target = RemoteMeasurer(devices), target or devices.target
    settings = Settings(
        seconds_of(budget), records, tuner, trials, transfer, seed, progress, measurer
    )
    target = Target.of(target or "llvm")
    require_measurer(target, measurer)
    compiled = _compiled(model, target, threads, compiling)
    given = made_up_inputs(compiled, dims or {}, seed) if inputs is None else inputs
    varied, in_place = Varied(compiled), None
    if measurer is None or (devices is not None and devices.runs_two_models):
        turns = InTurns(given, devices, threads)
        if variants:
            varied = search_variants(
                compiled,
                lambda taken: _compiled(model, target, threads, compiling, decisions=taken),
                turns,
                settings,
            )
        in_place = InPlace(
            varied.model,
            turns,
            lambda found: _compiled(model, target, threads, compiling, found, varied.table),
        )
    if varied.interrupted:
        return varied.summary(settings)
    if devices is None:
        tasks = tasks_of(varied.model, given, threads)
    else:
        with devices.borrowed() as device:
            there = device.load(varied.model, threads=threads)
            tasks = tasks_of(varied.model, given, threads, runs_on=there)
    return search(
        tasks, lambda t: space_of(t.function, t.target), settings, space, in_place, varied
    )


def bundle(
    model: Any,
    target: Target | str,
    path: AnyPath,
    *,
    trials: int | None = None,
    budget: str | float = "1h",
    space: str = "rules",
    dims: Mapping[str, int] | None = None,
    threads: int | None = None,
    seed: int = 0,
    records: AnyPath | Sequence[AnyPath] = (),
    **compiling: Any,
) -> BundleSummary:
    """Write candidates of a model's kernels, built here, to be measured on another machine.

    This is for targets that cannot run here, such as `cuda -arch=sm_90a`: `measure` needs no
    compiler. There are `trials` candidates for each kernel; `budget` is the time for building, and
    kernels with the largest expected share of a run come first. Candidates with measurements in
    `records` are left out. The other arguments are those of `tune`.
    """
    from tilewright.tune.bundling import write_bundle
    from tilewright.tune.counted import counted_tasks
    from tilewright.tune.spaces.table import space_named

    space_of, seconds = space_named(space), seconds_of(budget)
    compiled = _compiled(model, Target.of(target), threads, compiling)
    known = {(r.task, r.target) for r in read_records(records)}
    tasks = counted_tasks(compiled, dims or {}, threads)
    return write_bundle(
        [t for t in tasks if (t.key, t.target.machine) not in known],
        lambda t: space_of(t.function, t.target),
        path,
        space_name=space,
        trials=trials,
        budget=seconds,
        seed=seed,
    )


def measure(
    bundle: AnyPath,
    records: AnyPath = "tuning.jsonl",
    *,
    model: Any = None,
    inputs: Mapping[str, Any] | None = None,
    budget: str | float | None = None,
    on_result: Callable[[BundledOutcome], None] = lambda outcome: None,
) -> list[BundledOutcome]:
    """Measure the candidates of a bundle on this machine, which needs no compiler.

    Every measurement is appended to the file `records`, and those in it are not repeated. `model`
    is the bundle's model with default schedules, or its artifact: the candidates that are fastest
    alone are put into it one by one, and win if it gets faster with its `inputs`, or with made-up
    ones. `on_result` is called after each kernel.
    """
    from tilewright.runtime import measure_bundle

    seconds = seconds_of(budget) if budget else float("inf")
    within = None if model is None else _trial_model(model, inputs)
    return measure_bundle(bundle, records, seconds, on_result, within)


def _trial_model(model: Any, inputs: Mapping[str, Any] | None) -> TrialModel:
    from tilewright.models.artifact import load
    from tilewright.runtime import TrialModel
    from tilewright.tune.tasks import made_up_inputs, native

    model = native(load(model) if isinstance(model, str | Path) else model)
    return TrialModel(model, made_up_inputs(model, {}, 0) if inputs is None else inputs)


def _compiled(
    model: Any,
    target: Target,
    threads: int | None,
    compiling: Mapping[str, Any],
    schedulers: Schedulers = MappingProxyType({}),
    decisions: DecisionTable = MappingProxyType({}),
) -> NativeModel:
    """A model with default schedules and decisions, as the baseline, or with those given; records
    of the current context are not applied."""
    from tilewright.compile import compile as compile_model
    from tilewright.graph import PassContext
    from tilewright.tune.tasks import native

    context = PassContext.current()
    with replace(
        context,
        schedulers=schedulers,
        decisions=decisions,
        options={**context.options, "shipped_records": False},
        _tokens=[],
    ):
        return native(compile_model(model, target, threads=threads, **compiling))


def _devices(on: Device | SerialDevice | Pool | None, measurer: Measurer | None) -> Devices | None:
    if on is None:
        return None
    if measurer is not None:
        raise UserError("a search measures on= devices or by a measurer=, not both")
    from tilewright.tune.measuring.devices import devices_of

    return devices_of(on)


def apply_best(records: AnyPath | Iterable[AnyPath]) -> PassContext:
    """A context in which `tw.compile` applies the winners (schedules, decisions) of record files.

        with tw.tune.apply_best("tuning.jsonl"):
            model = tw.compile("model.onnx")

    Records of other machines and of other kernels have no effect.
    """
    from tilewright.graph import PassContext

    found = read_records(records)
    return replace(
        PassContext.current(),
        schedulers=schedulers_of(found),
        decisions=decisions_of(found),
        _tokens=[],
    )
