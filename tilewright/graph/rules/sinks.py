"""Transposes of images to channels last, moved behind their readers until they cancel.

    y = f(transpose(x, [0, 2, 3, 1]))        -->     y = transpose(f(x), [0, 2, 3, 1])

Models that keep channels last are imported as operators on N×C×spatial between transposes. Moved
down, the transposes of one operator reach those of the next, whatever is between them and however
many readers there are. Transposes that follow no operator on images (those of the heads of
attention, say) stay where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from tilewright.graph.ir import Value
from tilewright.graph.ir.types import is_single, known_dim
from tilewright.graph.rules.rewriter import Rule
from tilewright.graph.rules.site import Site
from tilewright.graph.rules.transposes import RULES as TRANSPOSES
from tilewright.graph.rules.transposes import Order, order_of, transposed_constant
from tilewright.graph.sizes.axes import axes_of, axis_of

#: Operators on images N×C×spatial.
_IMAGES: Final = frozenset(
    "conv conv_transpose conv_integer max_pool avg_pool lp_pool resize depth_to_space "
    "space_to_depth grid_sample sample_at nearest_gather weighted_gather".split()
)
#: Maps whose attributes are numbers, not axes or shapes.
_MAPS: Final = frozenset(("requantize",))
#: Most calls between an operator on images and a value that follows it.
_DEEP: Final = 200


def sink_rules(name: str) -> Iterator[Rule]:
    """The rules that move transposes, for an operator."""
    if name == "transpose":
        yield from TRANSPOSES["transpose"][:2]
    else:
        yield _SINKS.get(name, _through_map)


# ---- images -------------------------------------------------------------------------------------


def _source(s: Site, value: Value) -> Value | None:
    """The image N×C×spatial of which a value is the transpose to channels last."""
    call = s.made_by(value, "transpose")
    if call is None or value.ndim < 3 or order_of(call) != _last(value.ndim):
        return None
    return call.args[0] if _is_image(s, call.args[0]) else None


def _last(rank: int) -> Order:
    """The order of axes that puts channels last."""
    return (0, *range(2, rank), 1)


def _first(rank: int) -> Order:
    """The order of axes that puts channels after batches."""
    return (0, rank - 1, *range(1, rank - 1))


def _is_image(s: Site, value: Value | None) -> bool:
    """Whether a value follows an operator on images, perhaps through others that keep its rank."""
    for _ in range(_DEEP):
        call = s.made_by(value)
        if call is None or value is None:
            return False
        if call.op.name in _IMAGES:
            return True
        if call.op.name == "transpose":
            return False
        value = next((a for a in call.args if a is not None and a.ndim == value.ndim), None)
    return False


def _transposed(s: Site, value: Value, rank: int) -> Value | None:
    """The operand of an image with channels first that corresponds to one with channels last; None
    where that takes a kernel."""
    source = _source(s, value) if value.ndim == rank else None
    if source is not None:
        return source
    if value.is_constant:
        return transposed_constant(s, value, _first(rank))
    if value.tensor.size == 1:
        return s.emit("reshape", value, shape=[1] * min(value.ndim, rank))
    # One that is the same for all pixels only has axes of one element moved.
    if value.ndim == rank and all(known_dim(d) == 1 for d in value.shape[1:-1]):
        return s.emit("transpose", value, axes=_first(rank))
    return None


def _back(s: Site, value: Value) -> Value:
    return s.emit("transpose", value, axes=_last(value.ndim))


# ---- operators ----------------------------------------------------------------------------------


def _through_map(s: Site) -> Value | None:
    """f(transpose(x), y) = transpose(f(x, y transposed))"""
    rank = s.result.ndim
    if rank < 3 or not any(_source(s, a) is not None for a in s.args):
        return None
    if not _is_map(s):
        return None
    transposed = [None if a is None else _transposed(s, a, rank) for a in s.call.args]
    if any(t is None and a is not None for t, a in zip(transposed, s.call.args, strict=True)):
        return None
    return _back(s, s.again(s.call, transposed))


def _is_map(s: Site) -> bool:
    if s.call.op.name in _MAPS:
        return s.facts(s.call, s.result).aligned
    return s.is_map(s.call, s.result)


def _through_scale(s: Site) -> Value | None:
    """dequantize(transpose(x), scale) = transpose(dequantize(x, scale)), with one scale for all"""
    image = _source(s, s.x)
    if image is None or not is_single(s.arg(1).shape):
        return None
    return _back(s, s.again(s.call, [image, *s.call.args[1:]]))


def _through_pad(s: Site) -> Value | None:
    """pad(transpose(x)) = transpose(pad(x))"""
    image = _source(s, s.x)
    if image is None:
        return None
    order = _first(image.ndim)
    pads = {side: [s.attr(side)[k] for k in order] for side in ("before", "after")}
    return _back(s, s.again(s.call, [image, *s.call.args[1:]], **pads))


def _through_concat(s: Site) -> Value | None:
    """concat(transpose(x), …) = transpose(concat(x, …))"""
    rank = s.result.ndim
    if rank < 3 or not any(_source(s, a) is not None for a in s.args):
        return None
    transposed = [_transposed(s, a, rank) for a in s.args]
    if None in transposed:
        return None
    return _back(s, s.again(s.call, transposed, axis=_last(rank)[axis_of(s.attr("axis"), rank)]))


def _through_slice(s: Site) -> Value | None:
    """slice(transpose(x)) = transpose(slice(x))"""
    image = _source(s, s.x)
    if image is None:
        return None
    given = s.attr("axes")
    axes = axes_of(range(len(s.attr("starts"))) if given is None else given, image.ndim)
    return _back(s, s.again(s.call, [image], axes=[_last(image.ndim)[a] for a in axes]))


def _through_reduction(s: Site) -> Value | None:
    """sum(transpose(x), axes) = transpose(sum(x, the same axes)), or no transpose at all"""
    image = _source(s, s.x)
    if image is None:
        return None
    order = _last(image.ndim)
    given = s.attr("axes")
    axes = sorted(axes_of(range(image.ndim) if given is None else given, image.ndim))
    made = s.again(s.call, [image], axes=sorted(order[a] for a in axes))
    if s.attr("keepdims"):
        return _back(s, made)
    left = [order[k] for k in range(image.ndim) if k not in axes]
    return made if left == sorted(left) else None


def _through_table(s: Site) -> Value | None:
    """take(table, transpose(i)) = transpose(take(table, i))"""
    places = _source(s, s.arg(1))
    if places is None or s.x.ndim != 1:
        return None
    return _back(s, s.again(s.call, [s.x, places]))


def _through_byte_table(s: Site) -> Value | None:
    """byte_table(transpose(x), table) = transpose(byte_table(x, table))"""
    image = _source(s, s.x)
    return None if image is None else _back(s, s.again(s.call, [image, s.arg(1)]))


Through = Callable[[Site], Value | None]
_SINKS: Final[dict[str, Through]] = {
    "pad": _through_pad,
    "concat": _through_concat,
    "slice": _through_slice,
    "take": _through_table,
    "byte_table": _through_byte_table,
    "quantize": _through_scale,
    "dequantize": _through_scale,
    **dict.fromkeys(("sum", "mean", "max", "min", "prod", "l1", "l2"), _through_reduction),
}
