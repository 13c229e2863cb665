"""Which function writes which operator of graphs as nodes of ONNX."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final

from tilewright.graph import Call, Value

if TYPE_CHECKING:
    from tilewright.frontends.onnx.writing.writer import Writer

#: Writes a call whose results get these names.
Rule = Callable[["Writer", Call, list[str]], None]

#: Files beside this one that hold rows.
_FAMILIES: Final = ("elementwise", "linear", "structure", "reductions", "images", "quantized")
_RULES: Final[dict[str, Rule]] = {}


def writes(*names: str) -> Callable[[Rule], Rule]:
    """Registers a function that writes operators of these names."""

    def register(rule: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def rule_of(name: str) -> Rule | None:
    """The function that writes an operator, if there is one."""
    for family in _FAMILIES:
        import_module(f"tilewright.frontends.onnx.writing.{family}")
    return _RULES.get(name)


def operand(call: Call, number: int) -> Value:
    """An operand that must exist."""
    value = call.args[number]
    assert value is not None
    return value
