"""Builds one loop function to native code: schedule, lower, load."""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import Function, verify
from tilewright.kernels.module import Module
from tilewright.kernels.pipeline import Options, generated, scheduled
from tilewright.runtime import request_amx
from tilewright.schedule import Schedule
from tilewright.support.denormals import Denormals
from tilewright.target import Target


def build_loops(
    source: Function | Schedule,
    target: Target,
    checked: bool = False,
    threads: int | None = None,
    denormals: Denormals = "flush",
) -> Module:
    """A loop function compiled for `target`; without a schedule it gets the default one."""
    target, options = as_permitted(target), Options(checked, denormals)
    if isinstance(source, Schedule):
        given, options = source.function, replace(options, scheduler="given")
    else:
        given = source
    verify(given)
    made = scheduled(given, target, options)
    stages = {"given": given, "scheduled": made}
    code = generated(made, target, options, after=stages.__setitem__)
    stages["lowered"] = list(stages.values())[-1]
    return Module(given, code, target, stages, threads)


def as_permitted(target: Target) -> Target:
    """The target without AMX if it is this machine and the OS denies AMX to this process."""
    if target.has("amx-tile") and target == Target.of("llvm") and not request_amx():
        return Target.of(f"{target} -mattr=-amx-tile")
    return target
