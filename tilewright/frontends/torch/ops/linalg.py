"""Linear algebra by the factors L and U.

Factorisations go column by column in a loop whose steps work on whole matrices: that supports
batches, and nothing depends on their size. They are computed in float64.
"""

from __future__ import annotations

from typing import Any

from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.table import converts
from tilewright.frontends.torch.tensors import element_type
from tilewright.graph import Dim, Value

# ---- matrices -----------------------------------------------------------------------------------


class Rows:
    """Common values of factorisations for matrices of one shape."""

    def __init__(self, n: Node, x: Value) -> None:
        self.n, self.b = n, n.builder
        self.batch: list[Dim] = list(x.shape[:-2])
        self.rows, self.columns = x.shape[-2:]
        #: The number of each row as a column, and of each column as a row.
        self.row = self._count(self.rows, 1)
        self.column = self._count(self.columns, 0)

    def _count(self, size: Dim, behind: int) -> Value:
        zero, one = (self.n.constant(k, "int64") for k in (0, 1))
        ramp = self.b.ramp(zero, one, size=size)
        return self.b.unsqueeze(ramp, axes=[behind])

    def at_column(self, x: Value, k: Value) -> Value:
        """Column k, as a matrix of one column."""
        return self.b.unsqueeze(self.b.gather(x, k, axis=x.ndim - 1), axes=[x.ndim - 1])

    def at_row(self, x: Value, k: Value) -> Value:
        """Row k, as a matrix of one row."""
        return self.b.unsqueeze(self.b.gather(x, k, axis=x.ndim - 2), axes=[x.ndim - 2])


def wide(n: Node, name: str) -> Value:
    """A matrix in float64."""
    return n.tensor(name, "float64")


def fitted(n: Node, *values: Value) -> list[Value]:
    """Results in the types that torch gives them."""
    metas = n.results
    return [n.cast(v, element_type(m.dtype)) for v, m in zip(values, metas, strict=False)]


def least(a: Any, c: Any, n: Node) -> Value:
    """The smaller of two sizes as a number."""
    return n.builder.minimum(n.number(a, "int64"), n.number(c, "int64"))


def factor_lu(n: Node, x: Value) -> tuple[Value, Value, Value, Value]:
    """(LU, the row that each is swapped with, permutation of rows, its sign)."""
    at, b = Rows(n, x), n.builder
    one = n.constant(1, "int64")
    batch = at.batch
    order = n.expanded(at.row, [*batch, at.rows, 1])
    swaps = n.expanded(at.row, [*batch, at.rows, 1])
    sign = n.full(1, [*batch, 1, 1], "float64")

    def step(k: Value, a: Value, order: Value, swaps: Value, sign: Value) -> Any:
        column = at.at_column(a, k)
        left = b.less(at.row, k)
        size = b.where(left, n.constant(-1.0, "float64"), b.abs(column))
        pivot = b.argmax(size, axis=a.ndim - 2, keepdims=True)
        place = b.where(b.equal(at.row, k), pivot, b.where(b.equal(at.row, pivot), k, at.row))
        place = n.expanded(place, [*batch, at.rows, 1])
        a = b.gather_elements(a, n.expanded(place, [*batch, at.rows, at.columns]), axis=a.ndim - 2)
        order = b.gather_elements(order, place, axis=a.ndim - 2)
        swaps = b.where(b.equal(at.row, k), pivot, swaps)
        sign = b.where(b.equal(pivot, k), sign, b.neg(sign))
        top = at.at_row(a, k)
        head = at.at_column(top, k)
        below = b.greater(at.row, k)
        safe = b.where(b.equal(head, n.constant(0.0, "float64")), n.constant(1.0, "float64"), head)
        factor = b.where(below, b.div(at.at_column(a, k), safe), n.constant(0.0, "float64"))
        right = b.greater(at.column, k)
        change = b.mul(factor, b.where(right, top, n.constant(0.0, "float64")))
        here = b.logical_and(below, b.equal(at.column, k))
        a = b.where(here, factor, b.sub(a, change))
        return a, order, swaps, sign

    count = least(at.rows, at.columns, n)
    start = [x, order, swaps, sign]
    # An empty matrix has no greatest element, however few steps there are.
    made = b.loop(count, start, step) if x.tensor.size != 0 else start
    swaps = b.add(b.squeeze(made[2], axes=[x.ndim - 1]), one)
    size = n.shape_of_least(at.rows, at.columns)
    swaps = b.slice(swaps, starts=[0], ends=[size], axes=[swaps.ndim - 1])
    return made[0], swaps, b.squeeze(made[1], axes=[x.ndim - 1]), b.reshape(made[3], shape=batch)


