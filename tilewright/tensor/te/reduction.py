"""Reductions: the axes they run over, and how values are combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import Const, DType, Expr, Var, as_expr, select
from tilewright.support.errors import UserError
from tilewright.tensor.te.operand import Operand, one_or_several
from tilewright.tensor.te.tensor import INDEX, Extent, extent_of

Values = tuple[Expr, ...]
Combine = Callable[[Values, Values], Values]


class ReduceAxis(Operand):
    """An index to reduce over: `extent` values from `start` on."""

    __slots__ = ("extent", "start", "var")

    def __init__(self, var: Var, start: Expr, extent: Expr) -> None:
        self.var, self.start, self.extent = var, start, extent

    @property
    def name(self) -> str:
        return self.var.name

    def as_expr(self) -> Expr:
        starts_at_zero = isinstance(self.start, Const) and self.start.value == 0
        return self.var if starts_at_zero else self.start + self.var

    def __repr__(self) -> str:
        return f"reduce_axis({self.name}, start={self.start}, extent={self.extent})"


def reduce_axis(extent: Extent | tuple[Extent, Extent], name: str = "k") -> ReduceAxis:
    """An axis over 0 … extent - 1 or, for a pair, over start … stop - 1."""
    start, stop = extent if isinstance(extent, tuple) else (0, extent)
    first, end = as_expr(start), as_expr(stop)
    owner = f"reduce axis {name}"
    for bound in (first, end):
        if bound.dtype is not INDEX:
            raise UserError(f"{owner} has the bound `{bound}`: it is {bound.dtype}, not int64")
    return ReduceAxis(Var(name), first, extent_of(_length(first, end), owner))


def _length(start: Expr, stop: Expr) -> Expr:
    if not isinstance(start, Const):
        return stop - start
    if isinstance(stop, Const):
        return Const(stop.value - start.value, INDEX)
    return stop if start.value == 0 else stop - start


class Reduction(Operand):
    """Values to combine over axes; must be the whole result of a compute's function."""

    __slots__ = ("axes", "combine", "hidden", "identities", "name", "values")

    def __init__(
        self,
        name: str,
        values: Values,
        axes: tuple[ReduceAxis, ...],
        identities: Values,
        combine: Combine,
        hidden: int = 0,
    ) -> None:
        self.name, self.values, self.axes = name, values, axes
        self.identities, self.combine = identities, combine
        #: How many of the last results are intermediate ones that users do not see.
        self.hidden = hidden

    @property
    def is_empty(self) -> bool:
        """Whether there is certainly nothing to combine."""
        return any(isinstance(a.extent, Const) and a.extent.value == 0 for a in self.axes)

    def as_expr(self) -> Expr:
        raise UserError(
            f"te.{self.name} over {', '.join(a.name for a in self.axes)} stands inside a larger "
            "expression",
            reason="a reduction has to be the whole result of a compute",
            remedy="give it a te.compute of its own and use the elements of that",
        )

    def __repr__(self) -> str:
        return f"te.{self.name}({', '.join(map(str, self.values))}, axis={list(self.axes)})"


