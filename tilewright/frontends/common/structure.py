"""Values that determine the structure of a program: axes, counts, target ranks, conditions.

They must be numbers when the graph is built. Most are constants; some are computed from constants;
some depend on the shapes or the values of inputs. The latter raise `UnspecialisedError`, so that
a caller with inputs can build the program for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from tilewright.graph import Array, Binding, Call, TensorType, Value
from tilewright.ir import Const, Expr, Var, free_vars
from tilewright.support.errors import TilewrightError, UserError
from tilewright.support.narrowing import is_tuple

#: Arrays with more elements than this are not computed while the graph is built.
_LIMIT: Final = 1 << 20


class UnspecialisedError(UserError):
    """The program depends on values or shapes of inputs that were not given.

    `values` are the inputs whose values, and `shapes` those whose shapes, must be passed to
    `from_onnx`. The program that it then gives holds for these alone.
    """

    def __init__(
        self,
        what: str,
        *,
        reason: str = "",
        values: Iterable[str] = (),
        shapes: Iterable[str] = (),
    ) -> None:
        self.values, self.shapes = tuple(values), tuple(shapes)
        parts = [
            f"{name}={{{', '.join(f'{i!r}: …' for i in inputs)}}}"
            for name, inputs in (("values", self.values), ("shapes", self.shapes))
            if inputs
        ]
        super().__init__(what, reason=reason, remedy=f"pass {' and '.join(parts)}")


class Structure:
    """Knows which bindings compute values, and computes these where constants are sufficient."""

    def __init__(self) -> None:
        self._producers: dict[Value, Binding] = {}
        self._inputs: dict[Value, str] = {}
        self._arrays: dict[Value, Array | None] = {}
        self._reads: dict[Var, Value] = {}

    def add_input(self, value: Value, name: str, given: Array | None) -> None:
        """An input of the model, with the value that the program is specialised for, if any."""
        self._inputs[value] = name
        if given is not None:
            self._arrays[value] = given

    def record(self, binding: Binding) -> None:
        """Remember what computes the outputs of a binding."""
        for value in binding.outputs:
            self._producers[value] = binding

    def record_read(self, value: Value, dims: Iterable[Expr]) -> None:
        """Remember that sizes are read from the elements of a tensor when the program runs."""
        self._reads.update({d: value for d in dims if isinstance(d, Var)})

    def is_read(self, dim: Expr) -> bool:
        """Whether a size comes from the elements of a tensor."""
        return not self._reads.keys().isdisjoint(free_vars(dim))

    # ---- computing ------------------------------------------------------------------------------

    def array(self, value: Value) -> Array | None:
        """The value as an array, if constants and given inputs determine it."""
        pending = [value]
        while pending:
            current = pending[-1]
            if current in self._arrays or current.constant is not None:
                pending.pop()
                continue
            waiting = [a for a in self._operands(current) if self._is_open(a)]
            if waiting:
                pending += waiting
                continue
            self._compute(current)
            pending.pop()
        return self._array(value)

    def _is_open(self, value: Value) -> bool:
        return value.constant is None and value not in self._arrays

    def _array(self, value: Value) -> Array | None:
        return value.constant if value.constant is not None else self._arrays.get(value)

    def _operands(self, value: Value) -> list[Value]:
        """Operands to compute first; none if `value` is known already, or cannot be."""
        binding = self._producers.get(value)
        if _from_known(value) is not None or binding is None or not _is_small(binding):
            return []
        return [a for a in binding.expr.args if a is not None]

    def _compute(self, value: Value) -> None:
        known = _from_known(value)
        binding = self._producers.get(value)
        if known is not None or binding is None or not _is_small(binding):
            self._arrays[value] = known
            return
        assert isinstance(binding.expr, Call)
        results = self._evaluated(binding.expr)
        for output, result in zip(binding.outputs, results or [], strict=False):
            self._arrays.setdefault(output, result)
        self._arrays.setdefault(value, None)

    def _evaluated(self, call: Call) -> list[Array] | None:
        args = [None if a is None else self._array(a) for a in call.args]
        missing = [a for a, v in zip(args, call.args, strict=True) if v is not None and a is None]
        attrs = {k: _plain(v) for k, v in call.attrs.items()}
        if missing or any(v is _UNKNOWN for v in attrs.values()):
            return None
        try:
            return [np.asarray(r) for r in call.op.evaluate(args, attrs)]
        except (TilewrightError, ArithmeticError, ValueError, TypeError, IndexError, MemoryError):
            return None

    # ---- asking ---------------------------------------------------------------------------------

    def require(self, value: Value, what: str) -> Array:
        """The value as an array; where it is not known, an error that says what to give."""
        found = self.array(value)
        if found is not None:
            return found
        raise self._refusal(f"{what} depends on what the model computes", [value], ())

    def require_dim(self, dim: Expr, what: str) -> None:
        """Raise an error for a dimension that must be a number and is not."""
        raise self._refusal(f"{what} is known only when the model runs", (), free_vars(dim))

    def _refusal(self, what: str, values: Iterable[Value], dims: Iterable[Var]) -> UserError:
        sources = _Sources()
        sources.collect(values, dims, self._producers, self._inputs, self._reads)
        reason = "the structure of the program depends on it"
        if not sources.complete or not (sources.values or sources.shapes):
            return UserError(what, reason=reason)
        return UnspecialisedError(what, reason=reason, values=sources.values, shapes=sources.shapes)


class _Sources:
    """The inputs whose values, and those whose shapes, are needed; and whether that is all."""

    def __init__(self) -> None:
        self.values: dict[str, None] = {}
        self.shapes: dict[str, None] = {}
        self.complete = True

    def collect(
        self,
        values: Iterable[Value],
        dims: Iterable[Var],
        producers: dict[Value, Binding],
        inputs: dict[Value, str],
        reads: dict[Var, Value],
    ) -> None:
        """Trace values and dimensions back to inputs."""
        shown = {v: name for x, name in inputs.items() for d in _shape(x) for v in free_vars(d)}
        pending: list[Value | Var] = [*values, *dims]
        seen = set(pending)
        while pending:
            current = pending.pop()
            if isinstance(current, Value):
                found = self._behind(current, producers, inputs, reads)
            else:
                found = self._behind_dim(current, shown, reads)
            pending += [f for f in found if f not in seen]
            seen.update(found)

    def _behind(
        self,
        value: Value,
        producers: dict[Value, Binding],
        inputs: dict[Value, str],
        reads: dict[Var, Value],
    ) -> list[Value | Var]:
        if value in inputs:
            self.values[inputs[value]] = None
            return []
        if value.constant is not None:
            return []
        dims = _dims(value)
        if dims is not None and not any(reads.get(d) is value for d in dims):
            return list(dims)
        binding = producers.get(value)
        if binding is None or not isinstance(binding.expr, Call):
            self.complete = False
            return []
        return [a for a in binding.expr.args if a is not None]

    def _behind_dim(
        self, dim: Var, shown: dict[Var, str], reads: dict[Var, Value]
    ) -> list[Value | Var]:
        if dim in shown:
            self.shapes[shown[dim]] = None
            return []
        source = reads.get(dim)
        if source is None:
            self.complete = False
            return []
        return [source]


_UNKNOWN: Final = object()


def _shape(value: Value) -> tuple[Expr, ...]:
    return value.type.shape if isinstance(value.type, TensorType) else ()


def _dims(value: Value) -> list[Var] | None:
    """The dimensions from which the elements of a value are computed, where they are known."""
    known = value.known
    return None if known is None else [v for e in known.ravel() for v in free_vars(e)]


def _from_known(value: Value) -> Array | None:
    known = value.known
    if known is None or not isinstance(value.type, TensorType):
        return None
    numbers = [e.value for e in known.ravel() if isinstance(e, Const)]
    if len(numbers) != known.size:
        return None
    return np.array(numbers, value.dtype.numpy).reshape(known.shape)


def _is_small(binding: Binding) -> bool:
    """Whether it is an operator whose results may be computed while the graph is built."""
    if not isinstance(binding.expr, Call) or not binding.expr.op.pure:
        return False
    return all(
        isinstance(v.type, TensorType) and v.type.is_static and (v.type.size or 0) <= _LIMIT
        for v in binding.outputs
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Const):
        return value.value
    if isinstance(value, Expr):
        return _UNKNOWN
    if is_tuple(value):
        items = [_plain(v) for v in value]
        return _UNKNOWN if any(i is _UNKNOWN for i in items) else tuple(items)
    return value
