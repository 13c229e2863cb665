"""The pipeline: what happens between a definition and native code, one line per step."""

from __future__ import annotations

from typing import Any

from tilewright.ir import Function
from tilewright.module import Module
from tilewright.runtime import request_amx
from tilewright.schedule import Schedule
from tilewright.support.errors import UserError
from tilewright.target import Target


def build(
    function: Function | Schedule,
    target: Target | str = "llvm",
    *,
    checked: bool = False,
    threads: int | None = None,
) -> Module:
    """Compile one loop function for `target`; one that nobody has scheduled gets a default.

    `checked` adds a bounds check to every access. `threads` is how many the module may use; it can
    be changed later.
    """
    from tilewright.ir import verify
    from tilewright.lower import lower
    from tilewright.schedule import require_features, schedule_by_rules

    target = _as_permitted(Target.of(target))
    given = _function_of(function)
    is_scheduled = isinstance(function, Schedule)
    verify(given)
    scheduled = given if is_scheduled else schedule_by_rules(given, target)
    require_features(scheduled, target)
    stages = {"given": given, "scheduled": scheduled}
    lowered = lower(scheduled, target, checked=checked, after=stages.__setitem__)
    stages["lowered"] = lowered
    return Module(given, lowered, target, stages, threads)


def _function_of(value: Any) -> Function:
    if isinstance(value, Function | Schedule):
        return value if isinstance(value, Function) else value.function
    raise UserError(
        f"cannot build {type(value).__name__}",
        remedy="pass a loop function (te.function, @script) or a Schedule",
    )


def _as_permitted(target: Target) -> Target:
    """This machine without what the system keeps from this process; other targets as they are."""
    if target.has("amx-tile") and target == Target.of("llvm") and not request_amx():
        return Target.of(f"{target} -mattr=-amx-tile")
    return target
