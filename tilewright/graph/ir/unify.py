"""Combining types: of the sides of branches, states of loops, arguments and parameters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from tilewright.arith import prove_equal
from tilewright.graph.ir.types import (
    ANY,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    UnknownType,
    fresh_dim,
    known_dim,
    substitute_type,
)
from tilewright.ir import Expr, Var, free_vars
from tilewright.support.errors import UserError

MakeDim = Callable[[], Expr]


def join(a: Type, b: Type) -> Type:
    """A type for values of both types; dimensions that differ become fresh symbolic ones."""
    return _join(a, b, fresh_dim)


def join_elements(a: Type, b: Type) -> Type:
    """The common type of elements of a sequence; dimensions that differ become `ANY`."""
    return _join(a, b, _any)


def join_items(a: Type, b: Type) -> Type:
    """The same for items of one sequence, which may be tensors of different ranks."""
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.ndim == b.ndim:
        return join_elements(a, b)
    if a.dtype is not b.dtype:
        raise _disagreement(a, b)
    return UnknownType(a.dtype, differs=True)


def _any() -> Expr:
    return ANY


def _join(a: Type, b: Type, fresh: MakeDim) -> Type:
    if a == b:
        return a
    # The element type of an empty sequence fits any rank; one of different ranks stays.
    for one, other in ((b, a), (a, b)):
        if isinstance(one, UnknownType) and _dtype(other) is one.dtype:
            return one if one.differs else other
    rule = _JOINS.get(type(a), _join_parts)
    if type(a) is not type(b):
        raise _disagreement(a, b)
    return rule(a, b, fresh)


def _dtype(type_: Type) -> Any:
    return getattr(type_, "dtype", None)


def _join_tensors(a: TensorType, b: TensorType, fresh: MakeDim) -> Type:
    if a.dtype is not b.dtype or a.ndim != b.ndim:
        raise _disagreement(a, b)
    dims = [
        x if x is y or (ANY not in (x, y) and prove_equal(x, y)) else fresh()
        for x, y in zip(a.shape, b.shape, strict=True)
    ]
    return TensorType(a.dtype, dims)


def _join_parts(a: Type, b: Type, fresh: MakeDim) -> Type:
    if len(a.parts) != len(b.parts) or not a.parts:
        raise _disagreement(a, b)
    return a.with_parts(tuple(_join(x, y, fresh) for x, y in zip(a.parts, b.parts, strict=True)))


_JOINS: dict[type[Type], Callable[[Any, Any, MakeDim], Type]] = {
    TensorType: _join_tensors,
    SequenceType: lambda a, b, _: SequenceType(join_elements(a.element, b.element)),
    OptionalType: lambda a, b, _: OptionalType(join_elements(a.element, b.element)),
}


def _disagreement(a: Type, b: Type) -> UserError:
    return UserError(
        f"one value would be {a} or {b}",
        reason="which of them depends on what the program computes, and ranks must be known",
    )


# ---- leaving a graph ----------------------------------------------------------------------------


def leaving(type_: Type, visible: Collection[Var]) -> Type:
    """The type outside a graph: dimensions that are only known inside become fresh ones."""
    return _leaving(type_, visible, fresh_dim)


def leaving_tensor(type_: TensorType, visible: Collection[Var]) -> TensorType:
    """The same, of a tensor."""
    return TensorType(type_.dtype, _leaving_dims(type_, visible, fresh_dim))


def _leaving(type_: Type, visible: Collection[Var], fresh: MakeDim) -> Type:
    if isinstance(type_, TensorType):
        return TensorType(type_.dtype, _leaving_dims(type_, visible, fresh))
    inner = _any if isinstance(type_, SequenceType | OptionalType) else fresh
    return type_.with_parts(tuple(_leaving(p, visible, inner) for p in type_.parts))


def _leaving_dims(type_: TensorType, visible: Collection[Var], fresh: MakeDim) -> list[Expr]:
    return [d if _is_visible(d, visible) else fresh() for d in type_.shape]


def _is_visible(dim: Expr, visible: Collection[Var]) -> bool:
    return dim is ANY or all(v in visible for v in free_vars(dim))


def widened(param: Type, result: Type, own: Collection[Var]) -> Type:
    """The type of a loop's state, given its type after an iteration; `own` dimensions are free."""
    if isinstance(param, TensorType) and isinstance(result, TensorType):
        if param.dtype is not result.dtype or param.ndim != result.ndim:
            raise _disagreement(param, result)
        dims = [
            p if p in own or p is r or prove_equal(p, r) else fresh_dim()
            for p, r in zip(param.shape, result.shape, strict=True)
        ]
        return TensorType(param.dtype, dims)
    return join(param, result)


def may_be(inferred: Type, written: Type) -> bool:
    """Whether a value of the inferred type may have the written one: only numbers contradict."""
    if isinstance(inferred, UnknownType) or isinstance(written, UnknownType):
        return _dtype(inferred) is _dtype(written)
    if type(inferred) is not type(written) or len(inferred.parts) != len(written.parts):
        return False
    if isinstance(inferred, TensorType) and isinstance(written, TensorType):
        pairs = list(zip(inferred.shape, written.shape, strict=False))
        fits = [known_dim(a) in (None, known_dim(b)) or known_dim(b) is None for a, b in pairs]
        return inferred.dtype is written.dtype and inferred.ndim == written.ndim and all(fits)
    if not inferred.parts:
        return inferred == written
    return all(may_be(a, b) for a, b in zip(inferred.parts, written.parts, strict=True))


# ---- calling ------------------------------------------------------------------------------------


def instantiate(
    params: Sequence[Type], results: Sequence[Type], args: Sequence[Type], visible: Collection[Var]
) -> tuple[Type, ...]:
    """The types of a call's results: dimensions of parameters are bound to those of the arguments.

    Dimensions that are `visible` around the call are the same ones inside the function.
    """
    if len(params) != len(args):
        raise UserError(f"the function takes {len(params)} arguments, not {len(args)}")
    values: dict[Var, Expr] = {}
    for param, arg in zip(params, args, strict=True):
        _match(param, arg, values, visible)
    known = {*visible, *(v for e in values.values() for v in free_vars(e))}
    return tuple(leaving(substitute_type(r, values), known) for r in results)


def _match(param: Type, arg: Type, values: dict[Var, Expr], visible: Collection[Var]) -> None:
    if isinstance(param, TensorType) and isinstance(arg, TensorType):
        if param.dtype is arg.dtype and param.ndim == arg.ndim:
            for p, a in zip(param.shape, arg.shape, strict=True):
                _match_dim(param, arg, p, a, values, visible)
            return
    elif type(param) is type(arg) and len(param.parts) == len(arg.parts):
        if param.parts or param == arg:
            for p, a in zip(param.parts, arg.parts, strict=True):
                _match(p, a, values, visible)
            return
    elif isinstance(arg, UnknownType) or isinstance(param, UnknownType):
        return
    raise UserError(f"an argument is {arg}", reason=f"the function takes {param}")


def _match_dim(
    param: Type, arg: Type, p: Expr, a: Expr, values: dict[Var, Expr], visible: Collection[Var]
) -> None:
    if isinstance(p, Var) and p not in visible and p is not ANY:
        p = values.setdefault(p, a)
    x, y = known_dim(p), known_dim(a)
    if x is not None and y is not None and x != y:
        raise UserError(f"an argument is {arg}", reason=f"the function takes {param}: {x}, not {y}")
