"""Whether a store writes everything that a read may access."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilewright.arith import (
    Ranges,
    conjuncts,
    detect_bindings,
    linear,
    prove,
    simplify,
    symbolic_bounds,
)
from tilewright.ir import (
    Buffer,
    Const,
    Expr,
    For,
    Var,
    all_of,
    const,
    free_vars,
    loads_in,
    substitute,
)


@dataclass(frozen=True, eq=False)
class GuardedAccess:
    """One load or store, with the loops and conditions around it, outermost first."""

    indices: tuple[Expr, ...]
    is_store: bool
    loops: tuple[For, ...]
    conditions: tuple[Expr, ...]


def covers(store: GuardedAccess, read: GuardedAccess, buffer: Buffer, ranges: Ranges) -> bool:
    """Whether `store` has written all elements of the buffer that `read` may access."""
    if store.loops and read.loops and store.loops[0] is read.loops[0]:
        # Both in one loop: compare them inside it (an iteration reads what it has just written).
        shared = store.loops[0]
        return covers(
            replace(store, loops=store.loops[1:]),
            replace(read, loops=read.loops[1:]),
            buffer,
            ranges.with_extent(shared.var, shared.extent),
        )
    wide = _written(store, read, buffer, ranges)
    narrow = hull(read, ranges)
    if wide is None or narrow is None:
        return False
    return all(
        _reaches(n[0], w[0], ranges) and _reaches(w[1], _clipped(n[1], extent, ranges), ranges)
        for w, n, extent in zip(wide, narrow, buffer.shape, strict=True)
    )


def joined(first: GuardedAccess, second: GuardedAccess) -> GuardedAccess | None:
    """Two stores as one, where the second continues the first: the parts of a vector."""
    if not first.loops or not second.loops or first.loops[:-1] != second.loops[:-1]:
        return None
    one, other = first.loops[-1], second.loops[-1]
    if first.conditions != second.conditions or not isinstance(one.extent, Const):
        return None
    same = {other.var: one.var}
    *outer, last = (substitute(i, same) for i in second.indices)
    moves_alone = not any(one.var in free_vars(i) for i in outer)
    goes_on = simplify(last - first.indices[-1]) is one.extent
    if not moves_alone or not goes_on or tuple(outer) != first.indices[:-1]:
        return None
    longer = replace(one, extent=simplify(one.extent + other.extent))
    return replace(first, loops=(*first.loops[:-1], longer))


def _reaches(high: Expr, low: Expr, ranges: Ranges) -> bool:
    return high is low or prove(low <= high, ranges)


def _written(
    store: GuardedAccess, read: GuardedAccess, buffer: Buffer, ranges: Ranges
) -> list[tuple[Expr, Expr]] | None:
    """The bounds, per dimension, of a box that the store has written completely wherever the read
    is reached; None if unsure."""
    conditions = _open_conditions(store, read)
    inside = _ranges_inside(store, buffer, ranges) if conditions else ranges
    # The other conditions hold for the whole buffer.
    hard = [c for c in conditions if not prove(c, inside)]
    if not hard and _is_dense(store):
        return hull(store, ranges)
    return _counted(store, hard, ranges) or _counted(store, conditions, ranges)


def _counted(
    store: GuardedAccess, conditions: list[Expr], ranges: Ranges
) -> list[tuple[Expr, Expr]] | None:
    """The box in which a store writes each element once, as where one loop covers all of it:

    for t in thread(64, "threadIdx.x"): T[t // 16, t % 16] = …
    """
    used = {v for e in (*store.indices, *conditions) for v in free_vars(e)}
    loops = {loop.var: loop.extent for loop in store.loops if loop.var in used}
    first = {var: const(0, var.dtype) for var in loops}
    starts = [substitute(index, first) for index in store.indices]
    steps = [simplify(i - s, ranges) for i, s in zip(store.indices, starts, strict=True)]
    found = detect_bindings(steps, loops, all_of(*conditions), ranges=ranges)
    if not found.bijective:
        return None
    ends = zip(starts, found.extents, strict=True)
    return [(simplify(s, ranges), simplify(s + count - 1, ranges)) for s, count in ends]


def _open_conditions(store: GuardedAccess, read: GuardedAccess) -> list[Expr]:
    """Conditions on the store that are not also on the read; memory may have changed since."""
    shared = {c for condition in read.conditions for c in conjuncts(condition) if not loads_in(c)}
    return [c for cond in store.conditions for c in conjuncts(cond) if c not in shared]


def _clipped(high: Expr, extent: Expr, ranges: Ranges) -> Expr:
    """Elements past the buffer's shape do not matter."""
    return simplify(extent - 1, ranges) if prove(extent - 1 <= high, ranges) else high


def _ranges_inside(store: GuardedAccess, buffer: Buffer, ranges: Ranges) -> Ranges:
    """What is known where the element written is in bounds."""
    ranges = _with_loops(ranges, store.loops)
    for index, extent in zip(store.indices, buffer.shape, strict=True):
        ranges = ranges.assuming(index < extent)
    return ranges


def _is_dense(store: GuardedAccess) -> bool:
    """Whether the loops around the store write every element between the first and the last."""
    used: set[Var] = set()
    for index in store.indices:
        own = [loop for loop in store.loops if loop.var in free_vars(index)]
        if not used.isdisjoint(loop.var for loop in own) or not _leaves_no_gap(index, own):
            return False
        used.update(loop.var for loop in own)
    return True


def _leaves_no_gap(index: Expr, loops: list[For]) -> bool:
    terms = linear(index).terms
    if any(loop.var not in terms for loop in loops):
        return False
    reach = 1
    for loop in sorted(loops, key=lambda loop: abs(terms[loop.var])):
        step = abs(terms[loop.var])
        if step > reach:
            return False
        # Only the loop with the widest step may have an unknown length.
        length = loop.extent
        reach = reach + step * (int(length.value) - 1) if isinstance(length, Const) else 0
    return True


def _with_loops(ranges: Ranges, loops: tuple[For, ...]) -> Ranges:
    for loop in loops:
        ranges = ranges.with_extent(loop.var, loop.extent)
    return ranges


def hull(access: GuardedAccess, ranges: Ranges) -> list[tuple[Expr, Expr]] | None:
    """The bounds of the index in every dimension, over the loops around the access."""
    inner = _with_loops(ranges, access.loops)
    variables = [loop.var for loop in access.loops]
    found = [symbolic_bounds(index, inner, variables) for index in access.indices]
    known = [bounds for bounds in found if bounds is not None]
    return known if len(known) == len(found) else None
