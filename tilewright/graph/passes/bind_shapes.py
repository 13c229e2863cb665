"""Gives inputs other shapes: numbers or other names for their symbolic dimensions.

bind_shapes(module, {"x": (8, 3, "side", "side")})

def main(x: f32[n, 3, h, w])       -->     def main(x: f32[8, 3, side, side])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, cast

from tilewright.graph.ir import Call, Function, Module, Value
from tilewright.graph.ir.types import as_dim, known_dim
from tilewright.graph.rewriting.rewrite import Rewriter
from tilewright.ir import Expr, Var
from tilewright.support.errors import UserError, nearest
from tilewright.support.faults import during


def bind_shapes(module: Module, shapes: Mapping[str, Sequence[Any]]) -> Module:
    """The module for inputs of these shapes; None leaves a dimension as it is."""
    require_shapes(shapes)
    with during("pass", "bind_shapes", module):
        return _bound(module, shapes)


def _bound(module: Module, shapes: Mapping[str, Sequence[Any]]) -> Module:
    main = module.main
    rewriter = Rewriter()
    rewriter.dims = _dims(main, shapes)
    if not rewriter.dims:
        return module
    made = module.map(lambda f: rewriter.graph(f) if f is main else f)
    for binding in made.main.body:
        if isinstance(binding.expr, Call):
            # Operators may have conditions on sizes that these numbers violate.
            binding.expr.op.infer(binding.expr.args, binding.expr.attrs)
    return made


def require_shapes(shapes: Any) -> None:
    """Refuse anything but a shape of an input: numbers, names of dimensions, or None (any size)."""
    if not isinstance(shapes, Mapping):
        reason = f"got {type(shapes).__name__}"
        raise UserError("shapes must be a dict of shapes by the names of inputs", reason=reason)
    for name, shape in cast("Mapping[Any, Any]", shapes).items():
        if isinstance(shape, str | bytes) or not isinstance(shape, Iterable):
            raise _no_shape(name, shape, "it is no list")
        for dim in cast("Iterable[Any]", shape):
            is_size = not isinstance(dim, bool) and isinstance(dim, Integral)
            if not (is_size or dim is None or isinstance(dim, str | Expr)):
                raise _no_shape(name, shape, f"{dim!r} is no size")


def _no_shape(name: Any, shape: Any, reason: str) -> UserError:
    return UserError(
        f"shapes gives input {name} the shape {shape!r}",
        reason=reason,
        remedy="give a list of whole numbers, and names for symbolic dimensions",
    )


def _dims(main: Function, shapes: Mapping[str, Sequence[Any]]) -> dict[Var, Expr]:
    inputs = {p.name: p for p in main.params}
    named: dict[str, Var] = {}
    found: dict[Var, Expr] = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise UserError(f"the model has no input {name}", remedy=nearest(name, inputs))
        value = inputs[name]
        if len(shape) != value.ndim:
            raise _refusal(value, shape, f"it has {value.ndim} dimensions")
        for own, wanted in zip(value.shape, shape, strict=True):
            _bind(value, shape, own, _dim(wanted, named), found)
    return found


def _dim(wanted: Any, named: dict[str, Var]) -> Expr | None:
    if isinstance(wanted, str):
        return named.setdefault(wanted, Var(wanted))
    return None if wanted is None else as_dim(wanted)


def _bind(
    value: Value, shape: Sequence[Any], own: Expr, wanted: Expr | None, found: dict[Var, Expr]
) -> None:
    if wanted is None or (known_dim(own) is not None and known_dim(own) == known_dim(wanted)):
        return
    if not isinstance(own, Var):
        raise _refusal(value, shape, f"its dimension {own} is fixed")
    before = found.setdefault(own, wanted)
    if before is not wanted:
        raise _refusal(value, shape, f"{own} is {before} already")


def _refusal(value: Value, shape: Sequence[Any], reason: str) -> UserError:
    given = ", ".join(map(str, shape))
    return UserError(
        f"input {value} cannot have the shape [{given}]",
        reason=reason,
        remedy="give numbers or names for its symbolic dimensions",
    )
