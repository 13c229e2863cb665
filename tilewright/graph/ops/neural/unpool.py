"""The inverse of max pooling: elements at their former positions, zeros everywhere else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.attributes import Dims, Ints
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, product
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.graph.ops.tensor.loops import Indices, nest, placeholder
from tilewright.graph.sizes.agreement import require_same_shape
from tilewright.ir import Assert, Expr, Function, Stmt, Store, Var, seq
from tilewright.support.errors import UserError
from tilewright.tensor import te


@op
def max_unpool(x: Value, indices: Value, *, shape: Dims) -> Type:
    """Every element of `x` at its index in a tensor of `shape`, which is laid out row by row."""
    require_kind("integer", indices)
    require_kind("computable", x)
    require_same_shape(x.shape, indices.shape, "x and indices")
    return TensorType(x.dtype, shape)


@max_unpool.reference
def max_unpool_reference(x: Array, indices: Array, *, shape: Ints) -> Array:
    result = np.zeros(int(np.prod(shape)), x.dtype)
    if indices.size and not 0 <= indices.min() <= indices.max() < result.size:
        raise UserError("max_unpool: an index is outside the result")
    result[indices.ravel()] = x.ravel()
    return result.reshape(shape)


@max_unpool.kernel
def max_unpool_kernel(x: Value, indices: Value, *, shape: Dims) -> Function:
    given = [placeholder(v) for v in (x, indices)]
    extents = TensorType(x.dtype, shape).shape
    zeros = te.compute(extents, lambda *_: te.const(0, x.dtype), name="max_unpool")
    scalars = _loose(extents, given)
    function = te.function([*given, *scalars], zeros, name="max_unpool")
    source, places, out = function.buffers
    size = product(extents)

    def put(i: Indices) -> Stmt:
        at = te.cast(places[i], "int64")
        fits = te.all_of(at >= 0, at < size)
        check = Assert(fits, "max_unpool: an index is outside the result", ())
        return seq(check, Store(out, _unravelled(at, extents), source[i]))

    return function.with_body(seq(function.body, nest(source.shape, put)))


def _unravelled(position: Expr, extents: Sequence[Expr]) -> tuple[Expr, ...]:
    indices: list[Expr] = []
    for extent in reversed(extents):
        indices.append(te.floormod(position, extent))
        position = te.floordiv(position, extent)
    return tuple(reversed(indices))


def _loose(extents: Sequence[Expr], given: Sequence[te.Tensor]) -> list[Var]:
    """Symbolic dimensions of the result that no operand has; they are passed as scalars."""
    known = {d for t in given for d in t.shape}
    return [d for d in dict.fromkeys(extents) if isinstance(d, Var) and d not in known]
