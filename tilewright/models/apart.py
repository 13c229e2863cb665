"""Models for inputs that disagree on a symbolic dimension.

Files give dimensions of several inputs one name, and programs rely on it: what is equal needs no
broadcasting. Some names are wrong, though, or stand for sizes of which some are 1 and broadcast.
Where such inputs come, the model is compiled once more with those dimensions told apart.
"""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence

from tilewright.frontends import UnspecialisedError
from tilewright.runtime import (
    CompiledModel,
    DimensionsDifferError,
    Inputs,
    RunnableModel,
    Spec,
    TensorSpec,
    in_order,
    shape_of,
)
from tilewright.support.errors import UserError

Shapes = Mapping[str, Sequence[int | str | None]]
#: A pattern of shapes: which dimensions are 1, and which are equal.
_Pattern = tuple[tuple[str, tuple[int | str | None, ...]], ...]


def share_names(specs: Sequence[Spec]) -> bool:
    """Whether some symbolic dimension stands in several places of the inputs."""
    names = [d for s in specs if isinstance(s, TensorSpec) for d in s.shape if isinstance(d, str)]
    return len(set(names)) < len(names)


class ApartModels:
    """The models for inputs that disagree on names: one for each pattern in which they do."""

    def __init__(
        self,
        model: RunnableModel,
        read: Callable[[Shapes], object],
        compiled: Callable[[Shapes], RunnableModel],
    ) -> None:
        """`read` builds the graph for inputs of some shapes, `compiled` the model."""
        self._specs = model.inputs
        self._read, self._compiled = read, compiled
        self._models: dict[_Pattern, RunnableModel | UserError] = {}
        self._lock = threading.Lock()

    def __call__(
        self, model: RunnableModel, inputs: Inputs, error: DimensionsDifferError
    ) -> RunnableModel:
        """The model that takes these inputs, which `model` refused with `error`."""
        given = zip(self._specs, in_order(inputs, self._specs), strict=True)
        extents = {s.name: shape_of(v) for s, v in given if isinstance(s, TensorSpec)}
        shapes = shapes_apart(self._specs, extents)
        pattern = tuple((name, tuple(shape)) for name, shape in shapes.items())
        with self._lock:
            if pattern not in self._models:
                self._models[pattern] = self._made(shapes, extents, error)
            found = self._models[pattern]
        if isinstance(found, UserError):
            raise _refusal(error, found) from found
        if isinstance(found, CompiledModel) and isinstance(model, CompiledModel):
            found.share_threads(model)
        return found

    def _made(
        self, shapes: Shapes, extents: Shapes, error: DimensionsDifferError
    ) -> RunnableModel | UserError:
        # Most often a wrong input: type rules find that out in far less time than compiling takes.
        try:
            self._read(extents)
        except UnspecialisedError:
            pass
        except UserError as wrong:
            return wrong
        told = "; ".join(f"{n}: [{', '.join(map(str, s))}]" for n, s in shapes.items())
        warnings.warn(
            f"{error.what}: {error.reason}; the model is compiled anew for {told}", stacklevel=6
        )
        return self._compiled(shapes)


def _refusal(error: UserError, found: UserError) -> UserError:
    """What was wrong with the inputs, and why they do not do otherwise either."""
    why = f"{found.what}: {found.reason}" if found.reason else found.what
    reason = f"{error.reason}; with that dimension told apart, {why}"
    return UserError(error.what, reason=reason, remedy=found.remedy, listing=found.listing)


def shapes_apart(
    specs: Sequence[Spec], extents: Mapping[str, Sequence[int]]
) -> dict[str, list[int | str | None]]:
    """Shapes in which a name that has several extents is a name for each; those of 1 are numbers.

    What is 1 may be broadcast, which the types must show.
    """
    tensors = [s for s in specs if isinstance(s, TensorSpec)]
    found: dict[str, dict[int, None]] = {}
    for spec in tensors:
        for dim, extent in zip(spec.shape, extents[spec.name], strict=True):
            if isinstance(dim, str):
                found.setdefault(dim, {})[extent] = None
    names = {d: _names(d, e, found) for d, e in found.items() if len(e) > 1}
    return {
        s.name: [
            names[d][n] if isinstance(d, str) and d in names else _as_it_was(d)
            for d, n in zip(s.shape, extents[s.name], strict=True)
        ]
        for s in tensors
    }


def _names(
    name: str, extents: Mapping[int, None], taken: Mapping[str, object]
) -> dict[int, int | str]:
    tries = (f"{name}_{k}" for k in itertools.count(2))
    fresh = itertools.chain([name], (t for t in tries if t not in taken))
    return {extent: 1 if extent == 1 else next(fresh) for extent in extents}


def _as_it_was(dim: object) -> int | str | None:
    return dim if isinstance(dim, int | str) else None
