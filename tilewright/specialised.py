"""Models whose structure depends on values or shapes of inputs: built for those that come.

Axes, target shapes of unknown rank, conditions that decide on types: a program is made for each set
of such values the first time it is seen, and kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np

from tilewright.frontends import UnspecialisedError
from tilewright.graph import Array, Module
from tilewright.runtime import Inputs, RunnableModel, TensorSpec, ValueSpec
from tilewright.support.errors import UserError

#: Programs that are kept; the one that was not used for longest goes first.
_KEPT: Final = 32
#: Each round finds an input that the program depends on.
_ROUNDS: Final = 16

Import = Callable[[Mapping[str, Any], Mapping[str, Sequence[int]]], Module]
Compile = Callable[[Module], RunnableModel]


class SpecialisedModel(RunnableModel):
    """Programs for the values of some inputs, each compiled when they are first seen."""

    def __init__(
        self,
        names: Sequence[str],
        needed: UnspecialisedError,
        build: Import,
        compile_graph: Compile,
    ) -> None:
        super().__init__()
        self._names, self._build, self._compile = list(names), build, compile_graph
        #: The inputs whose values, and whose shapes, decide on the program.
        self.by_value, self.by_shape = set(needed.values), set(needed.shapes)
        self._programs: OrderedDict[Any, RunnableModel] = OrderedDict()
        self._lock = threading.Lock()
        self._last: RunnableModel | None = None

    @property
    def inputs(self) -> tuple[TensorSpec | ValueSpec, ...]:
        if self._last is not None:
            return self._last.inputs
        return tuple(ValueSpec(n, "depends on what the model is run on") for n in self._names)

    @property
    def outputs(self) -> tuple[TensorSpec | ValueSpec, ...]:
        return () if self._last is None else self._last.outputs

    def outputs_for(self, inputs: Inputs, out: Inputs) -> list[Any]:
        return self._program_for(self._named(inputs)).outputs_for(inputs, out)

    def _named(self, inputs: Inputs) -> Mapping[str, Any]:
        if isinstance(inputs, Mapping):
            missing = [n for n in self._names if n not in inputs]
            if missing:
                raise UserError(f"input {', '.join(missing)} is missing")
            return inputs
        if len(inputs) != len(self._names):
            taken = ", ".join(self._names)
            raise UserError(f"{len(inputs)} inputs were given", reason=f"the model takes {taken}")
        return dict(zip(self._names, inputs, strict=True))

    def _program_for(self, inputs: Mapping[str, Any]) -> RunnableModel:
        with self._lock:
            for _ in range(_ROUNDS):
                key = self._key(inputs)
                if key in self._programs:
                    self._programs.move_to_end(key)
                    self._last = self._programs[key]
                    return self._last
                try:
                    self._keep(key, self._made(inputs))
                except UnspecialisedError as error:
                    self._require_progress(error)
            raise UserError("the model depends on more of its inputs than can be followed")

    def _require_progress(self, error: UnspecialisedError) -> None:
        if self.by_value.issuperset(error.values) and self.by_shape.issuperset(error.shapes):
            raise error
        self.by_value |= set(error.values)
        self.by_shape |= set(error.shapes)

    def _made(self, inputs: Mapping[str, Any]) -> RunnableModel:
        values = {n: inputs[n] for n in self._names if n in self.by_value}
        shapes = {n: _shape(inputs[n]) for n in self._names if n in self.by_shape}
        return self._compile(self._build(values, shapes))

    def _keep(self, key: Any, model: RunnableModel) -> None:
        self._programs[key] = model
        if len(self._programs) > _KEPT:
            self._programs.popitem(last=False)

    def _key(self, inputs: Mapping[str, Any]) -> Any:
        values = [(n, _contents(inputs[n])) for n in self._names if n in self.by_value]
        shapes = [(n, tuple(_shape(inputs[n]))) for n in self._names if n in self.by_shape]
        return (tuple(values), tuple(shapes))


def _contents(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(map(_contents, value))  # pyright: ignore[reportUnknownArgumentType]
    array = np.asarray(value)
    data = tuple(array.ravel().tolist()) if array.dtype == object else array.tobytes()
    return (array.shape, str(array.dtype), data)


def _shape(value: Any) -> tuple[int, ...]:
    if isinstance(value, list) and value:
        return _shape(cast("list[Any]", value)[0])
    array: Array = np.asarray(cast("Any", value))
    return array.shape
