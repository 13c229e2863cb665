"""The steps that made a schedule, as data: print them, save them, replay them on another function.

A step names a primitive and its arguments. Loops and sampled numbers are numbered results of
earlier steps (`l3`, `v5` in the text); blocks are given by name; everything else is plain JSON. A
loop that no step made is fetched by a `loop` step at its first use: `l0 = s.loops("C")[0]`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from tilewright.support.errors import UserError

if TYPE_CHECKING:
    from tilewright.ir import Function
    from tilewright.schedule.schedule import Schedule

VERSION: Final = 1
#: The step that fetches a loop by block and depth.
FETCH: Final = "loop"


@dataclass(frozen=True, slots=True)
class LoopId:
    """A loop that an earlier step returned."""

    number: int

    def __str__(self) -> str:
        return f"l{self.number}"


@dataclass(frozen=True, slots=True)
class ValueId:
    """A number that an earlier step sampled."""

    number: int

    def __str__(self) -> str:
        return f"v{self.number}"


@dataclass(frozen=True, slots=True)
class BlockName:
    """A block."""

    name: str

    def __str__(self) -> str:
        return json.dumps(self.name)


Argument = Any
_TAGS: Final[dict[str, type]] = {"loop": LoopId, "value": ValueId, "block": BlockName}
_TAG_TYPES: Final[dict[str, type]] = {"loop": int, "value": int, "block": str}


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One primitive with its arguments; `decision` is what was sampled."""

    name: str
    args: tuple[Argument, ...] = ()
    options: Mapping[str, Argument] = field(default_factory=dict[str, Any])
    results: tuple[LoopId | ValueId | BlockName, ...] = ()
    decision: Any = None

    def __str__(self) -> str:
        call = _fetch_text(self) if self.name == FETCH else _call_text(self)
        named = ", ".join(_result_text(r) for r in self.results)
        return f"{named} = {call}" if named else call


class Trace:
    """The steps of a schedule, in order."""

    def __init__(self, steps: Sequence[TraceStep] = ()) -> None:
        self.steps = list(steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and self.steps == other.steps

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return "\n".join(str(step) for step in self.steps)

    __repr__ = __str__

    def copy(self) -> Trace:
        return Trace(self.steps)

    @property
    def decisions(self) -> dict[int, Any]:
        """The sampled decisions, by the number of the step."""
        return {i: s.decision for i, s in enumerate(self.steps) if s.decision is not None}

    def with_decision(self, number: int, decision: Any) -> Trace:
        """The same steps with one decision changed; replaying shows whether it is legal."""
        if number not in self.decisions:
            known = ", ".join(map(str, self.decisions)) or "none"
            raise UserError(
                f"step {number} of the trace decides nothing: those that do are {known}"
            )
        steps = list(self.steps)
        steps[number] = replace(steps[number], decision=decision)
        return Trace(steps)

    def replay(self, function: Function) -> Schedule:
        """The same steps applied to `function`."""
        from tilewright.schedule.schedule import Schedule

        return Schedule.from_trace(function, self)

    def to_json(self) -> dict[str, Any]:
        """Plain data that `json.dumps` takes."""
        return {"version": VERSION, "steps": [_step_to_json(s) for s in self.steps]}

    @staticmethod
    def from_json(data: Any) -> Trace:
        """The trace from what `to_json` returned, or its text."""
        if isinstance(data, str | bytes):
            data = _parsed(data)
        _require(isinstance(data, dict), "it is no object")
        version = data.get("version")
        _require(version == VERSION, f"its version is {version!r}, not {VERSION}")
        steps = data.get("steps")
        _require(isinstance(steps, list), "it has no list of steps")
        return Trace([_step_from_json(i, s) for i, s in enumerate(steps)])


# ---- text ---------------------------------------------------------------------------------------


def _call_text(step: TraceStep) -> str:
    parts = [_text(a) for a in step.args]
    parts += [f"{key}={_text(value)}" for key, value in step.options.items()]
    if step.decision is not None:
        parts.append(f"decision={_text(step.decision)}")
    return f"s.{step.name}({', '.join(parts)})"


def _fetch_text(step: TraceStep) -> str:
    block, depth = step.args
    if block is None:
        return f"s.all_loops()[{depth}]"
    return f"s.loops({block})[{depth}]"


def _result_text(result: LoopId | ValueId | BlockName) -> str:
    return result.name if isinstance(result, BlockName) else str(result)


def _text(value: Argument) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(_text(v) for v in cast(Sequence[Any], value))}]"
    if isinstance(value, LoopId | ValueId | BlockName):
        return str(value)
    return json.dumps(value) if isinstance(value, str) else repr(value)


