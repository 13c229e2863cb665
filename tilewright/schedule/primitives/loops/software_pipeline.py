"""software_pipeline(loop, stages)"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tilewright.arith import prove, simplify
from tilewright.ir import Block, Buffer, Expr, For, Seq, Stmt, const, seq, walk
from tilewright.schedule.cursor import Tree, buffers_touched
from tilewright.schedule.edit import Edit, fresh_copy, rebind
from tilewright.schedule.error import Fault, require
from tilewright.schedule.facts.access import (
    accesses_in,
    are_complete,
    determined_digits,
    inner_vars,
)
from tilewright.schedule.facts.dependence import everything_is_in_blocks, ranges_below
from tilewright.schedule.facts.flow import (
    reduces_along,
)
from tilewright.schedule.facts.legality import loop_is_plain
from tilewright.schedule.versions import buffer_can_have_versions, with_versions


def software_pipeline(tree: Tree, loop: For, stages: Sequence[int]) -> Edit:
    """Overlap iterations: each statement of the body has a stage.

    Stage 0 runs one iteration ahead of stage 1, two ahead of stage 2 … Buffers between stages get a
    version for each iteration in flight.

        for i in 8:                    -->      T[0] = A[0]
            T[…] = A[i]                         for i in 7:
            B[i] = f(T[…])                          T[(i + 1) % 2] = A[i + 1]
                                                    B[i] = f(T[i % 2])
                                                B[7] = f(T[7 % 2])
    """
    check(tree, loop, stages)
    function = tree.function
    for buffer, count in _versions(tree, loop, stages).items():
        after = Tree(function)
        function = with_versions(after, after.loops[loop.var], buffer, count)
    after = Tree(function)
    loop = after.loops[loop.var]
    return Edit(after.replace(loop, _Pipeline(after, loop, stages).stmt()))


def check(tree: Tree, loop: For, stages: Sequence[int]) -> None:
    what = f"cannot pipeline loop {loop.var.name} in stages {list(stages)}"
    require(tree, what, loop_is_plain(loop), _stages_ascend(loop, stages))
    require(
        tree,
        what,
        _extent_suffices(tree, loop, max(stages)),
        everything_is_in_blocks(loop),
        _no_init_is_inside(tree, loop),
    )
    for buffer in _handed_on(tree, loop, stages):
        if not _iterations_use_elements_of_their_own(tree, loop, buffer):
            require(tree, what, buffer_can_have_versions(tree, loop, buffer))


# ---- legality -----------------------------------------------------------------------------------


def _parts(loop: For) -> tuple[Stmt, ...]:
    return loop.body.statements if isinstance(loop.body, Seq) else (loop.body,)


def _stages_ascend(loop: For, stages: Sequence[int]) -> Fault | None:
    count = len(_parts(loop))
    remedy = "give one stage for each statement of the body: 0 first, then the same or one more"
    if len(stages) != count:
        return Fault(f"its body has {count} statements", remedy, loop)
    steps = [b - a for a, b in pairwise(stages)]
    if stages[0] != 0 or any(step not in (0, 1) for step in steps):
        return Fault("the stages do not ascend from 0", remedy, loop)
    return Fault("there is only one stage", remedy, loop) if stages[-1] == 0 else None


def _extent_suffices(tree: Tree, loop: For, last: int) -> Fault | None:
    if prove(loop.extent > last, tree.ranges_at(loop)):
        return None
    reason = f"its {loop.extent} iterations may be fewer than its {last + 1} stages"
    return Fault(reason, "use a loop of constant extent that is longer", loop)


def _no_init_is_inside(tree: Tree, loop: For) -> Fault | None:
    for block in tree.blocks_in(loop):
        if block.init is not None and reduces_along(block, [loop]):
            return Fault(
                f"block {block.name} starts its reduction in the loop",
                f"decompose its reduction at loop {loop.var.name} first",
                block,
            )
    return None


def _handed_on(tree: Tree, loop: For, stages: Sequence[int]) -> dict[Buffer, int]:
    """The written buffers that several stages use, and how many stages each spans."""
    used: dict[Buffer, set[int]] = {}
    written: set[Buffer] = set()
    for part, stage in zip(_parts(loop), stages, strict=True):
        for block in tree.blocks_in(part):
            reads, writes = buffers_touched(block)
            written |= writes.keys()
            for buffer in (*reads, *writes):
                used.setdefault(buffer, set()).add(stage)
    spans = {b: max(found) - min(found) + 1 for b, found in used.items() if b in written}
    return {buffer: span for buffer, span in spans.items() if span > 1}


def _iterations_use_elements_of_their_own(tree: Tree, loop: For, buffer: Buffer) -> bool:
    ranges, free = ranges_below(tree, loop), inner_vars(loop)
    accesses = [a for a in accesses_in(tree, loop) if a.buffer is buffer]
    first, *rest = (determined_digits(a.ranges, loop.var, free, ranges) for a in accesses)
    return are_complete(first.intersection(*rest))


def _versions(tree: Tree, loop: For, stages: Sequence[int]) -> dict[Buffer, int]:
    found = _handed_on(tree, loop, stages)
    return {
        buffer: span
        for buffer, span in found.items()
        if not _iterations_use_elements_of_their_own(tree, loop, buffer)
    }


# ---- edit ---------------------------------------------------------------------------------------


class _Pipeline:
    """Builds the statements of the pipeline."""

    def __init__(self, tree: Tree, loop: For, stages: Sequence[int]) -> None:
        self.loop, self.last = loop, max(stages)
        self.parts = list(zip(_parts(loop), stages, strict=True))
        self.ranges = tree.ranges_at(loop)
        self.names = set(tree.blocks)

    def stmt(self) -> Stmt:
        """The prologue, the loop of full steps, and the epilogue."""
        extent = self.loop.extent
        filling = [self._step(const(n), 0, n) for n in range(self.last)]
        length = simplify(extent - self.last, self.ranges)
        inner = self.ranges.with_extent(self.loop.var, length)
        steady = [
            rebind(part, {self.loop.var: simplify(self.loop.var + (self.last - stage))}, inner)
            for part, stage in self.parts
        ]
        body = For(self.loop.var, length, "serial", seq(*steady), span=self.loop.span)
        emptying = [self._step(simplify(extent + n), n + 1, self.last) for n in range(self.last)]
        return seq(*filling, body, *emptying)

    def _step(self, step: Expr, first: int, last: int) -> Stmt:
        """Copies of the statements of some stages, for one step of the pipeline."""
        copies = [
            self._copy(part, simplify(step - stage, self.ranges))
            for part, stage in self.parts
            if first <= stage <= last
        ]
        return seq(*copies)

    def _copy(self, part: Stmt, iteration: Expr) -> Stmt:
        copied = fresh_copy(part, self.names)
        self.names |= {s.name for s in walk(copied) if isinstance(s, Block)}
        return rebind(copied, {self.loop.var: iteration}, self.ranges)
