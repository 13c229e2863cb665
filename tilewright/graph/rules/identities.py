"""Operators that leave an operand as it is: NaN, infinities and the sign of zero are kept."""

from __future__ import annotations

from functools import partial

import numpy as np

from tilewright.graph.ir import Value
from tilewright.graph.rules.rewriter import Rule
from tilewright.graph.rules.site import Site


def _is_all(value: Value, number: float) -> bool:
    """Whether a constant holds this number alone; the sign of zero counts."""
    array = value.constant
    if array is None or array.dtype.kind not in "fiu" or not array.size:
        return False
    same = bool((array == number).all())
    return same and (
        array.dtype.kind != "f" or bool((np.signbit(array) == np.signbit(number)).all())
    )


def _neutral(s: Site, number: float, sides: tuple[int, ...]) -> Value | None:
    for side in sides:
        if _is_all(s.arg(side), number):
            return s.arg(1 - side)
    return None


def _add(s: Site) -> Value | None:
    """x + 0 = x; floats: x + -0.0"""
    return _neutral(s, -0.0 if s.x.dtype.is_float else 0, (0, 1))


def _twice(s: Site, *, name: str) -> Value | None:
    """f(f(x)) = f(x)"""
    return None if s.made_by(s.x, name) is None else s.x


def _undone(s: Site, *, name: str) -> Value | None:
    """f(f(x)) = x"""
    inner = s.made_by(s.x, name)
    return None if inner is None else inner.args[0]


def _chosen(s: Site) -> Value | None:
    """where(c, x, x) = x; where(True, x, y) = x"""
    condition = s.x.constant
    if s.arg(1) is s.arg(2):
        return s.arg(1)
    if condition is None or not condition.size or condition.any() != condition.all():
        return None
    return s.arg(1) if condition.all() else s.arg(2)


RULES: dict[str, tuple[Rule, ...]] = {
    "add": (_add,),
    "sub": (partial(_neutral, number=0.0, sides=(1,)),),  # x - 0 = x
    "mul": (partial(_neutral, number=1.0, sides=(0, 1)),),  # x * 1 = x
    "div": (partial(_neutral, number=1.0, sides=(1,)),),  # x / 1 = x
    "pow": (partial(_neutral, number=1.0, sides=(1,)),),  # x ** 1 = x
    "where": (_chosen,),
    **{n: (partial(_twice, name=n),) for n in ("relu", "abs", "floor", "ceil", "sign")},
    **{n: (partial(_undone, name=n),) for n in ("neg", "logical_not", "bitwise_not")},
}
