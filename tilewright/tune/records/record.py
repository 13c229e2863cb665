"""One measurement as data: what was measured, where, by which schedule, and what came of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NoReturn

from tilewright.schedule import Trace, Tuned
from tilewright.support.errors import UserError
from tilewright.support.narrowing import is_list, is_object

VERSION: Final = 1
#: A trial is measured shortly, among many; a verdict at length, and decides.
Kind = Literal["trial", "verdict"]
#: The space of what passes over graphs decide: one choice by its name, without a trace.
DECISIONS: Final = "graph"
#: Whether a field of a line is what it should be.
Check = Callable[[Any], bool]
#: Whole numbers that mean anything are smaller.
_MOST: Final = 1 << 53


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
        data = {"version": VERSION, **vars(self)}
        return json.dumps(data, separators=(",", ":"), allow_nan=False).encode() + b"\n"

    @staticmethod
    def of_line(line: bytes) -> Record:
        """The record that a line holds; `ValueError` where it is none that can be used."""
        data = _parsed(line)
        if not is_object(data):
            raise ValueError("it is no object")
        if data.pop("version", None) != VERSION:
            raise ValueError("its version is another one")
        for name, check in _CHECKS.items():
            if name not in data or not check(data[name]):
                raise ValueError(f"its {name} is not what it should be")
        found = Record(
            **{n: data[n] for n in _CHECKS if n != "features"}, features=tuple(data["features"])
        )
        if reason := _why_unusable(found):
            raise ValueError(reason)
        return found

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


# ---- lines --------------------------------------------------------------------------------------


def _parsed(line: bytes) -> Any:
    """What JSON says; `ValueError` where numbers are none, or texts cannot be written again."""
    data = json.loads(line, parse_float=_finite, parse_int=_whole, parse_constant=_refuse_constant)
    if b"\\u" in line:
        # Half of a character, which no file or terminal takes.
        json.dumps(data, ensure_ascii=False).encode()
    return data


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


def _whole(text: str) -> int:
    if len(text) > 20 or abs(number := int(text)) > _MOST:
        raise ValueError(f"the number {text[:20]} is too large")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


def _why_unusable(record: Record) -> str:
    """Why a record, whose fields are right one by one, says nothing; empty where it does."""
    if (record.ratio is None) == (record.failure is None):
        return "it is neither a time nor a failure"
    if record.ratio is not None and not (record.seconds > 0 and record.reference > 0):
        return "its times are not what they should be"
    return _why_no_winner(record) if record.wins else ""


def _why_no_winner(record: Record) -> str:
    if record.kind != "verdict" or record.ratio is None or record.ratio >= 1:
        return "it cannot have won"
    if record.space == DECISIONS:
        return "" if record.values else "it has won by no choice"
    try:
        Trace.from_json(record.trace)
    except UserError as error:
        return f"its trace is not what it should be: {error.headline}"
    return ""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_time(value: Any) -> bool:
    return _is_number(value) and value >= 0


def _is_ratio(value: Any) -> bool:
    return _is_number(value) and value > 0


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_sample(value: Any) -> bool:
    return is_object(value) and all(map(_is_count, value.values()))


def _are_features(value: Any) -> bool:
    return is_list(value) and all(map(_is_number, value))


def _is_kind(value: Any) -> bool:
    return value in ("trial", "verdict")


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _or_none(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _are_texts(value: Any) -> bool:
    return is_object(value) and all(map(_is_text, value.values()))


_CHECKS: Final[dict[str, Check]] = {
    "task": _is_text,
    "name": _is_text,
    "calls": _is_count,
    "target": _is_text,
    "kind": _is_kind,
    "space": _is_text,
    "sample": _is_sample,
    "values": _are_texts,
    "ratio": _or_none(_is_ratio),
    "seconds": _is_time,
    "reference": _is_time,
    "wins": _is_flag,
    "failure": _or_none(_is_text),
    "reason": _is_text,
    "trace": _or_none(is_object),
    "features": _are_features,
    "at": _is_time,
    "versions": _are_texts,
}
