"""Branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.ops.indexing import scalar
from tilewright.frontends.onnx.table import converts
from tilewright.graph import OptionalType, Value
from tilewright.support.errors import UserError


@converts("If")
def if_(n: Node) -> list[Value | None]:
    then, otherwise = n.body("then_branch"), n.body("else_branch")
    known = n.find_array(0)
    if known is not None:
        return then() if known.all() else otherwise()
    try:
        return several(n.builder.branch(scalar(n, n[0]), then, otherwise))
    except UserError:
        # Branches of different ranks: which one is taken must be known, if inputs can tell it.
        n.array(0)
        raise


@converts("Loop")
def loop(n: Node) -> list[Value]:
    body, condition, initial = n.body("body"), n.get(1), n.all_from(2)
    changing = [k for k, stays in enumerate(_stays(n.graph("body"), len(initial))) if not stays]
    filled: set[int] = set()

    def trip(i: Value, *state: Value) -> Any:
        given = [*initial]
        for k, value in zip(changing, state, strict=True):
            given[k] = value
        going, *results = body(i, n.constant(True, "bool"), *given)
        # Without a condition it is a counted loop, whatever the body says.
        go_on = None if condition is None else scalar(n, present(going))
        filled.update(k for k in changing if _is_filled(given[k], results[k]))
        carried = [n.builder.optional(results[k]) if k in filled else results[k] for k in changing]
        return go_on, carried, results[len(initial) :]

    bounds = [None if v is None else scalar(n, v) for v in (n.get(0), condition)]
    state = [initial[k] for k in changing]
    results = several(n.builder.loop(bounds[0], state, trip, condition=bounds[1]))
    last = dict(enumerate(initial)) | dict(zip(changing, results, strict=False))
    after = [n.builder.optional_get(v) if k in filled else v for k, v in last.items()]
    return [*after, *results[len(changing) :]]


def _stays(body: Any, count: int) -> list[bool]:
    """Which of so many values a body hands on to its next run as it got them.

    Those are no state: inside, they are what they are outside, and may be known.
    """
    copies = [k for k in body.node if k.op_type == "Identity" and len(k.input) == len(k.output) == 1]
    same = {copy.output[0]: copy.input[0] for copy in copies}

    def source(name: str) -> str:
        for _ in same:  # a damaged graph may go round in circles
            name = same.get(name, name)
        return name

    pairs = zip(body.input[2 : 2 + count], body.output[1 : 1 + count], strict=False)
    return [source(after.name) == before.name for before, after in pairs]


def _is_filled(before: Value, after: Value | None) -> bool:
    """Whether what may be nothing at first is something after a trip."""
    may_be_none = isinstance(before.type, OptionalType)
    return may_be_none and after is not None and not isinstance(after.type, OptionalType)


def several(results: Any) -> list[Any]:
    """The results of a construct that gives one value alone, several as a tuple."""
    return list(results) if isinstance(results, tuple) else [results]  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def present(value: Value | None) -> Value:
    """A value that must be there."""
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
    turned = n.integers("scan_output_directions", [0] * outputs)
    placed = [
        _placed(n, value, axis, bool(turn))
        for value, axis, turn in zip(results[states:], axes, turned, strict=True)
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

    return several(n.builder.loop(length, initial, trip))


def _extent(n: Node, x: Value, axis: int) -> Value:
    at = axis % max(x.ndim, 1)
    return scalar(n, n.builder.shape_of(x, start=at, end=at + 1))


def _placed(n: Node, value: Value, axis: int, turned: bool) -> Value:
    """A stack of outputs in the order, and with the axis, that are asked for."""
    value = n.builder.flip(value, axes=[0]) if turned else value
    at = axis % value.ndim
    if at == 0:
        return value
    order = list(range(1, value.ndim))
    return n.builder.transpose(value, axes=[*order[:at], 0, *order[at:]])


@converts("Scan", until=9)
def scan_of_batches(n: Node) -> list[Value]:
    """Version 8: everything has a batch in front, and each element of it is scanned by itself."""
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

    return several(n.builder.loop(_extent(n, operands[0], 0), [], element))
