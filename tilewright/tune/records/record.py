"""One measurement as data: the candidate, the machine, and the result."""

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
#: A trial is a short measurement of many candidates; a verdict is a long one, and decides.
Kind = Literal["trial", "verdict"]
#: The space of graph decisions: a single named choice, without a trace.
DECISIONS: Final = "graph"
#: Whether a field of a line is valid.
Check = Callable[[Any], bool]
#: Valid integers are smaller (exact in JSON).
_MOST: Final = 1 << 53


@dataclass(frozen=True)
class Record:
    """A line of a records file."""

    #: The key of the task (`Task.key`), and its name.
    task: str
    name: str
    #: Calls per run of the model.
    calls: int
    #: The machine (`Target.machine`).
    target: str
    kind: Kind
    #: Positions of candidates by choice name, in the space named `space`.
    space: str
    sample: Mapping[str, int]
    #: The chosen candidates as text, which is comparable between spaces.
    values: Mapping[str, str]
    #: The candidate's time relative to the default's, measured interleaved; None on failure.
    ratio: float | None = None
    #: Minimum seconds of a call, of the candidate and of the default.
    seconds: float = 0.0
    reference: float = 0.0
    #: Whether the candidate replaces the default; only in verdicts.
    wins: bool = False
    failure: str | None = None
    reason: str = ""
    #: The steps of the schedule, from `Trace.to_json`.
    trace: Mapping[str, Any] | None = None
    #: Features for cost models (`tune.features`).
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
        """The record in a line; `ValueError` if it is unusable."""
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
        """The choices made, as text."""
        return ", ".join(f"{n.rpartition('.')[2]} = {v}" for n, v in self.values.items())

    @property
    def scheduler(self) -> str:
        """The key of the scheduler for this schedule."""
        if self.trace is None:
            raise UserError(f"the record of {self.name} holds no schedule")
        return Tuned(Trace.from_json(dict(self.trace))).key


# ---- lines --------------------------------------------------------------------------------------


def _parsed(line: bytes) -> Any:
    """The JSON data; `ValueError` for non-finite numbers or text that cannot be encoded."""
    data = json.loads(line, parse_float=_finite, parse_int=_whole, parse_constant=_refuse_constant)
    if b"\\u" in line:
        # A lone surrogate cannot be written to files or terminals.
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
    """Why a record with valid fields is unusable; empty if it is usable."""
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
