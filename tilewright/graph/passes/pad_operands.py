"""Pads the operands of large products to rows of whole vectors, on GPUs.

    y = matmul(a, b)         f16[1001, 1003], f16[1003, 999]

    u = pad(a)               f16[1001, 1008]
    v = pad(b)               f16[1008, 1000]
    y = slice(matmul(u, v))

Tiles of operands are copied to shared memory by vectors, which takes rows of whole vectors. Without
them a product takes several times as long, which is more than writing padded operands takes.
Constants cost nothing.

    y = matmul(a, b)     -->     y = matmul(a, transpose(b), transpose_b=True)          tf32, bytes

Likewise for operands of TF32 and of bytes that are not contiguous along the summed axis, as they
must be: they would be copied element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Final

import numpy as np

from tilewright.graph.ir import Module, Value
from tilewright.graph.ir.types import known_dim
from tilewright.graph.passes.absorb_transposes import lies_along_sum
from tilewright.graph.passes.dead_code import dead_code
from tilewright.graph.rewriting.context import TF32, PassContext
from tilewright.graph.rules import Rule, RuleRewriter
from tilewright.graph.rules.site import Site
from tilewright.target import Target

#: The bytes of a vector.
_VECTOR: Final = 16
#: Fewest multiplications of a product that is worth padding.
_LEAST: Final = 1 << 27


def pad_operands(target: Target) -> Callable[[Module], Module]:
    """A pass that pads the operands of large products that tensor instructions compute."""

    def pad_operands(module: Module) -> Module:
        if target.gpu is None or not target.gpu.has_warp_products:
            return module
        changed = module.map(lambda f: RuleRewriter(f, _rules).graph(f))
        return module if changed is module else dead_code(changed)

    return pad_operands


def _padded(s: Site) -> Value | None:
    a, b = s.args
    sizes = [known_dim(d) for d in (*a.shape, *b.shape)]
    widest = 32 if PassContext.current().precision == TF32 else 16
    is_multiplied = a.dtype.is_float and 16 <= a.dtype.bits <= widest
    if not is_multiplied or None in sizes or min(a.ndim, b.ndim) < 2:
        return None
    names = ["mk", "kn"]
    for k, flag in enumerate(("transpose_a", "transpose_b")):
        names[k] = names[k][::-1] if s.call.attrs[flag] else names[k]
    known = {
        n: known_dim(d) or 0
        for x, own in zip((a, b), names, strict=True)
        for n, d in zip(own, x.shape[-2:], strict=True)
    }
    along = {own[-1] for own in names}
    unit = _VECTOR // a.dtype.itemsize
    larger = {n: -(-size // unit) * unit if n in along else size for n, size in known.items()}
    batch = max(prod(known_dim(d) or 0 for d in x.shape[:-2]) for x in (a, b))
    if larger == known or batch * prod(known.values()) < _LEAST:
        return None
    operands = [
        _enlarged(s, x, [larger[n] - known[n] for n in own])
        for x, own in zip((a, b), names, strict=True)
    ]
    total = s.emit("matmul", *operands, **s.call.attrs)
    ends = [known[n] for n in "mn"]
    if ends == [larger[n] for n in "mn"]:
        return total
    axes = [total.ndim - 2, total.ndim - 1]
    return s.emit("slice", total, starts=[0, 0], ends=ends, axes=axes)


def _enlarged(s: Site, x: Value, more: Sequence[int]) -> Value:
    """A matrix with rows and columns of zeros appended."""
    if not any(more):
        return x
    after = [0] * (x.ndim - 2) + list(more)
    if x.constant is not None:
        return s.constant(np.pad(x.constant, [(0, n) for n in after]))
    return s.emit("pad", x, None, before=[0] * x.ndim, after=after)


def _along_sum(s: Site) -> Value | None:
    a, b = s.args
    sizes = [known_dim(d) for d in (*a.shape, *b.shape)]
    if not lies_along_sum(a.dtype) or None in sizes or min(a.ndim, b.ndim) < 2:
        return None
    wanted = {"transpose_a": False, "transpose_b": True}
    wrong = [s.call.attrs[flag] != value for flag, value in wanted.items()]
    columns = b.shape[-2] if s.call.attrs["transpose_b"] else b.shape[-1]
    multiplied = prod(known_dim(d) or 0 for d in (*a.shape, columns))
    if not any(wrong) or multiplied < _LEAST:
        return None
    turned = [_turned(s, x) if is_wrong else x for x, is_wrong in zip((a, b), wrong, strict=True)]
    return s.emit("matmul", *turned, **{**s.call.attrs, **wanted})


def _turned(s: Site, x: Value) -> Value:
    """The transpose of a matrix, or of each in a batch."""
    last = x.ndim - 1
    return s.emit("transpose", x, axes=(*range(last - 1), last, last - 1))


def _rules(name: str) -> Iterable[Rule]:
    return (_along_sum, _padded) if name == "matmul" else ()
