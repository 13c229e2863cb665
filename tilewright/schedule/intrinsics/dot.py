"""Dot-product instructions: every lane of an accumulator adds a few products of neighbours.

    for i: for j: for k:  C[i, j] += A[i * depth + k] * B[j * depth + k]

`depth` neighbours along the reduction make a group; B is a vector of groups, one for each column.
Two kinds of instruction share this description. In the first, one group of A is multiplied by all
columns at once (VNNI, `sdot`): a tile of several rows reads their groups from one vector of A. In
the second, an accumulator holds a whole rows × columns tile (`smmla`): C is a vector, row by row.
The first kind can also multiply lane by lane, as depthwise convolutions need.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilewright.ir import (
    Buffer,
    Call,
    Const,
    DType,
    Expr,
    For,
    Function,
    Iter,
    Load,
    Ramp,
    Store,
    Var,
    broadcast,
    call,
    cast,
    const,
    declare,
    make_block,
    regroup,
    seq,
)
from tilewright.schedule.tensor_intrin import TensorIntrin, register_maker

_GROUP = DType.of("int32")


@dataclass(frozen=True)
class Dot:
    """One instruction, as the default rules choose it and as `tensorize` names it."""

    name: str
    #: Its name in LLVM; operands are the accumulator, if it adds to one, then two vectors.
    llvm: str
    #: The types of rows, columns and accumulators.
    a: DType
    b: DType
    out: DType
    rows: int
    columns: int
    needs: tuple[str, ...]
    #: Whether the instruction takes the columns first.
    columns_first: bool = False
    #: Whether one accumulator holds all rows.
    square: bool = False
    #: Bits of A that the instruction reads per row.
    row_bits: int = 32
    #: Whether the instruction adds to the accumulator; an addition follows where it does not.
    accumulates: bool = True
    #: Whether each column is multiplied by its own group: C[j] += A[j, k] * B[j, k].
    by_lane: bool = False

    @property
    def depth(self) -> int:
        """Steps of the reduction per instruction."""
        return self.row_bits // self.a.bits

    @property
    def lanes(self) -> int:
        """Lanes of an accumulator."""
        return self.columns * (self.rows if self.square else 1)

    @property
    def instructions(self) -> int:
        """The number of instructions to add to one accumulator."""
        return 1 if self.accumulates else 2

    def with_columns_first(self, name: str) -> Dot:
        """The same with the types of rows and columns exchanged."""
        return replace(self, name=name, a=self.b, b=self.a, columns_first=not self.columns_first)

    def register(self) -> Dot:
        """Make it known to `tensorize` and to the evaluator."""
        sums = self.out.with_lanes(self.lanes)
        declare(
            self.llvm,
            3 if self.accumulates else 2,
            "any",
            lambda _: sums,
            doc=f"{self.name}: sums of products of {self.a} and {self.b}",
            value=self.value if self.accumulates else self.sums,
            needs=self.needs,
        )
        register_maker(self.name, self.intrin)
        return self

    # ---- what it computes ------------------------------------------------------------------------

    def value(self, c: Any, first: Any, second: Any) -> Any:
        """The instruction on NumPy arrays; floats are multiplied and summed in C's type."""
        return c + self.sums(first, second)

    def sums(self, first: Any, second: Any) -> Any:
        """What is added to the accumulator."""
        a, b = (second, first) if self.columns_first else (first, second)
        wide = self.out.numpy
        rows = self.rows if self.square else 1
        # Without separate rows, the registers hold A's group repeated in every lane.
        a = a.reshape(*a.shape[:-1], rows, -1, self.depth).astype(wide)
        b = b.reshape(*b.shape[:-1], 1, self.columns, self.depth).astype(wide)
        if self.square:
            a = a.reshape(*a.shape[:-3], rows, 1, self.depth)
        sums = (a * b).sum(-1, dtype=wide)
        return sums.reshape(*sums.shape[:-2], self.lanes)

    # ---- as a tensor intrinsic -------------------------------------------------------------------

    def intrin(self) -> TensorIntrin:
        buffers = self._buffers()
        return TensorIntrin(
            self.name,
            Function("description", buffers, self._loops(*buffers)),
            Function("implementation", buffers, self._calls(*buffers)),
            self.needs,
        )

    def _buffers(self) -> tuple[Buffer, Buffer, Buffer]:
        own_rows = self.rows > 1 and not self.square
        shape = (self.rows, self.columns) if own_rows else (self.lanes,)
        groups = self.columns if self.by_lane else self.rows
        return (
            Buffer("A", self.a, (groups * self.depth,)),
            Buffer("B", self.b, (self.columns * self.depth,)),
            Buffer("C", self.out, shape),
        )

    def _loops(self, a: Buffer, b: Buffer, c: Buffer) -> For:
        extents = {"i": self.rows, "j": self.columns, "k": self.depth}
        named = {n: Var(n) for n, extent in extents.items() if n != "i" or extent > 1}
        iters = {n: Iter(Var(f"v{n}"), const(extents[n]), _kind(n)) for n in named}
        i, j, k = (iters[n].var if n in iters else const(0) for n in "ijk")
        where = self._result(c, i, j)
        left = cast(_at(a, j if self.by_lane else i, k, self.depth), self.out)
        right = cast(_at(b, j, k, self.depth), self.out)
        update = Store(c, where, Load(c, where) + left * right)
        nest: Any = make_block("D", iters.values(), named.values(), update)
        for n in reversed(named):
            nest = For(named[n], const(extents[n]), "serial", nest)
        return nest

    def _result(self, c: Buffer, i: Expr, j: Expr) -> tuple[Expr, ...]:
        if c.ndim == 2:
            return i, j
        return (i * self.columns + j if self.rows > 1 else j,)

    def _calls(self, a: Buffer, b: Buffer, c: Buffer) -> Any:
        columns = Load(b, (_whole(self.columns * self.depth),))
        if self.square:
            rows = Load(a, (_whole(self.rows * self.depth),))
            return self._store(c, (_whole(self.lanes),), rows, columns)
        lanes = _whole(self.columns)
        if self.by_lane:
            own = Load(a, (_whole(self.columns * self.depth),))
            return self._store(c, (lanes,), own, columns)
        return seq(
            *(
                self._store(c, (const(i), lanes) if c.ndim == 2 else (lanes,), row, columns)
                for i, row in enumerate(self._spread_rows(a))
            )
        )

    def _spread_rows(self, a: Buffer) -> list[Expr]:
        """The group of each row, broadcast to all lanes."""
        groups = regroup(Load(a, (_whole(self.rows * self.depth),)), _GROUP)
        each = [groups] if self.rows == 1 else [call("lane", groups, i) for i in range(self.rows)]
        return [regroup(broadcast(g, self.columns), self.a) for g in each]

    def _store(self, c: Buffer, where: tuple[Expr, ...], rows: Expr, columns: Expr) -> Store:
        first, second = (columns, rows) if self.columns_first else (rows, columns)
        accumulator = Load(c, where)
        if self.accumulates:
            value = Call(self.llvm, (accumulator, first, second), accumulator.dtype)
            return Store(c, where, value)
        return Store(c, where, accumulator + Call(self.llvm, (first, second), accumulator.dtype))


def _kind(name: str) -> Any:
    return "reduce" if name == "k" else "spatial"


def _at(buffer: Buffer, outer: Expr, inner: Expr, depth: int) -> Load:
    whole = inner if isinstance(outer, Const) else outer * depth + inner
    return Load(buffer, (whole,))


def _whole(lanes: int) -> Ramp:
    return Ramp(const(0), const(1), lanes)
