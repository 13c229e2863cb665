"""Models with a program for each set of values or shapes that some of their inputs take."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from tilewright.runtime.artifact import Build, CaseKey, CasesContents, CompiledContents
from tilewright.runtime.artifact import HostedContents as Hosted
from tilewright.runtime.binding import Spec, ValueSpec, in_order
from tilewright.runtime.crossed import Crossed
from tilewright.runtime.executor import BoundModel
from tilewright.runtime.runnable import Inputs, RunnableModel
from tilewright.support.denormals import Denormals
from tilewright.support.errors import UserError
from tilewright.support.narrowing import is_sequence

if TYPE_CHECKING:
    from tilewright.support.profile import Profile

#: Most programs kept; the least recently used one is dropped first.
_KEPT: Final = 32


class CasesModel(RunnableModel):
    """Programs specialised for the values of some inputs and the shapes of others."""

    def __init__(
        self, names: Sequence[str], by_value: Iterable[str], by_shape: Iterable[str]
    ) -> None:
        super().__init__()
        self._names = list(names)
        #: The inputs whose values, and whose shapes, select the program.
        self.by_value, self.by_shape = set(by_value), set(by_shape)
        self._programs: OrderedDict[CaseKey, RunnableModel] = OrderedDict()
        self._lock = threading.Lock()
        self._last: RunnableModel | None = None

    @property
    def inputs(self) -> tuple[Spec, ...]:
        if self._last is not None:
            return self._last.inputs
        return tuple(ValueSpec(n, "depends on what the model is run on") for n in self._names)

    @property
    def outputs(self) -> tuple[Spec, ...]:
        return () if self._last is None else self._last.outputs

    @property
    def copied(self) -> Crossed:
        return super().copied if self._last is None else self._last.copied

    @property
    def precision(self) -> str:
        return super().precision if self._last is None else self._last.precision

    @property
    def denormals(self) -> Denormals:
        return super().denormals if self._last is None else self._last.denormals

    @property
    def cases(self) -> list[tuple[CaseKey, RunnableModel]]:
        """The programs that can still be selected, with their keys."""
        wanted = (self._in_order(self.by_value), self._in_order(self.by_shape))
        # Other threads may reorder programs: `list` copies them in one step.
        programs = list(self._programs.items())
        return [(k, m) for k, m in programs if _names_of(k) == wanted]

    def outputs_for(self, inputs: Inputs, out: Inputs) -> list[Any]:
        return self._program_for(self._named(inputs)).run(inputs, out=out)

    def bound_to(self, inputs: Inputs, out: Inputs) -> BoundModel:
        return self._program_for(self._named(inputs)).bind(inputs, out)

    def profile_of(self, inputs: Inputs, runs: int, warmup: int) -> Profile:
        return self._program_for(self._named(inputs)).profile(inputs, runs=runs, warmup=warmup)

    def set_threads(self, count: int | None = None, affinity: Sequence[int] | None = None) -> None:
        for _, model in self.cases:
            model.set_threads(count, affinity)

    def _named(self, inputs: Inputs) -> Mapping[str, Any]:
        given = in_order(inputs, [ValueSpec(n, "as the program needs it") for n in self._names])
        return dict(zip(self._names, given, strict=True))

    def _program_for(self, inputs: Mapping[str, Any]) -> RunnableModel:
        with self._lock:
            while True:
                key = self._key(inputs)
                if key in self._programs:
                    self._programs.move_to_end(key)
                    self._last = self._programs[key]
                    return self._last
                self._unseen(key, inputs)

    def _unseen(self, key: CaseKey, inputs: Mapping[str, Any]) -> None:
        """Compile and keep a program for new inputs; or find out what it depends on."""
        del inputs
        there = "; ".join(map(_key_text, self._programs))
        raise UserError(
            f"there is no program for {_key_text(key)}",
            reason=f"the artifact holds programs for {there}",
            remedy="compile the model, run it on such inputs, and save it again",
        )

    def _keep(self, key: CaseKey, model: RunnableModel) -> None:
        self._programs[key] = model
        if len(self._programs) > _KEPT:
            self._programs.popitem(last=False)

    def _key(self, inputs: Mapping[str, Any]) -> CaseKey:
        values = [(n, _contents(inputs[n])) for n in self._in_order(self.by_value)]
        shapes = [(n, shape_of(inputs[n])) for n in self._in_order(self.by_shape)]
        return (tuple(values), tuple(shapes))

    def _in_order(self, names: set[str]) -> list[str]:
        return [n for n in self._names if n in names]

    # ---- artifacts ------------------------------------------------------------------------------

    def as_build(self) -> Build:
        builds = [(key, model.as_build()) for key, model in self.cases]
        if not builds:
            raise UserError(
                "cannot save a model that has not been run",
                reason=f"its programs depend on {', '.join(self._decisive())}",
                remedy="run it once on each kind of inputs that it will meet, then save it",
            )
        kept = [(k, b.contents) for k, b in builds]
        cases = [(k, c) for k, c in kept if isinstance(c, CompiledContents | Hosted)]
        contents = CasesContents(
            tuple(self._names), frozenset(self.by_value), frozenset(self.by_shape), tuple(cases)
        )
        first = builds[0][1]
        return Build(first.target, first.pool, contents, first.memory)

    def _decisive(self) -> list[str]:
        return self._in_order(self.by_value | self.by_shape)


class LoadedCases(CasesModel):
    """The programs of an artifact; without a compiler for others."""

    def __init__(self, build: Build, opened: Callable[[Any], RunnableModel]) -> None:
        contents = cast("CasesContents", build.contents)
        super().__init__(contents.names, contents.by_value, contents.by_shape)
        self._build = build
        for key, part in contents.cases:
            self._programs[key] = self._last = opened(part)

    def as_build(self) -> Build:
        return self._build


def _names_of(key: CaseKey) -> tuple[list[str], list[str]]:
    return [n for n, _ in key[0]], [n for n, _ in key[1]]


def _key_text(key: CaseKey) -> str:
    values = [f"{name} = {_value_text(value)}" for name, value in key[0]]
    return ", ".join([*values, *(f"{name} of shape {list(shape)}" for name, shape in key[1])])


def _value_text(value: Any) -> str:
    if len(value) != 3 or not isinstance(value[1], str):
        return f"[{', '.join(map(_value_text, value))}]"
    shape, dtype, data = value
    text = str(np.frombuffer(data, dtype).tolist() if isinstance(data, bytes) else list(data))
    return f"{text[:60]} of shape {list(shape)}"


def _contents(value: Any) -> Any:
    if is_sequence(value):
        return tuple(map(_contents, value))
    array = np.asarray(value)
    data = tuple(array.ravel().tolist()) if array.dtype == object else array.tobytes()
    return (array.shape, str(array.dtype), data)


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of a tensor, or of the first one in a sequence."""
    if isinstance(value, list) and value:
        return shape_of(cast("list[Any]", value)[0])
    array: np.ndarray[Any, Any] = np.asarray(cast("Any", value))
    return array.shape
