"""One loop function to native code: schedule, lower, load."""

from __future__ import annotations

from tilewright.ir import Function, verify
from tilewright.kernels.module import Module
from tilewright.lower import lower
from tilewright.runtime import request_amx
from tilewright.schedule import Schedule, require_features, schedule_by_rules
from tilewright.support.denormals import Denormals
from tilewright.target import Target


def build_loops(
    source: Function | Schedule,
    target: Target,
    checked: bool = False,
    threads: int | None = None,
    denormals: Denormals = "flush",
) -> Module:
    """A loop function, compiled for `target`; one that nobody has scheduled gets a default."""
    target = as_permitted(target)
    is_scheduled = isinstance(source, Schedule)
    given = source.function if isinstance(source, Schedule) else source
    verify(given)
    scheduled = given if is_scheduled else schedule_by_rules(given, target)
    require_features(scheduled, target)
    stages = {"given": given, "scheduled": scheduled}
    after = stages.__setitem__
    lowered = lower(scheduled, target, checked=checked, denormals=denormals, after=after)
    stages["lowered"] = lowered
    return Module(given, lowered, target, stages, threads, denormals)


def as_permitted(target: Target) -> Target:
    """This machine without what the system keeps from this process; other targets as they are."""
    if target.has("amx-tile") and target == Target.of("llvm") and not request_amx():
        return Target.of(f"{target} -mattr=-amx-tile")
    return target
