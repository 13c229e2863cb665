"""Loops of both generations, as loops of the graph.

The second generation has functions for the condition and the body. The first has a ring of nodes
for each variable: Enter → Merge → Switch → body → NextIteration → Merge, with Switch → Exit out of
it; all Switches of one loop use its LoopCond.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.frontends.common.converting import as_list
from tilewright.frontends.common.operands import Operands
from tilewright.frontends.tensorflow.bodies import Body, Reference
from tilewright.frontends.tensorflow.importer import Importer, Scope
from tilewright.frontends.tensorflow.lists import TensorList
from tilewright.frontends.tensorflow.wire import Message
from tilewright.graph import Value
from tilewright.support.errors import UserError

Condition = Callable[[list[Any]], Value]
Step = Callable[[list[Any]], list[Any]]


def run_loop(
    n: Operands, initial: Sequence[Any], unchanged: set[int], condition: Condition, step: Step
) -> list[Any]:
    """The last state of a loop; unchanged values are no state, and may be known inside."""
    b = n.builder
    changing = [k for k in range(len(initial)) if k not in unchanged]
    start = list(initial)
    _fill_lists(n, start, changing, step)
    for k in changing:
        if not isinstance(start[k], Value | TensorList):
            raise UserError(f"variable {k} of a loop is no tensor")

    def unpacked(state: Sequence[Value]) -> list[Any]:
        given = list(start)
        for k, value in zip(changing, state, strict=True):
            before = start[k]
            if isinstance(before, TensorList):
                given[k] = TensorList(before.dtype, value.shape[0], before.shape, value)
            else:
                given[k] = value
        return given

    def trip(i: Value, *state: Value) -> Any:
        del i
        after = step(unpacked(state))
        kept = [after[k] if k in changing else start[k] for k in range(len(start))]
        carried = [_packed(n, kept[k]) for k in changing]
        return scalar(n, condition(kept)), carried, []

    going = scalar(n, condition(start))
    found = b.loop(None, [_packed(n, start[k]) for k in changing], trip, condition=going)
    return unpacked(as_list(found))


def _packed(n: Operands, value: Any) -> Value:
    return value.tensor(n) if isinstance(value, TensorList) else value


def scalar(n: Operands, value: Value) -> Value:
    """A condition without dimensions."""
    return n.builder.reshape(value, shape=[]) if value.ndim else value


def _fill_lists(n: Operands, start: list[Any], changing: Sequence[int], step: Step) -> None:
    """Give lists whose elements are not known the tensor that an iteration would write to."""
    open_ = [k for k in changing if isinstance(start[k], TensorList) and start[k].data is None]
    if not open_:
        return
    known = [k for k in open_ if _is_known(start[k])]
    for k in known:
        start[k] = start[k].filled(n)
    open_ = [k for k in open_ if k not in known]
    if not open_:
        return
    # An iteration that is discarded shows what it writes.
    n.builder.open_block()
    try:
        after = step(list(start))
    finally:
        n.builder.close_block()
    for k in open_:
        written = after[k]
        if not isinstance(written, TensorList) or written.data is None:
            raise UserError(f"the loop writes nothing to the list in its variable {k}")
        shape = tuple(written.data.shape[1:])
        start[k] = TensorList(start[k].dtype, start[k].count, shape).filled(n)


def _is_known(items: TensorList) -> bool:
    return items.shape is not None and not any(isinstance(d, int) and d < 0 for d in items.shape)


# ---- the second generation ----------------------------------------------------------------------


def unchanged_params(body: Body | None) -> set[int]:
    """Which parameters a function returns unchanged at their positions."""
    if body is None:
        return set()
    found: set[int] = set()
    for k, (param, name) in enumerate(zip(body.params, body.outputs, strict=False)):
        reference = body.reference(body.results.get(name, "^"))
        if _behind_copies(body, reference) == Reference(param, 0):
            found.add(k)
    return found


def _behind_copies(body: Body, reference: Reference | None) -> Reference | None:
    for _ in range(64):
        if reference is None or body.is_param(reference.node):
            return reference
        node = body.node(reference.node)
        if node.op != "Identity":
            return reference
        inputs = body.inputs(node)
        reference = inputs[0] if inputs else None
    return None


# ---- the first generation -----------------------------------------------------------------------


class _Ring:
    """The nodes of one variable of a loop."""

    def __init__(self, body: Body, merge: Message) -> None:
        self.merge = merge.name
        sides = [body.node(r.node) for r in body.inputs(merge)]
        self.enter = next((s for s in sides if s.op == "Enter"), None)
        self.next = next((s for s in sides if s.op == "NextIteration"), None)
        self.switch: str | None = None
        self.condition: str | None = None

    @property
    def frame(self) -> str | None:
        """The name of the loop; None where the node merges branches."""
        if self.enter is None or self.next is None:
            return None
        return bytes(self.enter.attr["frame_name"].s).decode("utf-8", "replace")


def _rings(body: Body) -> dict[str, list[_Ring]]:
    """The variables of all loops, by the loops' names."""
    found: dict[str, list[_Ring]] = {}
    by_merge: dict[str, _Ring] = {}
    for node in body.nodes.values():
        if node.op in ("Merge", "RefMerge"):
            ring = _Ring(body, node)
            if ring.frame is not None:
                found.setdefault(ring.frame, []).append(ring)
                by_merge[node.name] = ring
    for node in body.nodes.values():
        if node.op in ("Switch", "RefSwitch"):
            inputs = body.inputs(node)
            ring = by_merge.get(inputs[0].node) if len(inputs) == 2 else None
            if ring is not None:
                ring.switch, ring.condition = node.name, inputs[1].node
    return found


