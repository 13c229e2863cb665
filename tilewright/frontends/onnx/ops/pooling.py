"""Pooling over windows, over whole images, and its inverse."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.frontends.onnx.windows import clipped_window, read_window
from tilewright.graph import Dim, Value, product
from tilewright.support.errors import UserError


def _attributes(n: Node, x: Value, *, clips: bool = True) -> dict[str, Any]:
    """The window of a node; one that `clips` may be larger than the image."""
    window = read_window(n, x, n.integers("kernel_shape"))
    window = clipped_window(window, x.shape[2:]) if clips else window
    return {
        "kernel": window.kernel,
        "strides": window.strides,
        "pads": window.pads,
        "dilations": window.dilations,
        "ceil_mode": n.flag("ceil_mode"),
    }


@converts("MaxPool")
def max_pool(n: Node) -> Any:
    return max_pool_of(n, n[0])


def max_pool_of(n: Node, x: Value) -> Any:
    """The pooling that a node describes, of `x`; with indices if it wants them."""
    indices = n.wants(1)
    column_major = indices and n.flag("storage_order")
    return n.builder.max_pool(
        x, **_attributes(n, x), return_indices=indices, column_major=column_major
    )


@converts("AveragePool")
def average_pool(n: Node) -> Value:
    return average_pool_of(n, n[0])


def average_pool_of(n: Node, x: Value) -> Value:
    """The pooling that a node describes, of `x`."""
    counts_padding = n.flag("count_include_pad")
    # Versions of ONNX Runtime's kernel differ in how a clipped window counts beyond the padding.
    window = _attributes(n, x, clips=not counts_padding)
    return n.builder.avg_pool(x, **window, count_include_pad=counts_padding)


@converts("LpPool")
def lp_pool(n: Node) -> Value:
    p = n.real("p", 2.0) if n.version < 2 else n.integer("p", 2)
    return n.builder.lp_pool(n[0], p=int(p), **_attributes(n, n[0]))


@converts("GlobalAveragePool")
def global_average_pool(n: Node) -> Value:
    return n.builder.global_avg_pool(n[0])


@converts("GlobalMaxPool")
def global_max_pool(n: Node) -> Value:
    return n.builder.global_max_pool(n[0])


@converts("GlobalLpPool")
def global_lp_pool(n: Node) -> Value:
    p = n.real("p", 2.0) if n.version < 2 else n.integer("p", 2)
    return n.builder.global_lp_pool(n[0], p=int(p))


@converts("MaxUnpool")
def max_unpool(n: Node) -> Value:
    """Elements go back to their former positions; indices count in the whole tensor."""
    x, b = n[0], n.builder
    inner = [*x.shape[:2], *_unpooled(n, x)]
    size = product(inner)
    empty = b.full(n.scalar(0, x), shape=[size])
    places, elements = (b.reshape(v, shape=[-1]) for v in (n[1], x))
    result = b.reshape(b.scatter_elements(empty, places, elements, axis=0), shape=inner)
    if n.get(2) is None:
        return result
    wanted = n.dims(2)
    if len(wanted) != x.ndim:
        raise UserError(f"the output shape has {len(wanted)} dimensions for {x}")
    missing = [w - i for w, i in zip(wanted, inner, strict=True)]
    return b.pad(result, before=[0] * x.ndim, after=missing)


def _unpooled(n: Node, x: Value) -> list[Dim]:
    """The spatial extents from which a pooling with these attributes gives those of `x`."""
    kernel = n.integers("kernel_shape")
    window = read_window(n, x, kernel)
    rank = len(kernel)
    begins, ends = window.pads[:rank], window.pads[rank:]
    axes = zip(x.shape[2:], kernel, window.strides, begins, ends, strict=True)
    return [(e - 1) * s + k - b - f for e, k, s, b, f in axes]
