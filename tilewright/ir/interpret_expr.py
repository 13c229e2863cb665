"""Expressions as Python closures, for the reference interpreter.

Scalars are Python's ints and bools and NumPy's floats, vectors are NumPy arrays. The common scalar
operations are written out for speed; all others are evaluated one node at a time by `ir.evaluate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.ir.buffer import Buffer
from tilewright.ir.evaluate import evaluate
from tilewright.ir.expr import Binary, Cast, Const, Expr, Load, Select, Unary, Var
from tilewright.support.dtype import DType, float32, float64
from tilewright.support.errors import UserError

Value = Any
Thunk = Callable[[], Value]
Array = np.ndarray[Any, np.dtype[Any]]
#: Deeper expressions would exhaust Python's stack.
_MAX_CLOSURES: Final = 200
#: Closures evaluate a shared part once per use; `evaluate` does so once. So they are limited.
_MAX_EVALUATIONS: Final = 500


class ExprCompiler:
    """Compiles expressions to closures over the state of one run."""

    def __init__(self) -> None:
        self.env: dict[Var, Value] = {}
        self.arrays: dict[Buffer, Array] = {}
        #: The active lanes: those for which surrounding selects chose this side. None means all.
        self.active: Array | None = None
        self._memo: dict[Expr, Thunk] = {}
        self._depth: dict[Expr, int] = {}
        self._evaluations: dict[Expr, int] = {}

    def expr(self, root: Expr) -> Thunk:
        """A closure for `root`; shared parts are compiled once."""
        pending = [root]
        while pending:
            node = pending[-1]
            missing = [o for o in node.operands if o not in self._memo]
            if missing and node not in self._memo:
                pending.extend(missing)
                continue
            pending.pop()
            if node not in self._memo:
                self._memo[node] = self._node(node)
        return self._memo[root]

    def _node(self, node: Expr) -> Thunk:
        depth = 1 + max((self._depth[o] for o in node.operands), default=0)
        self._depth[node] = depth
        evaluations = 1 + sum(self._evaluations[o] for o in node.operands)
        self._evaluations[node] = evaluations
        if depth > _MAX_CLOSURES or evaluations > _MAX_EVALUATIONS:
            # Closures call one another; `evaluate` uses a stack of its own.
            return lambda: plain(evaluate(node, self.env, self._loaded), node.dtype)
        compile_node = _NODES.get(type(node))
        found = compile_node(self, node) if compile_node else None
        return found or self._general(node)

    def _operands(self, node: Expr) -> list[Thunk]:
        return [self._memo[o] for o in node.operands]

    def _general(self, node: Expr) -> Thunk:
        """Any node, by NumPy: the same node over variables in place of its operands."""
        stand_ins = [Var("operand", o.dtype) for o in node.operands]
        template = node.with_operands(tuple(stand_ins))
        thunks, dtype = self._operands(node), node.dtype

        def run() -> Value:
            values = {v: t() for v, t in zip(stand_ins, thunks, strict=True)}
            return plain(evaluate(template, values), dtype)

        return run

    def _loaded(self, buffer: Buffer, indices: tuple[Array, ...], mask: Array | None) -> Array:
        """A load for `evaluate`."""
        array = self.arrays[buffer]
        parts = [*indices] if mask is None else [*indices, mask]
        shape = np.broadcast_shapes(*(p.shape for p in parts))
        lanes = np.ones(shape, bool) if mask is None else np.broadcast_to(mask, shape)
        lanes = (lanes if self.active is None else lanes & self.active).reshape(-1)
        spread = [np.broadcast_to(i, shape).reshape(-1) for i in indices]
        result = np.zeros(lanes.size, array.dtype)
        for lane, at in lanes_at(buffer, array, spread, lanes):
            result[lane] = array[at]
        return result.reshape(shape)

    # ---- one method per kind of node ------------------------------------------------------------

    def var(self, node: Var) -> Thunk:
        env = self.env
        return lambda: env[node]

    def const(self, node: Const) -> Thunk:
        value = plain(np.array(node.value, dtype=node.dtype.numpy), node.dtype)
        return lambda: value

    def unary(self, node: Unary) -> Thunk | None:
        a = self._memo[node.a]
        if node.dtype.is_vector or node.op == "bitnot":
            return None
        if node.op == "not":
            return lambda: not a()
        if node.dtype.is_float:
            return lambda: -a()
        wrap = wrapper(node.dtype)
        return lambda: wrap(-a())

    def binary(self, node: Binary) -> Thunk | None:
        if node.op in ("and", "or"):
            return self._logic(node)
        operand = node.a.dtype
        if operand.is_vector or operand.is_storage_only:
            return None
        rules = _FLOAT_RULES if operand.is_float else _INT_RULES
        rule = rules.get(node.op)
        return rule(self._memo[node.a], self._memo[node.b], wrapper(operand)) if rule else None

    def _logic(self, node: Binary) -> Thunk:
        """The second operand is active only where the first does not decide."""
        a, b = self._memo[node.a], self._memo[node.b]
        if not node.dtype.is_vector:
            return (lambda: a() and b()) if node.op == "and" else (lambda: a() or b())
        is_and = node.op == "and"

        def run() -> Array:
            first: Array = a()
            second: Array = self.within(first if is_and else ~first, b)
            return (first & second) if is_and else (first | second)

        return run

    def within(self, lanes: Array, thunk: Thunk) -> Value:
        """Evaluate with only these lanes active."""
        before = self.active
        self.active = lanes if before is None else lanes & before
        try:
            return thunk()
        finally:
            self.active = before

    def select(self, node: Select) -> Thunk:
        condition, a, b = (self._memo[o] for o in node.operands)
        if not node.condition.dtype.is_vector:
            return lambda: a() if condition() else b()

        def run() -> Value:
            chosen: Array = condition()
            taken: Array = self.within(chosen, a)
            other: Array = self.within(~chosen, b)
            return np.where(chosen, taken, other)

        return run

    def cast(self, node: Cast) -> Thunk | None:
        a = self._memo[node.a]
        to, of = node.dtype, node.a.dtype
        if to.is_vector or of.is_storage_only:
            return None
        if to.is_bool:
            return lambda: bool(a() != 0)
        if to.is_integer:
            return _to_integer(a, to) if of.is_float else _wrapped(a, wrapper(to))
        if of.is_float:
            return (lambda: np.float64(a())) if to is float64 else None
        return _to_float(a, to, self._general(node)) if to in (float32, float64) else None

    def load(self, node: Load) -> Thunk:
        buffer, arrays = node.buffer, self.arrays
        indices = [self._memo[i] for i in node.indices]
        mask = None if node.mask is None else self._memo[node.mask]
        dtype = node.dtype

        kind = _scalar_kind(dtype)
        nothing = plain(np.zeros((), dtype.numpy), dtype)

        def run_scalar() -> Value:
            if mask is not None and not mask():
                return nothing
            array = arrays[buffer]
            value = array[checked(buffer, array, [i() for i in indices])]
            return value if kind is None else kind(value)

        def run_vector() -> Value:
            lanes = self.lanes_of(dtype.lanes, mask)
            result = np.zeros(dtype.lanes, dtype.numpy)
            array = arrays[buffer]
            for lane, at in lanes_at(buffer, array, [i() for i in indices], lanes):
                result[lane] = array[at]
            return result

        return run_vector if dtype.is_vector else run_scalar

    def lanes_of(self, count: int, mask: Thunk | None) -> Array:
        """The lanes of an access that happen."""
        lanes = np.ones(count, bool) if mask is None else np.broadcast_to(mask(), count)
        return lanes if self.active is None else lanes & self.active


_NODES: dict[type[Expr], Callable[[ExprCompiler, Any], Thunk | None]] = {
    Var: ExprCompiler.var,
    Const: ExprCompiler.const,
    Unary: ExprCompiler.unary,
    Binary: ExprCompiler.binary,
    Select: ExprCompiler.select,
    Cast: ExprCompiler.cast,
    Load: ExprCompiler.load,
}


# ---- elements of buffers ------------------------------------------------------------------------


def checked(buffer: Buffer, array: Array, indices: list[int]) -> tuple[int, ...]:
    """The indices of one element, after a check that they are within the buffer."""
    for i, extent in zip(indices, array.shape):  # noqa: B905 (in the innermost loop)
        if not 0 <= i < extent:
            at = ", ".join(map(str, indices))
            raise UserError(
                f"access to {buffer.name}[{at}]",
                reason=f"it lies outside the shape {list(array.shape)}",
            )
    return tuple(indices)


def lanes_at(
    buffer: Buffer, array: Array, indices: list[Value], lanes: Array
) -> list[tuple[int, tuple[int, ...]]]:
    """The lanes of an access that happen, each with its element."""
    spread = [np.broadcast_to(i, lanes.shape) for i in indices]
    return [
        (int(lane), checked(buffer, array, [int(i[lane]) for i in spread]))
        for lane in np.flatnonzero(lanes)
    ]


# ---- scalars ------------------------------------------------------------------------------------


def plain(value: Any, dtype: DType) -> Value:
    """A NumPy result in the form that closures return."""
    if dtype.is_vector:
        return np.asarray(value)
    kind = _scalar_kind(dtype)
    return np.asarray(value)[()] if kind is None else kind(value)


def _scalar_kind(dtype: DType) -> type | None:
    """The Python type of scalars of this type; None leaves them to NumPy."""
    if dtype.is_float:
        return None
    return bool if dtype.is_bool else int


def wrapper(dtype: DType) -> Callable[[int], int]:
    """A function that wraps an integer around to the type."""
    if not dtype.is_integer:
        return lambda v: v
    low, high, modulus = int(dtype.min_value), int(dtype.max_value), 1 << dtype.bits

    def wrap(value: int) -> int:
        return value if low <= value <= high else (value - low) % modulus + low

    return wrap


def _wrapped(a: Thunk, wrap: Callable[[int], int]) -> Thunk:
    return lambda: wrap(int(a()))


def _to_integer(a: Thunk, dtype: DType) -> Thunk:
    low, high = int(dtype.min_value), int(dtype.max_value)

    def run() -> int:
        value = float(a())
        return 0 if math.isnan(value) else int(max(low, min(high, value)))

    return run


def _to_float(a: Thunk, dtype: DType, general: Thunk) -> Thunk:
    """Integers up to 2**53 are exact in float64, so that there is only one rounding."""
    scalar = dtype.numpy.type

    def run() -> Value:
        value = a()
        return scalar(float(value)) if -(1 << 53) <= value <= 1 << 53 else general()

    return run


Wrap = Callable[[int], int]
_Rule = Callable[[Thunk, Thunk, Wrap], Thunk]


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def _floormod(a: int, b: int) -> int:
    return a % b if b else 0


def _truncdiv(a: int, b: int) -> int:
    quotient = abs(a) // abs(b) if b else 0
    return -quotient if (a < 0) != (b < 0) else quotient


def _truncmod(a: int, b: int) -> int:
    return a - b * _truncdiv(a, b) if b else 0


_COMPARISONS: dict[str, _Rule] = {
    "eq": lambda a, b, _: lambda: bool(a() == b()),
    "ne": lambda a, b, _: lambda: bool(a() != b()),
    "lt": lambda a, b, _: lambda: bool(a() < b()),
    "le": lambda a, b, _: lambda: bool(a() <= b()),
    "gt": lambda a, b, _: lambda: bool(a() > b()),
    "ge": lambda a, b, _: lambda: bool(a() >= b()),
}
_INT_RULES: dict[str, _Rule] = {
    **_COMPARISONS,
    "add": lambda a, b, wrap: lambda: wrap(a() + b()),
    "sub": lambda a, b, wrap: lambda: wrap(a() - b()),
    "mul": lambda a, b, wrap: lambda: wrap(a() * b()),
    "floordiv": lambda a, b, wrap: lambda: wrap(_floordiv(a(), b())),
    "floormod": lambda a, b, _: lambda: _floormod(a(), b()),
    "truncdiv": lambda a, b, wrap: lambda: wrap(_truncdiv(a(), b())),
    "truncmod": lambda a, b, _: lambda: _truncmod(a(), b()),
    "min": lambda a, b, _: lambda: min(a(), b()),
    "max": lambda a, b, _: lambda: max(a(), b()),
}
_FLOAT_RULES: dict[str, _Rule] = {
    **_COMPARISONS,
    "add": lambda a, b, _: lambda: a() + b(),
    "sub": lambda a, b, _: lambda: a() - b(),
    "mul": lambda a, b, _: lambda: a() * b(),
    "div": lambda a, b, _: lambda: a() / b(),
}
