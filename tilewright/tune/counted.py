"""The tasks of a model that cannot run here, counted in its host program instead of measured.

The host program tells how often a kernel is called, and with which numbers; its time is estimated
from operations and bytes, to rank the kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from tilewright.codegen import numbers_of
from tilewright.ir import (
    Call,
    Evaluate,
    Expr,
    Function,
    evaluate,
    free_vars,
    loads_in,
    walk,
    with_plain_names,
)
from tilewright.kernels.cost import cost_of
from tilewright.kernels.pipeline import Options
from tilewright.models.made_up import usual_sizes
from tilewright.models.native import NativeModel
from tilewright.target import Target
from tilewright.tune.tasks import Task

#: The prefix of kernel calls in host programs.
_KERNEL: Final = "kernel."
#: The approximate minimum seconds of a call.
_LEAST: Final = 2e-6
#: Operations and bytes per second assumed for unknown processors.
_FLOPS, _BANDWIDTH = 1e11, 2e10


class _Called(NamedTuple):
    """A call of a kernel in a host program."""

    kernel: str
    numbers: tuple[int, ...]


def counted_tasks(
    model: NativeModel, dims: Mapping[str, int], threads: int | None = None
) -> list[Task]:
    """The kernels of a model, longest estimated time first. Kernels with sizes that only a run
    determines are left out."""
    sizes = usual_sizes(model.inputs) | dict(dims)
    kernels = {name: model.ir(name) for name in model.kernels}
    calls: dict[str, list[_Called]] = {}
    for called in _calls(model.ir(model.program.name), kernels, sizes):
        calls.setdefault(called.kernel, []).append(called)
    options = Options(denormals=model.denormals, prepares_there=True)
    found = [_task(kernels[name], model, of_it, options, threads) for name, of_it in calls.items()]
    return sorted(found, key=lambda t: -t.seconds)


def _task(
    function: Function,
    model: NativeModel,
    calls: list[_Called],
    options: Options,
    threads: int | None,
) -> Task:
    function, target = with_plain_names(function), model.target
    costs = [cost_of(function, c.numbers) for c in calls]
    seconds = [_seconds(target, c.flops, c.bytes) for c in costs]
    slowest = max(range(len(calls)), key=lambda k: seconds[k])
    return Task(
        function,
        target,
        calls[slowest].numbers,
        len(calls),
        sum(seconds),
        costs[slowest].flops,
        costs[slowest].bytes,
        model.memory["constants"],
        options,
        threads,
    )


def _seconds(target: Target, flops: int, bytes_: int) -> float:
    gpu = target.gpu
    most = (gpu.flops, gpu.bandwidth) if gpu is not None else (_FLOPS, _BANDWIDTH)
    return _LEAST + max(flops / most[0], bytes_ / most[1])


def _calls(
    host: Function, kernels: Mapping[str, Function], sizes: Mapping[str, int]
) -> Iterator[_Called]:
    for stmt in walk(host.body):
        call = stmt.call if isinstance(stmt, Evaluate) else None
        if not isinstance(call, Call) or not call.name.startswith(_KERNEL):
            continue
        name = call.name.removeprefix(_KERNEL)
        numbers = _numbers(call, kernels[name], sizes)
        if numbers is not None:
            yield _Called(name, numbers)


def _numbers(call: Call, kernel: Function, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """The scalars and dimensions of a call; None where only a run determines them."""
    by_name = dict(zip((*kernel.params, *kernel.dims), call.args, strict=False))
    found = [_value(by_name[number], sizes) for number in numbers_of(kernel)]
    return None if None in found else tuple(n for n in found if n is not None)


def _value(expr: Expr, sizes: Mapping[str, int]) -> int | None:
    variables = free_vars(expr)
    if any(v.name not in sizes for v in variables) or any(True for _ in loads_in(expr)):
        return None
    return int(evaluate(expr, {v: sizes[v.name] for v in variables}))
