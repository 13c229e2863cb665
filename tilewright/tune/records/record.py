"""One measurement as data: what was measured, where, by which schedule, and what came of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, cast

from tilewright.schedule import Trace, Tuned
from tilewright.support.errors import UserError

VERSION: Final = 1
#: A trial is measured shortly, among many; a verdict at length, and decides.
Kind = Literal["trial", "verdict"]
#: Whether a field of a line is what it should be.
Check = Callable[[Any], bool]


@dataclass(frozen=True)
class Record:
    """A line of a file of records."""

    #: The key of the task (`Task.key`), and what it was called there.
    task: str
    name: str
    #: How often a run of the model calls it.
    calls: int
    #: The machine (`Target.machine`).
    target: str
    kind: Kind
    #: Positions of choices by name, in the space that this names.
    space: str
    sample: Mapping[str, int]
    #: The candidates at these positions, in words, by which others find theirs.
    values: Mapping[str, str]
    #: The candidate's time in that of the default schedule, measured interleaved; None on failure.
    ratio: float | None = None
    #: Least seconds of a call, of the candidate and of the default.
    seconds: float = 0.0
    reference: float = 0.0
    #: Whether the candidate is to take the place of the default; only verdicts say so.
    wins: bool = False
    failure: str | None = None
    reason: str = ""
    #: The steps of the schedule, as `Trace.to_json` gives them.
    trace: Mapping[str, Any] | None = None
    #: What cost models look at (`tune.features`).
    features: tuple[float, ...] = ()
    #: Seconds since 1970, and the versions of Tilewright and of its sources.
    at: float = 0.0
    versions: Mapping[str, str] = field(default_factory=dict[str, str])

    def line(self) -> bytes:
        """The record as a line of JSON."""
        data = {"version": VERSION, **asdict(self)}
        return json.dumps(data, separators=(",", ":"), allow_nan=False).encode() + b"\n"

    @staticmethod
    def of_line(line: bytes) -> Record:
        """The record that a line holds; `ValueError` where it is none."""
        data = json.loads(line)
        if not isinstance(data, dict):
            raise ValueError("it is no object")
        fields = cast("dict[str, Any]", data)
        if fields.pop("version", None) != VERSION:
            raise ValueError("its version is another one")
        for name, check in _CHECKS.items():
            if name not in fields or not check(fields[name]):
                raise ValueError(f"its {name} is not what it should be")
        known: dict[str, Any] = {name: fields[name] for name in _CHECKS}
        known["features"] = tuple(known["features"])
        return Record(**known)

    @property
    def words(self) -> str:
        """What it chooses."""
        return ", ".join(f"{n.rpartition('.')[2]} = {v}" for n, v in self.values.items())

    @property
    def scheduler(self) -> str:
        """The key of the scheduler that makes this schedule."""
        if self.trace is None:
            raise UserError(f"the record of {self.name} holds no schedule")
        return Tuned(Trace.from_json(dict(self.trace))).key


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_sample(value: Any) -> bool:
    return isinstance(value, dict) and all(
        type(k) is int and k >= 0 for k in cast("dict[str, Any]", value).values()
    )


def _are_features(value: Any) -> bool:
    return isinstance(value, list) and all(
        type(x) in (int, float) and math.isfinite(x) for x in cast("list[Any]", value)
    )


def _is_kind(value: Any) -> bool:
    return value in ("trial", "verdict")


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _are_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, cast("dict[str, Any]", value).values()))


_CHECKS: Final[dict[str, Check]] = {
    "task": _is_text,
    "name": _is_text,
    "calls": _is_count,
    "target": _is_text,
    "kind": _is_kind,
    "space": _is_text,
    "sample": _is_sample,
    "values": _are_texts,
    "ratio": _or_none(_is_number),
    "seconds": _is_number,
    "reference": _is_number,
    "wins": _is_flag,
    "failure": _or_none(_is_text),
    "reason": _is_text,
    "trace": _or_none(_is_object),
    "features": _are_features,
    "at": _is_number,
    "versions": _are_texts,
}
