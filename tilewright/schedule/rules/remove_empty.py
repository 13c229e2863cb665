"""Removes blocks without iterations: they need no schedule."""

from __future__ import annotations

from tilewright.schedule.primitives.blocks.remove_empty import never_runs
from tilewright.schedule.rules.rule import Rule, as_found
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def _has_empty(s: Schedule, _block: str, _target: Target) -> bool | None:
    return any(never_runs(s.block_of(b)) for b in s.blocks()) or None


def _remove(s: Schedule, _block: str, _plan: bool, _target: Target) -> None:
    s.remove_empty()


REMOVE_EMPTY = Rule("remove_empty", _has_empty, as_found, _remove)
