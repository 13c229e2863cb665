"""What passes know of calls: found once in a context of passes."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.graph import Builder, PassContext
from tilewright.graph.fusion import definitions
from tilewright.graph.fusion.definitions import FactTable, LoopKind
from tilewright.graph.ir import Binding, Call


def bindings() -> list[Binding]:
    b = Builder()
    x = b.input("x", "f32", (4, 8))
    b.output(b.tanh(x), b.matmul(x, b.transpose(x, axes=[1, 0])))
    return [binding for binding in b.build().main.body if isinstance(binding.expr, Call)]


def facts(table: FactTable, binding: Binding) -> Any:
    assert isinstance(binding.expr, Call)
    return table(binding.expr, [v.type for v in binding.outputs])


def test_calls_are_looked_at_once_in_a_context(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Any] = []
    facts_of = definitions.facts_of
    monkeypatch.setattr(definitions, "facts_of", lambda *a: looked_at.append(a) or facts_of(*a))
    with PassContext():
        first = [facts(FactTable(), b) for b in bindings()]
        assert [facts(FactTable(), b) for b in bindings()] == first
        assert len(looked_at) == len(first) == 3
    with PassContext():
        assert [facts(FactTable(), b) for b in bindings()] == first
    assert len(looked_at) == 6
    assert [f.kind for f in first] == [LoopKind.MAP, LoopKind.INJECTIVE, LoopKind.CONTRACTION]
