"""stream(buffers)"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import Load, Store, all_exprs, walk
from tilewright.schedule.cursor import Tree
from tilewright.schedule.edit import Edit
from tilewright.schedule.error import Fault, require


def stream(tree: Tree, numbers: Sequence[int]) -> Edit:
    """Let results bypass the caches when they are written; `numbers` are positions of parameters.

    def f(A, B): …      -->      def f(A, B): …           with the attribute streams=[1]
    """
    check(tree, numbers)
    return Edit(tree.function.with_attrs(streams=list(numbers)))


def check(tree: Tree, numbers: Sequence[int]) -> None:
    require(tree, "cannot stream results", *(_is_only_written(tree, n) for n in numbers))


def _is_only_written(tree: Tree, number: int) -> Fault | None:
    buffers, body = tree.function.buffers, tree.function.body
    if not 0 <= number < len(buffers):
        return Fault(f"there are {len(buffers)} buffers, number {number} is none")
    buffer = buffers[number]
    if any(isinstance(e, Load) and e.buffer is buffer for e in all_exprs(body)):
        return Fault(f"{buffer.name} is read", "stream what is written alone")
    if not any(isinstance(s, Store) and s.buffer is buffer for s in walk(body)):
        return Fault(f"nothing is stored to {buffer.name}")
    return None
