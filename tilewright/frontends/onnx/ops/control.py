"""Branches and loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.frontends.common.converting import as_list
from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.ops.indexing import scalar
from tilewright.frontends.onnx.table import converts
from tilewright.graph import OptionalType, TensorType, Value
from tilewright.support.errors import UserError


@converts("If")
def if_(n: Node) -> list[Value | None]:
    then, otherwise = n.body("then_branch"), n.body("else_branch")
    known = n.find_array(0)
    if known is not None:
        return then() if known.all() else otherwise()
    condition, levelled = scalar(n, n[0]), _Levelled(n)
    try:
        return as_list(n.builder.branch(condition, levelled.of(then), levelled.of(otherwise)))
    except UserError:
        # Single elements, with and without dimensions, get the same rank.
        if levelled.find_ranks():
            branches = levelled.of(then), levelled.of(otherwise)
            return as_list(n.builder.branch(condition, *branches))
        # For branches of different ranks, the condition must be known, if it depends on inputs.
        n.array(0)
        raise


class _Levelled:
    """Branches whose results are single elements of different ranks, as some exporters write."""

    def __init__(self, n: Node) -> None:
        self._node = n
        self._seen: list[list[Value | None]] = []
        self._ranks: list[int | None] = []

    def of(self, branch: Callable[..., list[Value | None]]) -> Callable[[], list[Value | None]]:
        def run() -> list[Value | None]:
            results = branch()
            self._seen.append(results)
            if len(self._ranks) != len(results):
                return results
            return [self._raised(*r) for r in zip(results, self._ranks, strict=True)]

        return run

    def find_ranks(self) -> bool:
        """Find the rank of each result; returns whether any of them differed."""
        if len({len(results) for results in self._seen}) != 1 or len(self._seen) != 2:
            return False
        self._ranks = [_common_rank(*pair) for pair in zip(*self._seen, strict=True)]
        return any(rank is not None for rank in self._ranks)

    def _raised(self, value: Value | None, rank: int | None) -> Value | None:
        if value is None or rank is None:
            return value
        return self._node.builder.reshape(value, shape=[1] * rank)


def _common_rank(a: Value | None, b: Value | None) -> int | None:
    """The greater rank of two single elements, if their ranks differ."""
    if not (_is_single(a) and _is_single(b)):
        return None
    assert a is not None and b is not None
    return max(a.ndim, b.ndim) if a.ndim != b.ndim else None


def _is_single(value: Value | None) -> bool:
    return value is not None and isinstance(value.type, TensorType) and value.type.size == 1


@converts("Loop")
def loop(n: Node) -> list[Value]:
    initial = n.all_from(2)
    unread = _unread(n.graph("body"), len(initial))
    replaced: set[int] = set()
    try:
        return _loop(n, initial, set(), replaced)
    except UserError:
        if not replaced & unread:
            raise
    # State that no iteration reads and every one replaces is empty before the first one.
    return _loop(n, initial, replaced & unread, set())


def _loop(n: Node, initial: Sequence[Value], empty: set[int], replaced: set[int]) -> list[Value]:
    """The loop, with empty initial values where `empty` says so; `replaced` collects those that an
    iteration replaces by values of other ranks."""
    body, condition = n.body("body"), n.get(1)
    unchanged = _unchanged(n.graph("body"), len(initial))
    changing = [k for k in range(len(initial)) if k not in unchanged]
    filled: set[int] = set()

    def trip(i: Value, *state: Value) -> Any:
        given = [*initial]
        for k, value in zip(changing, state, strict=True):
            given[k] = value
        going, *results = body(i, n.constant(True, "bool"), *given)
        # Without a condition the loop is a counted one, whatever the body computes.
        go_on = None if condition is None else scalar(n, present(going))
        filled.update(k for k in changing if _is_filled(given[k], results[k]))
        replaced.update(k for k in changing if _differ_in_rank(given[k], results[k]))
        carried = [
            n.builder.optional(results[k]) if k in filled else _as_before(n, given[k], results[k])
            for k in changing
        ]
        return go_on, carried, results[len(initial) :]

    bounds = [None if v is None else scalar(n, v) for v in (n.get(0), condition)]
    state = [
        n.builder.optional_none(dtype=initial[k].dtype) if k in empty else initial[k]
        for k in changing
    ]
    results = as_list(n.builder.loop(bounds[0], state, trip, condition=bounds[1]))
    last = dict(enumerate(initial)) | dict(zip(changing, results, strict=False))
    after = [n.builder.optional_get(v) if k in filled else v for k, v in last.items()]
    return [*after, *results[len(changing) :]]


def _differ_in_rank(before: Value, after: Value | None) -> bool:
    values = (before, after)
    ranks = {v.type.ndim for v in values if v is not None and isinstance(v.type, TensorType)}
    return len(ranks) == 2


def _unread(body: Any, count: int) -> set[int]:
    """Which of `count` values a body does not read, but replaces."""
    read = set[str]()
    pending = [body]
    while pending:
        graph = pending.pop()
        read.update(o.name for o in graph.output)
        for node in graph.node:
            read.update(node.input)
            pending += [a.g for a in node.attribute if a.HasField("g")]
            pending += [g for a in node.attribute for g in a.graphs]
    return {k for k, value in enumerate(body.input[2 : 2 + count]) if value.name not in read}


def _as_before(n: Node, before: Value, after: Value | None) -> Value | None:
    """A single element in the rank that it had before the iteration."""
    if _common_rank(before, after) is None:
        return after
    return n.builder.reshape(after, shape=before.shape)


def _unchanged(body: Any, count: int) -> set[int]:
    """Which of `count` values a body passes on unchanged to its next iteration.

    Those are no state: inside, they are the same as outside, and may be known.
    """
    copies = [
        k for k in body.node if k.op_type == "Identity" and len(k.input) == len(k.output) == 1
    ]
    same = {copy.output[0]: copy.input[0] for copy in copies}

    def source(name: str) -> str:
        for _ in same:  # a damaged graph may have a cycle
            name = same.get(name, name)
        return name

    pairs = zip(body.input[2 : 2 + count], body.output[1 : 1 + count], strict=False)
    return {k for k, (a, b) in enumerate(pairs) if source(b.name) == a.name}


def _is_filled(before: Value, after: Value | None) -> bool:
    """Whether a value that may be empty at first is not empty after an iteration."""
    may_be_none = isinstance(before.type, OptionalType)
    return may_be_none and after is not None and not isinstance(after.type, OptionalType)


def present(value: Value | None) -> Value:
    """A value that must exist."""
    if value is None:
        raise UserError("a graph gives nothing where a value is needed")
    return value


# ---- scan ---------------------------------------------------------------------------------------


@converts("Scan", since=9)
def scan(n: Node) -> list[Value]:
    count = n.integer("num_scan_inputs")
    states = len(n.inputs) - count
    if count < 1 or states < 0:
        raise UserError(f"a scan of {len(n.inputs)} operands has {count} scan inputs")
    results = scan_over(
        n,
        n.all[:states],
        n.all[states:],
        axes=n.integers("scan_input_axes", [0] * count),
        backwards=n.integers("scan_input_directions", [0] * count),
    )
    outputs = len(results) - states
    axes = n.integers("scan_output_axes", [0] * outputs)
    backwards = n.integers("scan_output_directions", [0] * outputs)
    placed = [
        _placed(n, value, axis, bool(backward))
        for value, axis, backward in zip(results[states:], axes, backwards, strict=True)
    ]
    return [*results[:states], *placed]


def scan_over(
    n: Node,
    initial: Sequence[Value],
    inputs: Sequence[Value],
    axes: Sequence[int],
    backwards: Sequence[int],
) -> list[Value]:
    """The last state and the stacked outputs of the body, run for each slice of the inputs."""
    body = n.body("body")
    length = _extent(n, inputs[0], axes[0])

    def trip(i: Value, *state: Value) -> Any:
        last = n.builder.sub(n.builder.sub(length, 1), i) if any(backwards) else i
        slices = [
            n.builder.gather(x, last if back else i, axis=axis)
            for x, axis, back in zip(inputs, axes, backwards, strict=True)
        ]
        results = body(*state, *slices)
        return None, results[: len(initial)], results[len(initial) :]

    return as_list(n.builder.loop(length, initial, trip))


def _extent(n: Node, x: Value, axis: int) -> Value:
    at = axis % max(x.ndim, 1)
    return scalar(n, n.builder.shape_of(x, start=at, end=at + 1))


def _placed(n: Node, value: Value, axis: int, backwards: bool) -> Value:
    """A stack of outputs in the requested order, and with the requested axis."""
    value = n.builder.flip(value, axes=[0]) if backwards else value
    at = axis % value.ndim
    if at == 0:
        return value
    order = list(range(1, value.ndim))
    return n.builder.transpose(value, axes=[*order[:at], 0, *order[at:]])


@converts("Scan", until=9)
def scan_of_batches(n: Node) -> list[Value]:
    """Version 8: all operands have a batch dimension in front, whose elements are scanned apart."""
    if n.get(0) is not None:
        raise UserError("a scan of version 8 with lengths", remedy="convert the model to opset 9")
    count = n.integer("num_scan_inputs")
    states = len(n.inputs) - 1 - count
    operands = n.all_from(1)
    backwards = n.integers("directions", [0] * count)

    def element(i: Value) -> Any:
        parts = [n.builder.gather(x, i, axis=0) for x in operands]
        results = scan_over(n, parts[:states], parts[states:], [0] * count, backwards)
        return [], results

    return as_list(n.builder.loop(_extent(n, operands[0], 0), [], element))
