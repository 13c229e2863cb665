"""Models for inputs that contradict what a program assumes of symbolic dimensions.

Model files give dimensions of several inputs the same name, and programs rely on it: equal
dimensions need no broadcasting. But some names are wrong, or stand for sizes that are sometimes 1
and broadcast. For such inputs, the model is recompiled with different names for those dimensions.

Programs for symbolic sizes also check the conditions of operators, and some sizes that violate them
are legal on their own: a pooling clips its window to a smaller image. Where the model is legal with
the given sizes as constants, it is recompiled for these.
"""

from __future__ import annotations

import itertools
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tilewright.arith import simplify
from tilewright.frontends import UnspecialisedError
from tilewright.graph import Call, Module, TensorType
from tilewright.ir import Const, Expr, Var, as_expr, substitute
from tilewright.runtime import (
    CompiledModel,
    DimensionsDifferError,
    Inputs,
    RunnableModel,
    Spec,
    TensorSpec,
    UnsuitedError,
    in_order,
    shape_of,
)
from tilewright.support.errors import UserError

Extents = Mapping[str, Sequence[int]]
Shapes = Mapping[str, Sequence[int | str | None]]
#: A pattern of shapes: which dimensions are 1, and which are equal.
_Pattern = tuple[tuple[str, tuple[int | str | None, ...]], ...]
#: Most models kept for other patterns; the least recently used one is dropped first.
_KEPT: Final = 16


def have_free_sizes(specs: Sequence[Spec]) -> bool:
    """Whether any input has a symbolic dimension."""
    return any(isinstance(s, TensorSpec) and s.static_shape is None for s in specs)


class ApartModels:
    """The models for inputs that do not fit, one for each pattern."""

    def __init__(
        self,
        model: RunnableModel,
        read: Callable[[Shapes], Module],
        compiled: Callable[[Shapes], RunnableModel],
    ) -> None:
        """`read` builds the graph for inputs with given shapes, `compiled` the model."""
        self._specs = model.inputs
        self._read, self._compiled = read, compiled
        self._models: OrderedDict[_Pattern, RunnableModel | UserError] = OrderedDict()
        self._lock = threading.Lock()
        self._checks: SizeChecks | None = None

    def __call__(self, model: RunnableModel, inputs: Inputs, error: UnsuitedError) -> RunnableModel:
        """The model for these inputs, which `model` refused with `error`."""
        given = zip(self._specs, in_order(inputs, self._specs), strict=True)
        extents = {s.name: shape_of(v) for s, v in given if isinstance(s, TensorSpec)}
        if isinstance(error, DimensionsDifferError):
            shapes = shapes_apart(self._specs, extents)
        elif self._are_refused(extents):
            shapes = {name: list[int | str | None](sizes) for name, sizes in extents.items()}
        else:
            raise error
        pattern = tuple((name, tuple(shape)) for name, shape in shapes.items())
        with self._lock:
            if pattern not in self._models:
                self._models[pattern] = self._compile_for(shapes, extents, error)
            found = self._models[pattern]
            self._models.move_to_end(pattern)
            if len(self._models) > _KEPT:
                self._models.popitem(last=False)
        if isinstance(found, UserError):
            raise _refusal(error, found) from found
        if isinstance(found, CompiledModel) and isinstance(model, CompiledModel):
            found.share_threads(model)
        return found

    def _are_refused(self, extents: Extents) -> bool:
        """Whether these sizes violate a check of the program, whatever the elements are."""
        with self._lock:
            try:
                self._checks = self._checks or SizeChecks(self._read({}))
            except UserError:
                return False  # the file cannot be read again
            return self._checks.fail(extents)

    def _compile_for(
        self, shapes: Shapes, extents: Extents, error: UnsuitedError
    ) -> RunnableModel | UserError:
        # Mostly the input is wrong: type inference finds that in far less time than compiling.
        try:
            self._read(extents)
        except UnspecialisedError:
            pass
        except UserError as wrong:
            return wrong
        sizes = "; ".join(f"{n}: [{', '.join(map(str, s))}]" for n, s in shapes.items())
        warnings.warn(
            f"{error.what}: {error.reason}; the model is compiled anew for {sizes}", stacklevel=6
        )
        return self._compiled(shapes)


class SizeChecks:
    """The conditions of a graph's operators on the sizes of its inputs."""

    def __init__(self, module: Module) -> None:
        main = module.main
        calls = [b.expr for b in main.body if isinstance(b.expr, Call)]
        asked = [c for call in calls for c, _ in call.op.conditions(call.args, call.attrs)]
        self._conditions: list[Expr] = list(dict.fromkeys(map(simplify, asked)))
        self._shapes = {p.name: p.shape for p in main.params if isinstance(p.type, TensorType)}

    def fail(self, extents: Extents) -> bool:
        """Whether these sizes violate a condition."""
        known: dict[Var, Expr] = {}
        for name, shape in self._shapes.items():
            pairs = zip(shape, extents[name], strict=True)
            known |= {dim: as_expr(extent) for dim, extent in pairs if isinstance(dim, Var)}
        found = (simplify(substitute(c, known)) for c in self._conditions)
        return any(isinstance(c, Const) and not c.value for c in found)


def _refusal(error: UserError, found: UserError) -> UserError:
    """The original error, with the reason why recompiling fails as well."""
    if found.what == error.reason:
        return error
    why = f"{found.what}: {found.reason}" if found.reason else found.what
    differ = isinstance(error, DimensionsDifferError)
    done = "with different names for that dimension" if differ else "with these sizes as numbers"
    reason = f"{error.reason}; {done}, {why}"
    return UserError(error.what, reason=reason, remedy=found.remedy, listing=found.listing)


def shapes_apart(specs: Sequence[Spec], extents: Extents) -> dict[str, list[int | str | None]]:
    """Shapes in which a name with several extents becomes one name for each, and 1 a constant.

    A dimension of 1 may be broadcast, which must be visible in the types.
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
