"""Models whose structure depends on values or shapes of inputs, specialised at run time.

Examples are axes, target shapes of unknown rank, and conditions that determine types. A program is
compiled for each set of such values when it first occurs, and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.frontends import UnspecialisedError
from tilewright.graph import Module
from tilewright.runtime import CaseKey, CasesModel, RunnableModel, shape_of

Import = Callable[[Mapping[str, Any], Mapping[str, Sequence[int]]], Module]
Compile = Callable[[Module], RunnableModel]


class SpecialisedModel(CasesModel):
    """Programs for the values of some inputs, each compiled on first use."""

    def __init__(
        self,
        names: Sequence[str],
        needed: UnspecialisedError,
        build: Import,
        compile_graph: Compile,
    ) -> None:
        super().__init__(names, needed.values, needed.shapes)
        self._build, self._compile = build, compile_graph

    def _unseen(self, key: CaseKey, inputs: Mapping[str, Any]) -> None:
        try:
            self._keep(key, self._compile_for(inputs))
        except UnspecialisedError as error:
            self._require_progress(error)

    def _require_progress(self, error: UnspecialisedError) -> None:
        """Ensure termination: each round must find another input that the program depends on."""
        if self.by_value.issuperset(error.values) and self.by_shape.issuperset(error.shapes):
            raise error
        self.by_value.update(error.values)
        self.by_shape.update(error.shapes)

    def _compile_for(self, inputs: Mapping[str, Any]) -> RunnableModel:
        values = {n: inputs[n] for n in self._in_order(self.by_value)}
        shapes = {n: shape_of(inputs[n]) for n in self._in_order(self.by_shape)}
        return self._compile(self._build(values, shapes))