def triangle(n: Node, x: Value, upper: bool, unit: bool = False) -> Value:
    """The triangle of matrices; with ones on the diagonal if `unit`."""
    b, at = n.builder, Rows(n, x)
    made = b.trilu(x, k=0, upper=upper)
    if not unit:
        return made
    return b.where(b.equal(at.row, at.column), n.constant(1.0, "float64"), made)


def solve_triangular(n: Node, a: Value, y: Value, upper: bool, unit: bool) -> Value:
    """X with A X = Y for triangular A: one row of X after the other."""
    b, at = n.builder, Rows(n, a)
    batch = n.joined_batch(a, y)
    a = n.expanded(a, [*batch, *a.shape[-2:]])
    y = n.expanded(y, [*batch, *y.shape[-2:]])
    a = triangle(n, a, upper, unit)
    count = n.number(at.rows, "int64")
    last = b.sub(count, n.constant(1, "int64"))

    def step(i: Value, x: Value) -> Any:
        k = b.sub(last, i) if upper else i
        row = at.at_row(a, k)
        head = at.at_column(row, k)
        rest = b.where(b.equal(at.column, k), n.constant(0.0, "float64"), row)
        value = b.div(b.sub(at.at_row(y, k), b.matmul(rest, x)), head)
        return b.where(b.equal(at.row, k), value, x)

    return b.loop(count, [b.mul(y, n.constant(0.0, "float64"))], step)


def solve(n: Node, a: Value, y: Value) -> Value:
    """X with A X = Y."""
    lu, _, order, _ = factor_lu(n, a)
    return solve_factored(n, lu, order, y)


def solve_factored(n: Node, lu: Value, order: Value, y: Value) -> Value:
    """X with P L U X = Y; `order` is the permutation of the rows."""
    b = n.builder
    batch = n.joined_batch(lu, y)
    y = n.expanded(y, [*batch, *y.shape[-2:]])
    place = b.unsqueeze(n.expanded(order, [*batch, order.shape[-1]]), axes=[len(batch) + 1])
    moved = b.gather_elements(y, n.expanded(place, y.shape), axis=y.ndim - 2)
    inner = solve_triangular(n, lu, moved, False, True)
    return solve_triangular(n, lu, inner, True, False)


def unit_matrix(n: Node, x: Value) -> Value:
    """Unit matrices of the shape of x."""
    eye = n.builder.eye(rows=x.shape[-2], columns=x.shape[-1], dtype="float64")
    return n.expanded(eye, x.shape)


# ---- by LU --------------------------------------------------------------------------------------


@converts("linalg_lu_factor_ex", "linalg_lu_factor", "_lu_with_info")
def lu_factor(n: Node) -> list[Value]:
    x = wide(n, "A" if "A" in n else "self")
    lu, swaps, _, _ = factor_lu(n, x)
    return fitted(n, lu, swaps, n.full(0, x.shape[:-2], "int32"))


@converts("linalg_lu")
def lu(n: Node) -> list[Value]:
    x = wide(n, "A")
    made, _, order, _ = factor_lu(n, x)
    return fitted(n, *_unpacked(n, made, order))


def _unpacked(n: Node, made: Value, order: Value) -> tuple[Value, Value, Value]:
    b = n.builder
    rows, columns = made.shape[-2:]
    size = n.shape_of_least(rows, columns)
    lower = b.slice(triangle(n, made, False, True), starts=[0], ends=[size], axes=[made.ndim - 1])
    upper = b.slice(triangle(n, made, True), starts=[0], ends=[size], axes=[made.ndim - 2])
    lines = b.unsqueeze(order, axes=[order.ndim - 1])
    numbers = b.ramp(n.constant(0, "int64"), n.constant(1, "int64"), size=rows)
    permutation = b.equal(b.unsqueeze(numbers, axes=[1]), lines)
    return n.cast(permutation, "float64"), lower, upper


def order_of(n: Node, swaps: Value, rows: Dim) -> Value:
    """The permutation that results from swaps, which count from 1."""
    b = n.builder
    batch = swaps.shape[:-1]
    numbers = b.ramp(n.constant(0, "int64"), n.constant(1, "int64"), size=rows)
    start = n.expanded(numbers, [*batch, rows])
    wide_ = n.cast(swaps, "int64")

    def step(k: Value, order: Value) -> Any:
        other = b.sub(b.gather(wide_, k, axis=wide_.ndim - 1), n.constant(1, "int64"))
        other = b.unsqueeze(other, axes=[other.ndim])
        place = b.where(b.equal(numbers, k), other, b.where(b.equal(numbers, other), k, numbers))
        return b.gather_elements(order, n.expanded(place, [*batch, rows]), axis=order.ndim - 1)

    return b.loop(n.number(swaps.shape[-1], "int64"), [start], step)


