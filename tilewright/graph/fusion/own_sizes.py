"""Kernels over symbols of their own for sizes that were computed, such as (h + 15) // 16.

    conv(x: f32[n, 64, (h + 15) // 16, w])   -->   conv(x: f32[n, 64, d0, w])    d0 = (h + 15) // 16

Proofs about indices stay short, and kernels that differ in such sizes alone are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.arith import prove_equal
from tilewright.graph.ir import Binding, Call, Value
from tilewright.graph.ir.types import TensorType, Type, substitute_type
from tilewright.graph.rewriting.rewrite import attribute_dims
from tilewright.graph.sizes.naturals import naturals
from tilewright.ir import Binary, Cast, Expr, Var, walk_expr
from tilewright.ir import Call as IntrinsicCall

_DIVISIONS = frozenset({"floordiv", "floormod", "truncdiv", "truncmod"})


def with_own_sizes(calls: Sequence[Binding], inputs: Iterable[Value]) -> dict[Value, Value] | None:
    """Values of simpler types for all that the calls take and make; None where there are none.

    Attributes that contain dimensions keep these as they are.
    """
    given = [v for v in inputs if isinstance(v.type, TensorType)]
    sizes = dict.fromkeys(d for v in given for d in v.shape if _is_involved(d))
    if not sizes or any(attribute_dims(b.expr) for b in calls):
        return None
    own = {size: Var(f"d{k}") for k, size in enumerate(sizes)}
    meaning: dict[Var, Expr] = {var: size for size, var in own.items()}
    made = {v: _renewed(v, own) for v in given}
    for binding in calls:
        if not _infer(binding, made, meaning):
            return None
    return made


def _is_involved(dim: Expr) -> bool:
    """Whether a size contains a division."""
    return any(
        isinstance(e, Cast | IntrinsicCall) or (isinstance(e, Binary) and e.op in _DIVISIONS)
        for e in walk_expr(dim)
    )


def _renewed(value: Value, own: dict[Expr, Var]) -> Value:
    shape = [own.get(d, d) for d in value.shape]
    if all(a is b for a, b in zip(shape, value.shape, strict=True)):
        return value
    return Value(value.name, value.tensor.with_shape(shape), value.constant)


def _infer(binding: Binding, made: dict[Value, Value], meaning: dict[Var, Expr]) -> bool:
    """Add what a call makes; whether it means the same as before."""
    call = binding.expr
    if not isinstance(call, Call) or any(a is not None and a not in made for a in call.args):
        return False
    args = [None if a is None else made[a] for a in call.args]
    types = call.op.infer(args, call.attrs)
    for value, type_ in zip(binding.outputs, types, strict=True):
        if not _means(type_, value.type, meaning):
            return False
        made[value] = Value(value.name, type_)
    return True


def _means(type_: Type, wanted: Type, meaning: dict[Var, Expr]) -> bool:
    if not isinstance(type_, TensorType) or not isinstance(wanted, TensorType):
        return False
    plain = substitute_type(type_, meaning)
    assert isinstance(plain, TensorType)
    pairs = zip(plain.shape, wanted.shape, strict=True)
    return all(a is b or prove_equal(a, b, naturals(a, b)) for a, b in pairs)
