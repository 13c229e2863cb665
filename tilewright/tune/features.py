"""Features of scheduled loops for cost models: numbers that are comparable between functions.

The block with most iterations takes most of the time. Its features are those of the loops around
it, from the innermost outwards: length, kind, and the stride of each access per iteration, which
determines how vectors, caches and prefetchers do. The other blocks contribute sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from tilewright.ir import (
    Alloc,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    Function,
    Load,
    Stmt,
    Store,
    Var,
    child_stmts,
    evaluate,
    free_vars,
    loads_in,
    substitute,
    walk,
)

Array = np.ndarray[Any, Any]

#: Most loops around a block that are considered.
_DEPTH: Final = 7
_KINDS: Final = ("serial", "parallel", "vectorized", "unrolled")
#: For a loop: its extent, its kind, the accesses with stride 0, 1, or more, and whether the stored
#: element stays the same, as in a reduction.
_PER_LOOP: Final = 1 + len(_KINDS) + 4
#: For the main block: iterations by kinds of loops, and its loops; for all others together.
_OF_MAIN: Final = 1 + len(_KINDS) + _DEPTH * _PER_LOOP
_OF_OTHERS: Final = 5
#: The number of features.
COUNT: Final = _OF_MAIN + _OF_OTHERS
#: The value assumed for an unknown size.
_UNKNOWN: Final = 16


class _Nest(NamedTuple):
    """A block and its loops, from the outermost inwards."""

    block: Block
    loops: tuple[For, ...]

    @property
    def iterations(self) -> float:
        return math.prod(_size(loop.extent) for loop in self.loops)


def features_of(function: Function) -> tuple[float, ...]:
    """The features of a scheduled function, always `COUNT` numbers."""
    nests = sorted(_nests(function.body, ()), key=lambda n: -n.iterations)
    main = _nest_features(nests[0]) if nests else []
    main += [0.0] * (_OF_MAIN - len(main))
    others = [
        float(len(nests)),
        _log(sum(n.iterations for n in nests[1:])),
        _log(max((_product(n, "parallel") for n in nests), default=1.0)),
        _log(_allocated(function)),
        float(sum(isinstance(s, For) for s in walk(function.body))),
    ]
    return tuple(round(x, 4) for x in (*main, *others))


def _nest_features(nest: _Nest) -> list[float]:
    kinds = [_log(_product(nest, kind)) for kind in _KINDS]
    inner = list(reversed(nest.loops))[:_DEPTH]
    strides = [_strides(a, nest.block, inner) for a in _accesses(nest.block)]
    stored = [a.is_store for a in _accesses(nest.block)]
    loops = [
        x
        for k, loop in enumerate(inner)
        for x in _loop_features(loop, [row[k] for row in strides], stored)
    ]
    return [_log(nest.iterations), *kinds, *loops]


def _loop_features(loop: For, strides: Sequence[float], stored: Sequence[bool]) -> list[float]:
    written = [s for s, is_store in zip(strides, stored, strict=True) if is_store]
    return [
        _log(_size(loop.extent)),
        *(float(loop.kind == kind) for kind in _KINDS),
        float(sum(s == 0 for s in strides)),
        float(sum(s == 1 for s in strides)),
        float(sum(s > 1 for s in strides)),
        float(bool(written) and not any(written)),
    ]


class _Access(NamedTuple):
    """An element that a block reads or writes."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    is_store: bool


def _accesses(block: Block) -> list[_Access]:
    found: list[_Access] = []
    for store in walk(block.body):
        if isinstance(store, Store):
            found.append(_Access(store.buffer, store.indices, True))
            loads: dict[Load, None] = dict.fromkeys(loads_in(store.value))
            found += [_Access(load.buffer, load.indices, False) for load in loads]
    return found


def _strides(access: _Access, block: Block, loops: Sequence[For]) -> list[float]:
    """The distance in elements between two iterations of each loop, at its beginning."""
    bound = dict(zip((it.var for it in block.iters), block.bindings, strict=True))
    sizes = [_size(d) for d in access.buffer.shape]
    offset = np.zeros(len(loops) + 1)
    for k, index in enumerate(access.indices):
        offset += _values(substitute(index, bound), loops) * math.prod(sizes[k + 1 :])
    return [abs(float(x)) for x in offset[1:] - offset[0]]


def _values(index: Expr, loops: Sequence[For]) -> Array:
    """An index at the first iteration of all loops, and after one step of each loop; data-dependent
    indices count as zero."""
    if any(True for _ in loads_in(index)):
        return np.zeros(len(loops) + 1)
    env: dict[Var, Any] = dict.fromkeys(free_vars(index), 0)
    for k, loop in enumerate(loops, 1):
        env[loop.var] = (np.arange(len(loops) + 1) == k).astype(np.int64)
    value = evaluate(index, env)
    # For a vector, its first element.
    first = value[..., 0] if index.dtype.lanes > 1 else value
    return np.broadcast_to(first, len(loops) + 1)


def _nests(stmt: Stmt, loops: tuple[For, ...]) -> Iterator[_Nest]:
    if isinstance(stmt, Block):
        yield _Nest(stmt, loops)
        return
    inner = (*loops, stmt) if isinstance(stmt, For) else loops
    for child in child_stmts(stmt):
        yield from _nests(child, inner)


def _product(nest: _Nest, kind: str) -> float:
    return math.prod(_size(loop.extent) for loop in nest.loops if loop.kind == kind)


def _allocated(function: Function) -> float:
    buffers = [b for s in walk(function.body) if isinstance(s, Alloc) for b in s.buffers]
    return sum((b.static_size() or 0) * b.dtype.itemsize for b in buffers)


def _size(extent: Expr) -> float:
    return float(extent.value) if isinstance(extent, Const) else float(_UNKNOWN)


def _log(value: float) -> float:
    return math.log2(max(1.0, value))
