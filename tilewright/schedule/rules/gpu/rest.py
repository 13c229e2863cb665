"""Blocks without another rule: parallel loops by threads, everything else by one thread."""

from __future__ import annotations

from tilewright.schedule.primitives.loops.launch_rest import touches_elements
from tilewright.schedule.rules.rule import Choices, Rule
from tilewright.schedule.schedule import Schedule
from tilewright.target import Target


def _match(s: Schedule, _block: str, _target: Target) -> bool | None:
    return touches_elements(s.function.body) or None


def _threads(_found: bool, _target: Target, choices: Choices) -> int:
    return choices.choose("threads", (64, 32, 128, 256))


def _launch(s: Schedule, _block: str, threads: int, _target: Target) -> None:
    s.launch_rest(threads)


REST = Rule("rest", _match, _threads, _launch)
