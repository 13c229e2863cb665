"""Choices of passes that can be overruled, so that the alternatives can be measured.

A pass that follows a rule or a cost model lists the options, its own choice first:

    taken = PassContext.current().decide(target, Decision(key, "winograd", words, options))

and continues with the result: its own choice, unless the context names another one
(`PassContext.decisions`, by the machine and the key). Keys are made of operators, attributes and
types (`decision_key`), never of names, so that equal calls are one decision, in this model and in
others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilewright.graph.ir import Call, Value
from tilewright.graph.ir.attributes import attribute_key, attribute_parts
from tilewright.graph.ir.types import Type, dims_of, substitute_type
from tilewright.ir import Expr, Var, substitute


@dataclass(frozen=True)
class Decision:
    """What a pass decides about calls that are equal to it."""

    key: str
    #: The pass, and what it decides about, in words.
    made_by: str
    subject: str
    #: The options in words, the pass's own choice first.
    options: tuple[str, ...]
    #: The number of these calls, and roughly their cycles in a run.
    calls: int = 1
    cycles: float = 0.0
    #: The option that was taken; empty: the first.
    taken: str = ""
    #: The choice that the context names, if it is not among the options (any more).
    refused: str = ""

    @property
    def default(self) -> str:
        return self.options[0]

    @property
    def others(self) -> tuple[str, ...]:
        return self.options[1:]

    def with_calls_of(self, other: Decision) -> Decision:
        """The same decision about other calls as well."""
        return replace(self, calls=self.calls + other.calls, cycles=self.cycles + other.cycles)

    def __str__(self) -> str:
        return f"{self.made_by} of {self.subject}"


#: Options by target and by the key of a decision.
DecisionTable = Mapping[str, Mapping[str, str]]


def decision_key(call: Call, results: Iterable[Type], *more: object) -> str:
    """Equal for calls of equal operators, attributes, operand and result types, whatever the
    names of values and dimensions."""
    plain = _PlainDims()
    operands = [_operand(v, plain) for v in call.args]
    attrs = [f"{name}={_attribute(v, plain)}" for name, v in sorted(call.attrs.items())]
    given = [plain.type(t) for t in results]
    text = "\n".join([call.op.name, *operands, *attrs, *given, *map(str, more)])
    return hashlib.sha256(text.encode()).hexdigest()


def joint_key(*keys: str) -> str:
    """A key that combines several keys, in this order."""
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()


class _PlainDims:
    """Symbolic dimensions as d0, d1, … in the order in which they appear."""

    def __init__(self) -> None:
        self._plain: dict[Var, Expr] = {}

    def type(self, type_: Type) -> str:
        self._number(dims_of(type_))
        return str(substitute_type(type_, self._plain))

    def attribute(self, value: Any) -> str:
        if not isinstance(value, Expr):
            return repr(attribute_key(value))
        self._number(sorted(value.variables, key=lambda v: v.serial))
        return str(substitute(value, self._plain))

    def _number(self, dims: Iterable[Var]) -> None:
        for dim in dims:
            self._plain.setdefault(dim, Var(f"d{len(self._plain)}", dim.dtype))


def _operand(value: Value | None, plain: _PlainDims) -> str:
    if value is None:
        return "none"
    return f"{plain.type(value.type)}{' constant' if value.is_constant else ''}"


def _attribute(value: Any, plain: _PlainDims) -> str:
    return ", ".join(plain.attribute(p) for p in attribute_parts(value))