def exit_of(n: Any) -> Any:
    """The final value of a loop's variable."""
    importer: Importer = n.importer
    scope: Scope = n.scope
    body = scope.body
    (source,) = body.inputs(n.proto)
    switch = body.node(source.node)
    merge = body.inputs(switch)[0].node if switch.op in ("Switch", "RefSwitch") else source.node
    for frame, rings in _rings(body).items():
        if merge in [r.merge for r in rings]:
            if frame not in scope.frames:
                scope.frames[frame] = _run_rings(n, importer, scope, rings)
            return scope.frames[frame][merge]
    raise UserError(f"{n.name} leaves no loop")


def _run_rings(n: Any, importer: Importer, scope: Scope, rings: list[_Ring]) -> dict[str, Any]:
    body = scope.body
    condition = next((r.condition for r in rings if r.condition), None)
    if condition is None:
        raise UserError("a loop has no condition")
    (asked,) = body.inputs(body.node(condition))
    initial = [importer.result(body.inputs(r.enter)[0], scope) for r in rings if r.enter]
    unchanged = {k for k, r in enumerate(rings) if _is_unchanged(body, r)}

    def inside(state: Sequence[Any]) -> Scope:
        made = Scope(body, None, scope.attributes)
        made.around = scope
        for ring, value in zip(rings, state, strict=True):
            made.results[ring.merge] = [value, value]
            if ring.switch is not None:
                made.results[ring.switch] = [value, value]
        return made

    def step(state: list[Any]) -> list[Any]:
        own = inside(state)
        return [importer.result(body.inputs(r.next)[0], own) for r in rings if r.next]

    final = run_loop(n, initial, unchanged, lambda s: importer.value(asked, inside(s)), step)
    return {r.merge: value for r, value in zip(rings, final, strict=True)}


def _is_unchanged(body: Body, ring: _Ring) -> bool:
    """Whether an iteration passes a variable on unchanged."""
    assert ring.next is not None
    inputs = body.inputs(ring.next)
    reference = _behind_copies(body, inputs[0] if inputs else None)
    return reference is not None and reference.node == ring.switch


# ---- branches of the first generation -----------------------------------------------------------


def merge_of(n: Any) -> list[Any]:
    """The value from the branch that was taken, of those that a node joins."""
    importer: Importer = n.importer
    scope: Scope = n.scope
    sides = scope.body.inputs(n.proto)
    found = [_switch_behind(scope.body, s) for s in sides]
    predicate = next((p for p, _ in found if p is not None), None)
    if predicate is None or len(sides) < 2:
        raise UserError(f"nothing says which branch {n.name} takes")
    # A branch without operands from outside is the one that no other is.
    left = set(range(len(sides))) - {k for _, k in found if k is not None}
    spare = min(left, default=0)
    numbers = [spare if k is None else k for _, k in found]
    ordered = sorted(zip(numbers, sides, strict=True), key=lambda pair: pair[0])
    asked, index = importer.value(predicate, scope), n.constant(0, "int32")
    known = importer.structure.array(asked)
    if known is not None:
        taken = min(max(int(known), 0), len(ordered) - 1)
        return [importer.result(ordered[taken][1], scope), index]
    return [_joined(n, asked, ordered, scope), index]


def _joined(n: Any, asked: Value, sides: list[tuple[int, Reference]], scope: Scope) -> Value:
    """The value of the side with the requested number, or else of the last one."""
    importer: Importer = n.importer
    (number, side), *rest = sides
    inside = Scope(scope.body, scope)
    if not rest:
        return importer.value(side, inside)
    if asked.dtype.name == "bool":
        is_it = n.builder.logical_not(asked)
    else:
        is_it = n.builder.equal(asked, n.scalar(number, asked))
    return n.builder.branch(
        scalar(n, is_it),
        lambda: importer.value(side, inside),
        lambda: _joined(n, asked, rest, scope),
    )


def _switch_behind(body: Body, start: Reference) -> tuple[Reference | None, int | None]:
    """The predicate that decides whether a branch runs, and which side of it the branch is.

    Follows data and control dependencies backwards; branches inside the branch are skipped.
    """
    pending: list[tuple[str, int, int]] = [(start.node, start.index, 0)]
    seen: set[tuple[str, int]] = set()
    while pending:
        name, index, depth = pending.pop(0)
        if (name, depth) in seen or name not in body.nodes:
            continue
        seen.add((name, depth))
        node = body.node(name)
        if node.op in ("Switch", "RefSwitch", "_SwitchN"):
            inputs = body.inputs(node)
            if depth == 0:
                return inputs[1], index
            depth -= 1
        if node.op in ("Merge", "RefMerge"):
            depth += 1
        for text in node.input:
            plain = text.removeprefix("^")
            reference = body.reference(plain)
            if reference is not None:
                pending.append((reference.node, reference.index, depth))
    return None, None
