"""Transposes: composed, cancelled, made views, moved to where they cancel, folded into products."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tilewright.arith import prove_equal
from tilewright.graph.ir import Call, Value
from tilewright.graph.ir.types import known_dim
from tilewright.graph.rules.grouping import AxisGroup, pieces_of
from tilewright.graph.rules.site import Site
from tilewright.graph.sizes.axes import axes_of

Order = tuple[int, ...]
#: Most maps between two transposes.
_DEEP: Final = 16


def order_of(call: Call) -> Order:
    """The axes of a transpose."""
    operand = call.args[0]
    assert operand is not None
    axes = call.attrs["axes"]
    return tuple(reversed(range(operand.ndim))) if axes is None else axes_of(axes, operand.ndim)


def _of_nothing(s: Site) -> Value | None:
    """transpose(x, [0, 1, …]) = x"""
    order = order_of(s.call)
    return s.x if order == tuple(range(len(order))) else None


def _of_transpose(s: Site) -> Value | None:
    """transpose(transpose(x, p), q) = transpose(x, [p[k] for k in q])"""
    inner = s.made_by(s.x, "transpose")
    if inner is None:
        return None
    first = order_of(inner)
    return s.emit("transpose", inner.args[0], axes=[first[k] for k in order_of(s.call)])


def _of_ones(s: Site) -> Value | None:
    """A transpose that moves axes of one element only is a reshape."""
    moved = [k for k in order_of(s.call) if known_dim(s.x.shape[k]) != 1]
    return s.emit("reshape", s.x, shape=s.result.shape) if moved == sorted(moved) else None


def _of_map(s: Site) -> Value | None:
    """transpose(f(transpose(x, p)), q) = f(x), where p and q cancel"""
    inner = s.makers.call_of(s.x)
    if inner is None or inner.op.name == "transpose":
        return None
    return _transposed(s, s.x, order_of(s.call))


def _transposed(s: Site, value: Value, order: Order, depth: int = 0) -> Value | None:
    """A value with its axes in this order; None where that takes a kernel."""
    if value.is_constant:
        return transposed_constant(s, value, order)
    call = s.makers.call_of(value)
    if call is None or value.ndim != len(order) or not s.makers.is_private(value):
        return None
    if call.op.name == "transpose":
        return s.emit("transpose", value, axes=order) if _cancels(call, order) else None
    args = [a for a in call.args if a is not None]
    if depth > _DEEP or len(args) != len(call.args) or not s.is_map(call, value):
        return None
    transposed = [_transposed(s, a, order, depth + 1) for a in args]
    return None if None in transposed or not args else s.again(call, transposed)


def _cancels(call: Call, order: Order) -> bool:
    """Whether a transpose that is transposed once more is at most a view."""
    source, first = call.args[0], order_of(call)
    assert source is not None
    left = [first[k] for k in order if known_dim(source.shape[first[k]]) != 1]
    return left == sorted(left)


def transposed_constant(s: Site, value: Value, order: Order) -> Value | None:
    """A constant that broadcasts to a value, transposed to this order of the value's axes."""
    if value.tensor.size == 1:
        return value
    if value.ndim > len(order):
        return None
    shape = [1] * (len(order) - value.ndim) + list(value.tensor.static_shape)
    return s.emit("transpose", s.emit("reshape", value, shape=shape), axes=order)


def _of_merged(s: Site) -> Value | None:
    """transpose(reshape(transpose(x))) with axes that are only merged: the reshape comes last."""
    inner = s.private(s.x, "reshape")
    source = None if inner is None else inner.args[0]
    if source is None or s.made_by(source, "transpose") is None:
        return None
    pieces = pieces_of(source.shape, s.x.shape)
    if pieces is None or any(len(p.after) > 1 for p in pieces):
        return None
    transposed = s.emit("transpose", source, axes=_split_order(pieces, order_of(s.call)))
    return s.emit("reshape", transposed, shape=s.result.shape)


def _split_order(pieces: Sequence[AxisGroup], order: Order) -> list[int]:
    """The order of axes before merging that gives this order of the merged axes."""
    own = {p.after[0]: p.before for p in pieces if p.after}
    dropped = [k for p in pieces if not p.after for k in p.before]
    return [*dropped, *(k for axis in order for k in own[axis])]


def _of_product(s: Site) -> Value | None:
    """transpose(matmul(a, b), p) = einsum(a, b) that writes its result so, still row by row"""
    inner = s.private(s.x, "matmul")
    order = order_of(s.call)
    if inner is None or order[-1] != len(order) - 1 or s.x.ndim < 3:
        return None
    a, b = inner.args
    if a is None or b is None or a.ndim != s.x.ndim or b.ndim != s.x.ndim:
        return None
    if any(x is not y for x, y in zip(a.shape[:-2], b.shape[:-2], strict=True)):
        return None
    equation = equation_of(inner, s.x.ndim, order)
    return s.emit("einsum", a, b, equation=equation, dtype=inner.attrs["dtype"])


def equation_of(call: Call, rank: int, order: Order) -> str:
    """A product of matrices, batched over all other dimensions, as an Einstein sum whose result has
    its dimensions in another order."""
    batch = "abcdefgh"[: rank - 2]
    left = "ki" if call.attrs["transpose_a"] else "ik"
    right = "jk" if call.attrs["transpose_b"] else "kj"
    result = f"{batch}ij"
    return f"{batch}{left},{batch}{right}->{''.join(result[k] for k in order)}"


def _into_flags(s: Site) -> Value | None:
    """matmul(transpose(a), b) = matmul(a, b, transpose_a=True)"""
    args: list[Any] = list(s.args)
    flags: dict[str, bool] = {}
    for k, flag in enumerate(("transpose_a", "transpose_b")):
        turned = _before_swap(s, args[k])
        if turned is not None:
            args[k], flags[flag] = turned, not s.attr(flag)
    return s.again(s.call, [*args, *s.call.args[len(args) :]], **flags) if flags else None


def _before_swap(s: Site, matrices: Value) -> Value | None:
    """Matrices before they were transposed; their batch may have been reshaped since."""
    view = s.private(matrices, "reshape")
    swapped = matrices if view is None else view.args[0]
    inner = s.private(swapped, "transpose")
    source = None if inner is None else inner.args[0]
    if inner is None or source is None or swapped is None or not _swaps_last(order_of(inner)):
        return None
    if view is None:
        return source
    sides = zip(matrices.shape[-2:], swapped.shape[-2:], strict=True)
    if matrices.ndim < 2 or not all(prove_equal(a, b) for a, b in sides):
        return None
    return s.emit("reshape", source, shape=[*matrices.shape[:-2], *source.shape[-2:]])


def _swaps_last(order: Order) -> bool:
    rank = len(order)
    return rank >= 2 and order == (*range(rank - 2), rank - 1, rank - 2)


#: For products, whose factors may be transposed.
PRODUCTS = {"matmul": (_into_flags,), "gemm": (_into_flags,)}
RULES = {
    "transpose": (_of_nothing, _of_transpose, _of_ones, _of_map, _of_merged, _of_product),
    **PRODUCTS,
}
