"""Gives kernels symbols of their own for sizes that were computed, such as (h + 15) // 16.

    conv(x: f32[n, 64, (h + 15) // 16, w])   -->   conv(x: f32[n, 64, d0, w])    d0 = (h + 15) // 16

Proofs about indices stay short, and kernels that differ only in such sizes are one. Sizes in
attributes are replaced first, and those of operands by what type rules derive from them:

    winograd_image(x: f32[6, 6, n, (h + 31) // 32, …], height=(h + 7) // 8, tiles=[4, 4])
      -->   winograd_image(x: f32[6, 6, n, (d0 + 3) // 4, …], height=d0, tiles=[4, 4])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tilewright.arith import prove_equal
from tilewright.graph.ir import Binding, Call, Value
from tilewright.graph.ir.attributes import attribute_parts
from tilewright.graph.ir.types import TensorType, Type, substitute_type
from tilewright.graph.sizes.naturals import naturals
from tilewright.ir import Binary, Cast, Expr, Var, free_vars, substitute, walk_expr
from tilewright.ir import Call as IntrinsicCall

_DIVISIONS = frozenset({"floordiv", "floormod", "truncdiv", "truncmod"})

#: Calls on new values, and the new value for each old one.
_Renewed = tuple[list[Binding], dict[Value, Value]]


def with_own_sizes(
    calls: Sequence[Binding], inputs: Iterable[Value], outputs: Iterable[Value]
) -> _Renewed | None:
    """The calls over values of simpler types; None where that changes what they mean."""
    given = [v for v in inputs if isinstance(v.type, TensorType)]
    stated = dict.fromkeys(d for b in calls for d in _attribute_sizes(b) if _is_involved(d))
    sizes = dict.fromkeys([*stated, *(d for v in given for d in v.shape if _is_involved(d))])
    if not sizes:
        return None
    own: dict[Expr, Expr] = {size: Var(f"d{k}") for k, size in enumerate(sizes)}
    meaning = {var: size for size, var in own.items() if isinstance(var, Var)}
    renewal = _Renewal(own, meaning, given)
    if not all(map(renewal.add, calls)):
        return None
    if stated and (tied := renewal.tied({own[size] for size in stated})):
        own = {size: tied.get(var, var) for size, var in own.items()}
        renewal = _Renewal(own, meaning, given)
        if not all(map(renewal.add, calls)):
            return None
    # The caller derives them from the shapes of its arguments.
    made = renewal.made
    shown = {d for v in (*given, *outputs) for d in made[v].shape}
    used = {v for size in own.values() for v in free_vars(size) if v in meaning}
    return (renewal.calls, made) if used <= shown else None


def _attribute_sizes(binding: Binding) -> list[Expr]:
    if not isinstance(binding.expr, Call):
        return []
    parts = (p for v in binding.expr.attrs.values() for p in attribute_parts(v))
    return [p for p in parts if isinstance(p, Expr)]


def _is_involved(dim: Expr) -> bool:
    """Whether a size contains a division, a cast or a call."""
    return any(
        isinstance(e, Cast | IntrinsicCall) or (isinstance(e, Binary) and e.op in _DIVISIONS)
        for e in walk_expr(dim)
    )


class _Renewal:
    """Calls over other sizes."""

    def __init__(
        self, own: Mapping[Expr, Expr], meaning: Mapping[Var, Expr], inputs: Iterable[Value]
    ) -> None:
        self._own, self._meaning = own, meaning
        self.made = {v: self._value(v) for v in inputs}
        self.calls: list[Binding] = []

    def _value(self, value: Value) -> Value:
        shape = [self._own.get(d, d) for d in value.shape]
        if all(a is b for a, b in zip(shape, value.shape, strict=True)):
            return value
        return Value(value.name, value.tensor.with_shape(shape), value.constant)

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._attribute(v) for v in attribute_parts(value))
        return self._own.get(value, value) if isinstance(value, Expr) else value

    def add(self, binding: Binding) -> bool:
        """Add a call; returns whether it means the same as before."""
        call = binding.expr
        if not isinstance(call, Call) or any(
            a is not None and a not in self.made for a in call.args
        ):
            return False
        args = [None if a is None else self.made[a] for a in call.args]
        attrs = {name: self._attribute(value) for name, value in call.attrs.items()}
        types = call.op.infer(args, attrs)
        for value, type_ in zip(binding.outputs, types, strict=True):
            if not _types_agree(type_, value.type, self._meaning):
                return False
            self.made[value] = Value(value.name, type_)
        outputs = [self.made[v] for v in binding.outputs]
        self.calls.append(Binding(outputs, Call(call.op, args, attrs), binding.origin))
        return True

    def tied(self, stated: set[Expr]) -> dict[Expr, Expr]:
        """The sizes that type rules derive from those in attributes, which are `stated`."""
        found: dict[Expr, Expr] = {}
        for a, b in self._required_equal():
            if a in self._meaning and a not in stated and self._is_tied(a, b):
                found.setdefault(a, b)
        return found

    def _required_equal(self) -> Iterator[tuple[Expr, Expr]]:
        """Pairs that type rules require to be equal, in either order."""
        for call in (b.expr for b in self.calls):
            asked = call.op.conditions(call.args, call.attrs) if isinstance(call, Call) else []
            for condition, _ in asked:
                if isinstance(condition, Binary) and condition.op == "eq":
                    yield condition.a, condition.b
                    yield condition.b, condition.a

    def _is_tied(self, a: Expr, b: Expr) -> bool:
        x, y = substitute(a, self._meaning), substitute(b, self._meaning)
        return a not in free_vars(b) and prove_equal(x, y, naturals(x, y))


def _types_agree(type_: Type, wanted: Type, meaning: Mapping[Var, Expr]) -> bool:
    if not isinstance(type_, TensorType) or not isinstance(wanted, TensorType):
        return False
    plain = substitute_type(type_, meaning)
    assert isinstance(plain, TensorType)
    pairs = zip(plain.shape, wanted.shape, strict=True)
    return all(a is b or prove_equal(a, b, naturals(a, b)) for a, b in pairs)
