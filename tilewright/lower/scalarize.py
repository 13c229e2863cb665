"""Compute vectors element by element, for back ends whose language has no vectors.

    A[ramp(i * 8, 1, 8)] = B[ramp(0, 1, 8)] + broadcast(c, 8)
    -->
    for k in range(8): A[i * 8 + k] = B[k] + c

Iterations of vectorized loops are independent, and run one after the other. Operations that take
lanes from other positions (`zip_low`, `lane`, …) read them from an array that is filled first; so
does a store whose lanes may overwrite elements that others still have to read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from tilewright.arith import simplify
from tilewright.ir import (
    Alloc,
    Broadcast,
    Buffer,
    Call,
    Const,
    DType,
    Evaluate,
    Expr,
    For,
    Function,
    If,
    Let,
    Ramp,
    Seq,
    Stmt,
    Store,
    Var,
    While,
    all_of,
    cast,
    const,
    loads_in,
    map_children,
    map_expr,
    reinterpret,
    select,
    seq,
    walk_expr,
)
from tilewright.support.errors import UserError

#: Hints to the processor or compiler: they change no value.
_HINTS: Final = ("prefetch", "keep_order")


def scalarize(function: Function) -> Function:
    """Replace all vectors, and all vectorized or unrolled loops."""
    return function.with_body(_Scalarizer(_in_place(function)).stmt(function.body))


def _in_place(function: Function) -> frozenset[Buffer]:
    """Parameters that may share memory."""
    numbers: Sequence[int] = function.attrs.get("in_place", ())
    buffers = function.buffers
    return frozenset([*(buffers[k] for k in numbers), buffers[-1]]) if numbers else frozenset()


def _has_vectors(expr: Expr | None) -> bool:
    return expr is not None and any(node.dtype.is_vector for node in walk_expr(expr))


class _Scalarizer:
    """Scalarizes one function; `together` are the buffers that may overlap."""

    def __init__(self, together: frozenset[Buffer]) -> None:
        self._together = together
        #: The arrays that hold named vectors.
        self._named: dict[Var, Buffer] = {}

    # ---- statements -----------------------------------------------------------------------------

    def stmt(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, For):
            kind = "parallel" if stmt.kind == "parallel" else "serial"
            stmt = stmt if stmt.kind in (kind, "thread") else replace(stmt, kind=kind)
        if isinstance(stmt, Evaluate) and isinstance(stmt.call, Call) and stmt.call.name in _HINTS:
            return Seq(())
        lanes = _Lanes(self._named)
        if isinstance(stmt, Store) and stmt.indices[0].dtype.is_vector:
            return lanes.around(self._store(stmt, lanes))
        if isinstance(stmt, Let) and stmt.var.dtype.is_vector:
            return lanes.around(self._let(stmt, lanes))
        changed = map_children(stmt, self.stmt, lanes.scalar)
        if isinstance(stmt, While) and lanes.filled:
            raise UserError(
                f"cannot compute `{stmt.condition}` element by element",
                reason="it is asked before every iteration",
                remedy="compute it in the loop, and keep the answer in a buffer",
            )
        return lanes.around(changed)

    def _let(self, stmt: Let, lanes: _Lanes) -> Stmt:
        """Replace a named vector by an array of that name."""
        array = _array(stmt.var.name, stmt.var.dtype)
        self._named[stmt.var] = array
        fill = lanes.for_each(stmt.var.dtype.lanes, lambda k: _put(array, k, stmt.value, lanes))
        return Alloc((array,), seq(fill, self.stmt(stmt.body)))

    def _store(self, stmt: Store, lanes: _Lanes) -> Stmt:
        count = stmt.indices[0].dtype.lanes
        first: list[tuple[Buffer, Expr]] = []

        def read(expr: Expr, name: str) -> Callable[[Expr], Expr]:
            """How to read one lane of an operand while lanes are stored."""
            if not self._may_read(expr, stmt):
                return lambda k: lanes.lane(expr, k)
            array = _array(name, expr.dtype)
            first.append((array, expr))
            return lambda k: array[k]

        value, index = read(stmt.value, "lanes"), read(stmt.indices[0], "places")
        mask = None if stmt.mask is None else read(stmt.mask, "chosen")

        def one(k: Expr) -> Stmt:
            store = Store(stmt.buffer, (index(k),), value(k), None, stmt.span)
            return store if mask is None else If(mask(k), store)

        def fill(k: Expr) -> Stmt:
            return seq(*(_put(array, k, expr, lanes) for array, expr in first))

        if not first:
            return lanes.for_each(count, one)
        both = seq(lanes.for_each(count, fill), lanes.for_each(count, one))
        return Alloc(tuple(array for array, _ in first), both)

    def _may_read(self, expr: Expr, store: Store) -> bool:
        """Whether a lane of `expr` may depend on what other lanes of the store have written."""
        (index,) = store.indices
        is_apart = (
            isinstance(index, Ramp) and isinstance(index.stride, Const) and index.stride.value
        )
        for load in loads_in(expr):
            own = load.indices == store.indices and is_apart
            if self._may_overlap(load.buffer, store.buffer) and not own:
                return True
        return False

    def _may_overlap(self, a: Buffer, b: Buffer) -> bool:
        return a is b or {a, b} <= self._together


def _array(name: str, dtype: DType) -> Buffer:
    return Buffer(name, dtype.scalar, (dtype.lanes,), scope="local")


def _put(array: Buffer, k: Expr, value: Expr, lanes: _Lanes) -> Stmt:
    return Store(array, (k,), lanes.lane(value, k))


class _Lanes:
    """The expressions of one statement; arrays whose lanes they read are filled before it."""

    def __init__(self, named: dict[Var, Buffer]) -> None:
        self._named = named
        self._arrays: dict[Expr, Buffer] = {}
        self.filled: list[tuple[Buffer, Stmt]] = []

    def around(self, stmt: Stmt) -> Stmt:
        """`stmt` after the loops that fill the arrays it reads."""
        if not self.filled:
            return stmt
        fills = (fill for _, fill in self.filled)
        return Alloc(tuple(array for array, _ in self.filled), seq(*fills, stmt))

    def for_each(self, count: int, body: Callable[[Expr], Stmt]) -> Stmt:
        lane = Var("k")
        return For(lane, const(count), "serial", body(lane))

    def scalar(self, expr: Expr) -> Expr:
        """A scalar without the vectors that it is computed from."""
        # A scalar takes lanes of vectors only from arrays, so any lane gives the same.
        return self.lane(expr, const(0)) if _has_vectors(expr) else expr

    def lane(self, expr: Expr, k: Expr) -> Expr:
        """Lane `k` of a vector; a scalar is the same in all lanes."""

        def of(node: Expr) -> Expr | None:
            return self._of_leaf(node, k)

        def over(node: Expr, operands: tuple[Expr, ...]) -> Expr:
            crossing = _CROSSING.get(node.name) if isinstance(node, Call) else None
            if isinstance(node, Call) and node.name.startswith("reinterpret_"):
                return self._regrouped(node, operands[0], k)
            if crossing is not None:
                assert isinstance(node, Call)
                return crossing(self, node, operands, k)
            if isinstance(node, Call) and "." in node.name:
                raise UserError(
                    f"cannot compute {node.name} element by element",
                    reason="that is an instruction on vectors",
                    remedy="build for target 'llvm', or leave tensorize out",
                )
            return node.with_operands(operands)

        return simplify(map_expr(expr, of, {}, over))

    def _of_leaf(self, node: Expr, k: Expr) -> Expr | None:
        if not node.dtype.is_vector:
            return None
        if isinstance(node, Ramp):
            return node.base + node.stride * cast(k, node.dtype.scalar)
        if isinstance(node, Broadcast):
            return node.a
        if isinstance(node, Var):
            return self._named[node][k]
        if isinstance(node, Const):
            return Const(node.value, node.dtype.scalar)
        return None

    def array(self, vector: Expr) -> Buffer:
        """The array that holds a vector."""
        if isinstance(vector, Var):
            return self._named[vector]
        if vector not in self._arrays:
            array = _array("vector", vector.dtype)
            fill = self.for_each(vector.dtype.lanes, lambda k: _put(array, k, vector, self))
            self._arrays[vector] = array
            self.filled.append((array, fill))
        return self._arrays[vector]

    # ---- what takes lanes from other places -----------------------------------------------------

    def _regrouped(self, node: Call, mapped: Expr, k: Expr) -> Expr:
        """The bits of adjacent lanes as one value, or of one lane as several."""
        (a,), wanted = node.args, node.dtype.scalar
        if a.dtype.lanes == node.dtype.lanes:
            return reinterpret(mapped, wanted)
        bits = DType.of(f"uint{wanted.bits}")
        own = DType.of(f"uint{a.dtype.bits}")
        if not a.dtype.is_vector:
            part = cast(reinterpret(mapped, own) >> cast(k * wanted.bits, own), bits)
            return reinterpret(part, wanted)
        array = self.array(a)
        if wanted.bits < a.dtype.bits:
            ratio = a.dtype.bits // wanted.bits
            whole, shift = reinterpret(array[k // ratio], own), cast(k % ratio * wanted.bits, own)
            return reinterpret(cast(whole >> shift, bits), wanted)
        ratio = wanted.bits // a.dtype.bits
        parts = [cast(reinterpret(array[k * ratio + n], own), bits) for n in range(ratio)]
        total = parts[0]
        for n, part in enumerate(parts[1:], start=1):
            total = total | (part << n * a.dtype.bits)
        return reinterpret(total, wanted)

    def one(self, node: Call, operands: Sequence[Expr], _k: Expr) -> Expr:
        return self.array(node.args[0])[cast(operands[1], "int64")]

    def every(self, node: Call, _operands: Sequence[Expr], _k: Expr) -> Expr:
        array = self.array(node.args[0])
        return all_of(*(array[n] for n in range(node.args[0].dtype.lanes)))

    def first(self, node: Call, _operands: Sequence[Expr], _k: Expr) -> Expr:
        lanes = node.args[0].dtype.lanes
        array, found = self.array(node.args[0]), const(lanes)
        for n in reversed(range(lanes)):
            found = select(array[n], const(n), found)
        return found

    def joined(self, node: Call, _operands: Sequence[Expr], k: Expr) -> Expr:
        a, b = (self.array(v) for v in node.args)
        lanes = node.args[0].dtype.lanes
        # Both sides are evaluated, so their indices must stay in range even where not selected.
        return select(k < lanes, a[k % lanes], b[k % lanes])

    def interleaved(self, node: Call, places: Expr, k: Expr) -> Expr:
        """Interleaved lanes of two vectors, from these positions of each."""
        a, b = (self.array(v) for v in node.args)
        return select(cast(k % 2, "bool"), b[places], a[places])


def _zipped(half: int, parts: int) -> Callable[[_Lanes, Call, Sequence[Expr], Expr], Expr]:
    def crossing(lanes: _Lanes, node: Call, _operands: Sequence[Expr], k: Expr) -> Expr:
        start = half * (node.args[0].dtype.lanes // parts)
        return lanes.interleaved(node, k // 2 + start, k)

    return crossing


def _unpacked(half: int) -> Callable[[_Lanes, Call, Sequence[Expr], Expr], Expr]:
    """As `_zipped`, within every 16 bytes of the vectors."""

    def crossing(lanes: _Lanes, node: Call, _operands: Sequence[Expr], k: Expr) -> Expr:
        own = 16 // node.dtype.scalar.itemsize
        return lanes.interleaved(node, k // own * own + k % own // 2 + half * own // 2, k)

    return crossing


_CROSSING: dict[str, Callable[[_Lanes, Call, Any, Expr], Expr]] = {
    "lane": _Lanes.one,
    "all_lanes": _Lanes.every,
    "first_lane": _Lanes.first,
    "join": _Lanes.joined,
    "zip": _zipped(0, 1),
    "zip_low": _zipped(0, 2),
    "zip_high": _zipped(1, 2),
    "unpack_low": _unpacked(0),
    "unpack_high": _unpacked(1),
}