@converts("lu_unpack")
def lu_unpack(n: Node) -> list[Value]:
    made = wide(n, "LU_data")
    order = order_of(n, n.tensor("LU_pivots"), made.shape[-2])
    parts = _unpacked(n, made, order)
    metas = n.results
    # Parts that are not requested are empty.
    kept = [
        p if len(m.shape) > 1 else n.full(0, [0], "float64")
        for p, m in zip(parts, metas, strict=True)
    ]
    return fitted(n, *kept)


@converts("linalg_lu_solve")
def lu_solve(n: Node) -> Value:
    made, y, left = wide(n, "LU"), wide(n, "B"), bool(n.get("left", True))
    order = order_of(n, n.tensor("pivots"), made.shape[-2])
    y = y if left else transposed(n, y)
    # Solving from the right is solving the transposed system; two transposes cancel.
    straight = left != bool(n.get("adjoint", False))
    x = (solve_factored if straight else solve_transposed)(n, made, order, y)
    return fitted(n, x if left else transposed(n, x))[0]


def solve_transposed(n: Node, lu: Value, order: Value, y: Value) -> Value:
    """X with (P L U)ᵀ X = Y."""
    b = n.builder
    inner = solve_triangular(n, transposed(n, lu), y, False, False)
    lower = transposed(n, triangle(n, lu, False, True))
    x = solve_triangular(n, lower, inner, True, True)
    place = b.sort(n.expanded(order, [*x.shape[:-2], order.shape[-1]]), axis=-1)[1]
    place = b.unsqueeze(place, axes=[place.ndim])
    return b.gather_elements(x, n.expanded(place, x.shape), axis=x.ndim - 2)


@converts("_linalg_solve_ex", "linalg_solve_ex")
def solve_ex(n: Node) -> list[Value]:
    b, a, y = n.builder, wide(n, "A"), wide(n, "B")
    left = bool(n.get("left", True))
    is_vector = y.ndim == 1 or y.ndim == a.ndim - 1
    if is_vector:
        y = b.unsqueeze(y, axes=[y.ndim])
    if not left:
        a, y = (transposed(n, v) for v in (a, y))
    x = solve(n, a, y)
    x = x if left else transposed(n, x)
    x = b.squeeze(x, axes=[x.ndim - 1]) if is_vector else x
    info = n.full(0, a.shape[:-2], "int32")
    results = [x, *kept_factors(n), info] if len(n.results) == 4 else [x, info]
    return fitted(n, *results)


def kept_factors(n: Node) -> tuple[Value, Value]:
    """The LU and the swaps from which torch computes derivatives.

    They are those of the transposed matrix if the matrix is stored row by row. They are dropped if
    nobody computes derivatives.
    """
    a = wide(n, "A")
    made, swaps, _, _ = factor_lu(n, transposed(n, a) if n.meta("A").is_contiguous() else a)
    return made, swaps


def transposed(n: Node, x: Value) -> Value:
    """The transposes of matrices."""
    axes = list(range(x.ndim))
    return n.builder.transpose(x, axes=[*axes[:-2], axes[-1], axes[-2]])


@converts("linalg_inv_ex", "inverse")
def inv(n: Node) -> Any:
    a = wide(n, "A" if "A" in n else "self")
    x = solve(n, a, unit_matrix(n, a))
    results = fitted(n, x, n.full(0, a.shape[:-2], "int32"))
    return results if len(n.results) > 1 else results[0]


@converts("_linalg_det", "linalg_det", "det")
def det(n: Node) -> Any:
    made, _, _, sign = factor_lu(n, wide(n, "A" if "A" in n else "self"))
    b = n.builder
    value = b.mul(sign, b.prod(_diagonal(n, made), axes=[made.ndim - 2]))
    return fitted(n, value, *kept_factors(n)) if len(n.results) > 1 else fitted(n, value)[0]


@converts("_linalg_slogdet")
def slogdet(n: Node) -> list[Value]:
    made, _, _, sign = factor_lu(n, wide(n, "A"))
    b, diagonal = n.builder, _diagonal(n, made)
    axes = [made.ndim - 2]
    whole = b.mul(sign, b.prod(b.sign(diagonal), axes=axes))
    return fitted(n, whole, b.sum(b.log(b.abs(diagonal)), axes=axes), *kept_factors(n))


def _diagonal(n: Node, x: Value) -> Value:
    b, at = n.builder, Rows(n, x)
    here = b.equal(at.row, at.column)
    return b.sum(b.where(here, x, n.constant(0.0, "float64")), axes=[x.ndim - 1])
