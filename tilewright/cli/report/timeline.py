"""A profile as the page shows it: one run as a timeline, and what each kernel did in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tilewright.insight.roof import Roof
from tilewright.support.profile import Event, Profile


class Timeline(NamedTuple):
    """Plain data: the run, and figures of kernels by name."""

    run: dict[str, Any]
    kernels: dict[str, dict[str, float]]


def timeline(profile: Profile, roof: Roof) -> Timeline:
    """The run that took the middle of all times, call by call."""
    events = _typical(profile)
    start = events[0].start if events else 0
    total = (events[-1].end - start) / 1e9 if events else 0.0
    run = {
        "total": total,
        "flops": sum(e.flops for e in events),
        "events": [
            {
                "kernel": e.name,
                "origin": e.origin,
                "start": (e.start - start) / 1e9,
                "seconds": (e.end - e.start) / 1e9,
            }
            for e in events
        ],
        "roof": {"flops": roof.flops, "bandwidth": roof.memory, "cached": roof.cached},
    }
    return Timeline(run, {name: _figures(own, roof) for name, own in _by_name(events).items()})


def _typical(profile: Profile) -> Sequence[Event]:
    size = len(profile.events) // profile.runs
    runs = [profile.events[k * size : (k + 1) * size] for k in range(profile.runs)]
    runs.sort(key=lambda events: events[-1].end - events[0].start if events else 0)
    return runs[len(runs) // 2]


def _by_name(events: Sequence[Event]) -> dict[str, list[Event]]:
    found: dict[str, list[Event]] = {}
    for event in events:
        found.setdefault(event.name, []).append(event)
    return found


def _figures(events: Sequence[Event], roof: Roof) -> dict[str, float]:
    flops, bytes_ = sum(e.flops for e in events), sum(e.bytes for e in events)
    return {
        "seconds": sum(e.end - e.start for e in events) / 1e9,
        "flops": flops,
        "bytes": bytes_,
        "floor": sum(roof.floor(e.flops, e.bytes) for e in events),
    }