# ---- JSON ---------------------------------------------------------------------------------------


def _step_to_json(step: TraceStep) -> dict[str, Any]:
    data: dict[str, Any] = {"name": step.name, "args": [_to_json(a) for a in step.args]}
    if step.options:
        data["options"] = {key: _to_json(value) for key, value in step.options.items()}
    if step.results:
        data["results"] = [_to_json(r) for r in step.results]
    if step.decision is not None:
        data["decision"] = _to_json(step.decision)
    return data


def _to_json(value: Argument) -> Any:
    if isinstance(value, LoopId):
        return {"loop": value.number}
    if isinstance(value, ValueId):
        return {"value": value.number}
    if isinstance(value, BlockName):
        return {"block": value.name}
    if isinstance(value, tuple | list):
        return [_to_json(v) for v in cast(Sequence[Any], value)]
    if isinstance(value, dict):
        # Tagged, so that a user's {"loop": 3} is not mistaken for a reference.
        pairs = cast(dict[str, Any], value)
        return {"dict": {key: _to_json(v) for key, v in pairs.items()}}
    return value


def _step_from_json(number: int, data: Any) -> TraceStep:
    where = f"step {number}"
    _require(isinstance(data, dict), f"{where} is no object")
    name, args = data.get("name"), data.get("args")
    _require(isinstance(name, str), f"{where} has no name")
    _require(isinstance(args, list), f"{where} has no list of arguments")
    options, results = data.get("options", {}), data.get("results", [])
    _require(isinstance(options, dict), f"the options of {where} are no object")
    _require(isinstance(results, list), f"the results of {where} are no list")
    decision = data.get("decision")
    return TraceStep(
        name,
        tuple(_from_json(where, a) for a in args),
        {key: _from_json(where, value) for key, value in options.items()},
        tuple(_reference(where, r) for r in results),
        None if decision is None else _from_json(where, decision),
    )


def _reference(where: str, data: Any) -> Any:
    found = _from_json(where, data)
    good = isinstance(found, LoopId | ValueId | BlockName)
    _require(good, f"{where} has a result that is neither loop, value nor block")
    return found


def _from_json(where: str, data: Any) -> Argument:
    if isinstance(data, list):
        return tuple(_from_json(where, v) for v in cast(list[Any], data))
    if not isinstance(data, dict):
        return data
    pairs = cast(dict[str, Any], data)
    tag, value = next(iter(pairs.items())) if len(pairs) == 1 else ("", None)
    if tag == "dict" and isinstance(value, dict):
        inner = cast(dict[str, Any], value)
        return {key: _from_json(where, v) for key, v in inner.items()}
    _require(tag in _TAGS, f"{where} has the argument {data!r}")
    _require(type(value) is _TAG_TYPES[tag], f"{where} names the {tag} {value!r}")
    return _TAGS[tag](value)


def _parsed(text: str | bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise UserError("cannot read the trace", reason=f"it is no JSON: {error}") from None


def _require(holds: bool, reason: str) -> None:
    if not holds:
        remedy = "use what Trace.to_json wrote, with this version of Tilewright"
        raise UserError("cannot read the trace", reason=reason, remedy=remedy)
