"""Operators that take graphs: branches, loops, scans, maps."""

from __future__ import annotations

from functools import reduce
from typing import Any, Final

from tilewright.frontends.common.converting import as_list
from tilewright.frontends.torch.node import Node
from tilewright.frontends.torch.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError

#: The domain of these operators.
HIGHER_ORDER: Final = "higher_order"
#: Operators that only check assumptions of torch.
CHECKS: Final = frozenset(
    """_assert_scalar _assert_async _assert_tensor_metadata sym_constrain_range
    sym_constrain_range_for_size _functional_assert_scalar _functional_assert_async
    _functional_sym_constrain_range _functional_sym_constrain_range_for_size
    _linalg_check_errors""".split()
)


def _flag(n: Node, given: Any) -> Value:
    """A condition as a truth value without dimensions."""
    if isinstance(given, bool):
        return n.constant(given, "bool")
    if not isinstance(given, Value):
        return _of_sizes(n, given.node.expr)
    flag = given if given.dtype.is_bool else n.builder.not_equal(given, n.like(0, given))
    return n.builder.reshape(flag, shape=[]) if flag.ndim else flag


#: sympy's comparisons, by names of the graph's operators.
_COMPARISONS: Final = {
    "Equality": "equal",
    "Unequality": "not_equal",
    "StrictGreaterThan": "greater",
    "GreaterThan": "greater_equal",
    "StrictLessThan": "less",
    "LessThan": "less_equal",
}


def _of_sizes(n: Node, condition: Any) -> Value:
    """A condition on sizes, which torch has as an expression of sympy."""
    b, name = n.builder, type(condition).__name__
    if name in _COMPARISONS:
        sizes = [n.number(n.size(side), "int64") for side in condition.args]
        return b.emit(_COMPARISONS[name], *sizes)
    if name == "Not":
        return b.logical_not(_of_sizes(n, condition.args[0]))
    if name in ("And", "Or"):
        join = b.logical_and if name == "And" else b.logical_or
        return reduce(join, [_of_sizes(n, part) for part in condition.args])
    raise UserError(f"a branch depends on {condition}", reason=f"{name} of sizes is not known here")


@converts("cond", domain=HIGHER_ORDER)
def cond(n: Node) -> list[Any]:
    condition, then, otherwise, operands = n.arguments[:4]
    if isinstance(condition, bool):
        return n.body(then if condition else otherwise)(*operands)
    return as_list(
        n.builder.branch(
            _flag(n, condition),
            lambda: n.body(then)(*operands),
            lambda: n.body(otherwise)(*operands),
        )
    )


@converts("while_loop", domain=HIGHER_ORDER)
def while_loop(n: Node) -> list[Any]:
    condition, body, carried, extra = n.arguments[:4]
    state = [n.number(c) for c in carried]
    going = _flag(n, n.body(condition)(*state, *extra)[0])

    def trip(_: Value, *values: Value) -> Any:
        following = [n.number(v) for v in n.body(body)(*values, *extra)]
        more = _flag(n, n.body(condition)(*following, *extra)[0])
        return more, following, []

    return as_list(n.builder.loop(None, state, trip, condition=going))


@converts("scan", domain=HIGHER_ORDER)
def scan(n: Node) -> list[Any]:
    combine, initial, inputs = n.arguments[:3]
    extra: list[Any] = n.arguments[3] if len(n.arguments) > 3 else []
    b = n.builder
    length = n.number(inputs[0].shape[0], "int64")
    state = [n.number(i) for i in initial]

    def trip(i: Value, *values: Value) -> Any:
        slices = [b.gather(x, i, axis=0) for x in inputs]
        results = n.body(combine)(*values, *slices, *extra)
        return None, results[: len(state)], results[len(state) :]

    return as_list(b.loop(length, state, trip))


@converts("map_impl", "map", domain=HIGHER_ORDER)
def map_(n: Node) -> list[Any]:
    function, inputs, extra = n.arguments[:3]
    b = n.builder
    length = n.number(inputs[0].shape[0], "int64")

    def trip(i: Value) -> Any:
        slices = [b.gather(x, i, axis=0) for x in inputs]
        return [], n.body(function)(*slices, *extra)

    return as_list(b.loop(length, [], trip))


@converts("wrap_with_set_grad_enabled", domain=HIGHER_ORDER)
def without_gradients(n: Node) -> list[Any]:
    _, graph, *operands = n.arguments
    return n.body(graph)(*operands)


@converts("with_effects", domain=HIGHER_ORDER)
def with_effects(n: Node) -> list[Any]:
    """An operator that is ordered by a token: only checks among these can be dropped."""
    target = n.arguments[1]
    name = target._schema.name.rpartition("::")[2]
    if name not in CHECKS:
        raise UserError(f"{name} does more than compute its results")
    return [None, None]


@converts("invoke_subgraph", domain=HIGHER_ORDER)
def invoke_subgraph(n: Node) -> list[Any]:
    graph, _, *operands = n.arguments
    return n.body(graph)(*operands)


@converts("wrap_with_autocast", domain=HIGHER_ORDER)
def with_autocast(n: Node) -> list[Any]:
    *_, graph, rest = n.arguments[:6]
    del rest
    return n.body(graph)(*n.arguments[5:])
