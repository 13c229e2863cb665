"""Loops and branches: graphs inside nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.frontends.common.converting import as_list
from tilewright.frontends.mxnet.node import Node
from tilewright.frontends.mxnet.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError

#: Loops with a higher limit of iterations are refused.
_MOST = 1 << 24


def _placed(n: Node, graph: int, *groups: tuple[Sequence[int], Sequence[Value]]) -> list[Value]:
    """Values at their positions among the variables of an inner graph."""
    made: list[Any] = [None] * n.inner_variables(graph)
    for places, values in groups:
        for place, value in zip(places, values, strict=True):
            if not 0 <= place < len(made):
                raise UserError(f"a graph of {len(made)} variables has none at {place}")
            made[place] = value
    if any(v is None for v in made):
        raise UserError("a variable of a graph inside the node gets no value")
    return made


def _flag(n: Node, value: Value) -> Value:
    """A number as a condition."""
    b = n.builder
    single = b.reshape(value, shape=[])
    return b.not_equal(single, n.scalar(0, single))


@converts("_foreach")
def foreach(n: Node) -> list[Value]:
    """The body for each slice of the data: outputs are stacked, states passed on."""
    b: Any = n.builder
    data_at, state_at = n.integers("in_data_locs"), n.integers("in_state_locs")
    rest_at, outputs = n.integers("remain_locs", []), n.integer("num_out_data")
    operands, body = n.all, n.body(0)
    if len(operands) != len(data_at) + len(state_at) + len(rest_at) or not data_at:
        raise UserError(f"a loop over {len(data_at)} tensors has {len(operands)} operands")
    data, states = operands[: len(data_at)], operands[len(data_at) :][: len(state_at)]
    rest = operands[len(data_at) + len(state_at) :]

    def step(i: Value, *state: Value) -> Any:
        slices = [b.gather(x, i, axis=0) for x in data]
        results = body(_placed(n, 0, (data_at, slices), (state_at, state), (rest_at, rest)))
        return None, results[outputs:], results[:outputs]

    length = b.reshape(b.shape_of(data[0], start=0, end=1), shape=[])
    results = as_list(b.loop(length, states, step))
    return [*results[len(states) :], *results[: len(states)]]


@converts("_while_loop")
def while_loop(n: Node) -> list[Value]:
    """Outputs have as many rows as there can be iterations; those after the last are zero."""
    b: Any = n.builder
    limit, outputs = n.integer("max_iterations"), n.integer("num_out_data")
    condition_at, body_at = n.integers("cond_input_locs", []), n.integers("func_input_locs")
    variables_at = n.integers("func_var_locs")
    if not 1 <= limit <= _MOST:
        raise UserError(f"max_iterations is {limit}")
    operands, condition, body = n.all, n.body(0), n.body(1)
    # The operands that are variables changed by the loop.
    changed = [_item(body_at, k) for k in variables_at]

    def given(places: Sequence[int], state: Sequence[Value]) -> list[Value]:
        current = dict(zip(changed, state, strict=True))
        return [current.get(k) or _item(operands, k) for k in places]

    def goes_on(state: Sequence[Value]) -> Value:
        return _flag(n, condition(given(condition_at, state))[0])

    def step(i: Value, *state: Value) -> Any:
        del i
        results = body(given(body_at, state))
        return goes_on(results[outputs:]), results[outputs:], results[:outputs]

    initial = [_item(operands, k) for k in changed]
    count = b.constant(limit, "int64")
    results = as_list(b.loop(count, initial, step, condition=goes_on(initial)))
    stacked = [
        b.pad(v, before=[0] * v.ndim, after=[limit - v.shape[0], *[0] * (v.ndim - 1)])
        for v in results[len(initial) :]
    ]
    return [*stacked, *results[: len(initial)]]


@converts("_cond")
def cond(n: Node) -> list[Value]:
    """One of two graphs, chosen by a third one."""
    places = [n.integers(f"{k}_input_locs", []) for k in ("cond", "then", "else")]
    operands = n.all

    def run(k: int) -> list[Value]:
        return n.body(k)([_item(operands, p) for p in places[k]])

    condition = _flag(n, run(0)[0])
    return as_list(n.builder.branch(condition, lambda: run(1), lambda: run(2)))


def _item(items: Sequence[Any], index: int) -> Any:
    if not 0 <= index < len(items):
        raise UserError(f"there is no operand {index}")
    return items[index]