class Reducer:
    """A commutative, associative way to combine; call it with values and axes."""

    def __init__(self, combine: Callable[..., Any], identity: Any, name: str) -> None:
        self._combine, self._identity, self.name = combine, identity, name

    def __call__(self, values: Any, axis: Any, where: Any = None, *, hidden: int = 0) -> Reduction:
        """Combine `values` (one, or a tuple) over `axis` (one, or several), where `where` holds."""
        single = not isinstance(values, tuple | list)
        exprs = tuple(as_expr(v) for v in one_or_several(values))
        _require_computable(self.name, exprs)
        identities = self._identities(exprs, single)
        combine = self._single if single else self._several
        self._check(combine(exprs, exprs), exprs)
        if where is not None:
            pairs = zip(exprs, identities, strict=True)
            exprs = tuple(select(where, value, identity) for value, identity in pairs)
        return Reduction(self.name, exprs, self._axes(axis), identities, combine, hidden)

    def _single(self, a: Values, b: Values) -> Values:
        return (as_expr(self._combine(a[0], b[0]), a[0].dtype),)

    def _several(self, a: Values, b: Values) -> Values:
        combined = one_or_several(self._combine(a, b))
        if len(combined) != len(a):
            raise UserError(
                f"reducer {self.name} does not combine {len(a)} values",
                reason=f"its function returns {len(combined)}",
                remedy=f"take two tuples of {len(a)} and return one",
            )
        return tuple(as_expr(new, old.dtype) for new, old in zip(combined, a, strict=True))

    def _check(self, combined: Values, values: Values) -> None:
        for new, old in zip(combined, values, strict=True):
            if new.dtype is not old.dtype:
                raise UserError(
                    f"reducer {self.name} gives {new.dtype} for values of {old.dtype}",
                    remedy="convert inside its function, with te.cast",
                )

    def _identities(self, values: Values, single: bool) -> Values:
        dtypes = [v.dtype for v in values]
        given = self._identity(*dtypes) if callable(self._identity) else self._identity
        given = one_or_several(given)
        if len(given) != len(values):
            raise UserError(
                f"reducer {self.name} has {len(given)} identities for {len(values)} values",
                reason="" if single else "it was called with a tuple",
                remedy="give one identity for each value",
            )
        return tuple(as_expr(i, d).astype(d) for i, d in zip(given, dtypes, strict=True))

    def _axes(self, axis: Any) -> tuple[ReduceAxis, ...]:
        axes = one_or_several(axis)
        if not axes or not all(isinstance(a, ReduceAxis) for a in axes):
            raise UserError(
                f"te.{self.name} cannot reduce over {axis!r}",
                remedy="make an axis with te.reduce_axis(extent) and pass it, or a list of them",
            )
        if len({a.var for a in axes}) != len(axes):
            raise UserError(f"te.{self.name} names an axis twice in {list(axes)}")
        return axes

    def __repr__(self) -> str:
        return f"te.comm_reducer({self.name})"


def comm_reducer(combine: Callable[..., Any], identity: Any, name: str = "reducer") -> Reducer:
    """A reducer of your own: `combine(a, b)` must be commutative and associative.

    `identity` is a number, or a function of the element type that gives one. To reduce several
    values at once, `combine` takes two tuples and returns one, and `identity` gives a tuple:

        argmax_pair = te.comm_reducer(
            lambda a, b: (te.select(a[1] >= b[1], a[0], b[0]), te.maximum(a[1], b[1])),
            lambda i, v: (-1, v.min_value),
        )
        te.compute((n,), lambda i: argmax_pair((k, A[i, k]), axis=k))
    """
    return Reducer(combine, identity, name)


def joined(reductions: Sequence[Reduction], owner: str) -> Reduction:
    """Several reductions over the same axes as one of several values."""
    axes = reductions[0].axes
    if any(tuple(map(id, r.axes)) != tuple(map(id, axes)) for r in reductions):
        raise UserError(
            f"{owner} returns reductions over different axes",
            reason="; ".join(", ".join(a.name for a in r.axes) for r in reductions),
            remedy="write one te.compute for each",
        )

    def combine(a: Values, b: Values) -> Values:
        result: Values = ()
        for r in reductions:
            at = slice(len(result), len(result) + len(r.values))
            result += r.combine(a[at], b[at])
        return result

    values = tuple(v for r in reductions for v in r.values)
    identities = tuple(i for r in reductions for i in r.identities)
    return Reduction(reductions[0].name, values, axes, identities, combine)


def _require_computable(name: str, values: Values) -> None:
    for value in values:
        if value.dtype.is_storage_only or value.dtype.is_vector:
            raise UserError(
                f"te.{name} cannot reduce `{value}`",
                reason=f"{value.dtype} is only for storage, not for computing",
                remedy="convert it first with .astype('float32') or .astype('int32')",
            )


def lowest(dtype: DType) -> bool | int | float:
    """A value that no value of the type is below: minus infinity for floats."""
    return float("-inf") if dtype.is_float else dtype.min_value


def highest(dtype: DType) -> bool | int | float:
    """A value that no value of the type is above: infinity for floats."""
    return float("inf") if dtype.is_float else dtype.max_value
