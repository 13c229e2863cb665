"""Overlap the last product of an iteration with the next iteration.

    for k in range(n):                     S = Q · K[0]; P = f(S)
        S = Q · K[k]; finish S             for k in range(1, n):
        P = f(S)                  -->          start S = Q · K[k]; start C += P · V[k - 1]
        C = g(C)                               finish S; T = f(S)
        C += P · V[k]; finish C                finish C; P = T; C = g(C)
                                           C += P · V[n - 1]; finish C

Products are those of groups of warps (`group_products`), which run asynchronously until threads
wait for them: computing with the first product's sums hides the second product. An iteration's
statements are reordered as on the right above, if those that move do not conflict with those that
they pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.ir import Buffer, Call, Evaluate, Stmt, call, const, walk
from tilewright.lower.gpu.accesses import touched_by


class Overlap(NamedTuple):
    """The parts of an iteration."""

    #: Everything until the first product has started, and the waits for it.
    early: list[Stmt]
    finish_early: list[Stmt]
    #: Statements that do not access the operands and sums of the second product.
    between: list[Stmt]
    #: The second product, and the waits for it.
    late: list[Stmt]
    finish_late: list[Stmt]
    #: Statements that must wait for the second product of the previous iteration.
    rest: list[Stmt]

    def first(self, arrival: Sequence[Stmt]) -> list[Stmt]:
        """The first iteration, without its second product; `arrival` goes after its sums."""
        return [*self.early, *self.finish_early, *arrival, *self.between, *self.rest]

    def later(self, arrival: Sequence[Stmt]) -> list[Stmt]:
        """The rest of a later iteration, once the second product of the previous one has started;
        `arrival` goes after the sums of both."""
        return [*self.finish_but_latest(), *self.between, *self.finish_late, *arrival, *self.rest]

    def finish_but_latest(self) -> list[Stmt]:
        """Waits for the first product that leave the previous iteration's second one running."""
        return [*map(_but_for_the_latest, self.finish_early)]


def overlap_of(uses: Sequence[Stmt]) -> Overlap | None:
    """The parts of an iteration with two products of groups, if these can overlap."""
    starts, commits = (
        [k for k, s in enumerate(uses) if _is_call(s, name)]
        for name in ("products_start", "products_commit")
    )
    if len(starts) != 2 or len(commits) != 2:
        return None
    (_, start), (first, last) = starts, commits
    finished, end = _after_waits(uses, first), _after_waits(uses, last)
    early, late, after = uses[: first + 1], uses[start:end], uses[end:]
    others = [*uses[:start], *after]
    if finished == first + 1 or any(meet(s, t) for s in (*early, *after) for t in late):
        return None
    if _shared_reads(late) & _shared_reads(others):
        # Its operands must live an iteration longer, unlike those of the others.
        return None
    between, rest = list[Stmt](), list[Stmt]()
    for stmt in (*uses[finished:start], *after):
        waits = any(meet(stmt, other) for other in (*late, *rest))
        (rest if waits else between).append(stmt)
    return Overlap(
        [*early],
        [*uses[first + 1 : finished]],
        between,
        [*uses[start : last + 1]],
        [*uses[last + 1 : end]],
        rest,
    )


def _after_waits(uses: Sequence[Stmt], commit: int) -> int:
    """The index of the first statement after the waits for a product."""
    places = range(commit + 1, len(uses))
    return next((k for k in places if not _is_call(uses[k], "products_finish")), len(uses))


def _shared_reads(statements: Sequence[Stmt]) -> set[Buffer]:
    reads, _ = touched_by(inner for s in statements for inner in walk(s))
    return {b for b in reads if b.scope == "shared"}


def meet(a: Stmt, b: Stmt) -> bool:
    """Whether one of two statements writes what the other accesses."""
    (read, written), (other_read, other_written) = (touched_by(walk(s)) for s in (a, b))
    return bool(written & (other_read | other_written) or read & other_written)


def _is_call(stmt: Stmt, name: str) -> bool:
    given = stmt.call if isinstance(stmt, Evaluate) else None
    return isinstance(given, Call) and given.name == name


def _but_for_the_latest(finish: Stmt) -> Stmt:
    """A wait for products that leaves the latest one running."""
    assert isinstance(finish, Evaluate) and isinstance(finish.call, Call)
    return Evaluate(call("products_finish", *finish.call.args[:2], const(1)))
