"""What the verifier refuses, by its message."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright.graph import (
    Binding,
    Call,
    CallFunction,
    Closure,
    Construct,
    DataDef,
    DataType,
    Function,
    Graph,
    If,
    Loop,
    Match,
    Module,
    Project,
    Read,
    TensorType,
    Value,
    find_op,
    fresh_dim,
    verify,
)
from tilewright.graph.ir.verify import MAX_NESTING
from tilewright.support.errors import UserError

F3, BOOL, I64 = TensorType("f32", [3]), TensorType("bool"), TensorType("i64")


def value(type_: object = F3, name: str = "v") -> Value:
    return Value(name, type_)  # type: ignore[arg-type]


def call(name: str, *args: Value, **attrs: object) -> Call:
    op = find_op(name)
    bound, full = op.bind(args, attrs)
    return Call(op, bound, full)


def main(x: Value, *body: Binding, results: tuple[Value, ...] = ()) -> Module:
    return Module([Function("main", [x], body, results or (x,))])


def undefined() -> Module:
    return main(value(), Binding([value()], call("relu", value(name="z"))))


def twice() -> Module:
    x, y = value(), value(name="y")
    return main(x, Binding([y], call("relu", x)), Binding([y], call("relu", x)))


def used_before() -> Module:
    x, y = value(), value(name="y")
    return main(x, Binding([value()], call("relu", y)), Binding([y], call("relu", x)))


def inner_value_used_outside() -> Module:
    x, c, t = value(), Value("c", BOOL, np.array(True)), value(name="t")
    then = Graph([], [Binding([t], call("relu", x))], [t])
    return main(x, Binding([value()], If(c, then, Graph([], [], [x]))), results=(t,))


def wrong_type() -> Module:
    x = value()
    return main(x, Binding([value(TensorType("f32", [4]))], call("relu", x)))


def wrong_count() -> Module:
    x = value()
    return main(x, Binding([value(), value()], call("relu", x)))


def wrong_operand() -> Module:
    x = value(I64)
    return main(x, Binding([value(I64)], call("exp", x)))


def wrong_constant() -> Module:
    x = value()
    c = Value("c", F3, np.zeros(4, "f4"))
    return main(x, Binding([value()], call("relu", c)))


def unknown_dimension() -> Module:
    x = value()
    return main(x, Binding([value(TensorType("f32", [fresh_dim("n") * 2]))], call("relu", x)))


def unknown_dimension_in_attribute() -> Module:
    x = value()
    node = call("reshape", x, shape=[fresh_dim("n")])
    return main(x, Binding([value(TensorType("f32", [3]))], node))


def read_of_floats() -> Module:
    x = value()
    return main(x, Binding([], Read(x, [fresh_dim() for _ in range(3)])))


def condition() -> Module:
    x = value()
    same = Graph([], [], [x])
    return main(x, Binding([value()], If(x, same, Graph([], [], [x]))))


def branch_results() -> Module:
    x, c = value(), Value("c", BOOL, np.array(True))
    return main(x, Binding([value()], If(c, Graph([], [], [x]), Graph([], [], []))))


def loop_body() -> Module:
    x = value()
    body = Graph([value(I64)], [], [Value("c", BOOL, np.array(True))])
    return main(x, Binding([value()], Loop(None, None, [x], body)))


def loop_state() -> Module:
    x, s = value(), value(TensorType("f32", [4]), "s")
    body = Graph([value(I64), s], [], [Value("c", BOOL, np.array(True)), s])
    return main(x, Binding([value(s.type)], Loop(None, None, [x], body)))


def no_function() -> Module:
    x = value()
    return main(x, Binding([value()], CallFunction("man", [x])))


def call_of_a_tensor() -> Module:
    x = value()
    return main(x, Binding([value()], CallFunction(x, [])))


def wrong_argument() -> Module:
    x, y = value(), value(TensorType("f32", [4]))
    f = Function("f", [y], [], [y])
    return Module([Function("main", [x], [Binding([value()], CallFunction("f", [x]))], [x]), f])


def no_data_type() -> Module:
    x = value()
    return main(x, Binding([value(DataType("T"))], Construct("T", "A", [])))


def missing_arm() -> Module:
    data = DataDef("T", {"A": [], "B": []})
    t, x = value(DataType("T"), "t"), value()
    node = Match(t, {"A": Graph([], [], [x])})
    return Module(
        [Function("main", [t, value(name="y"), x], [Binding([value()], node)], [x])], [data]
    )


def no_item() -> Module:
    x = value()
    return main(x, Binding([value()], Project(x, 0)))


def same_names() -> Module:
    x, y = value(), value()
    return Module([Function("main", [x, y], [], [x])])


def too_deep() -> Module:
    x, c = value(), Value("c", BOOL, np.array(True))
    graph = Graph([], [], [x])
    for _ in range(MAX_NESTING + 2):
        out = value()
        graph = Graph([], [Binding([out], If(c, graph, Graph([], [], [x])))], [out])
    out = value()
    return main(x, Binding([out], If(c, graph, Graph([], [], [x]))))


def closure_type() -> Module:
    x, p = value(), value(name="p")
    return main(x, Binding([value()], Closure(Graph([p], [], [p]))))


CASES: list[tuple[Callable[[], Module], str]] = [
    (undefined, "z is used, but not defined before"),
    (twice, "y is defined twice"),
    (used_before, "y is used, but not defined before"),
    (inner_value_used_outside, "t is used, but not defined before"),
    (wrong_type, r"v is f32\[4\], but relu gives f32\[3\]"),
    (wrong_count, "relu gives 1 results, not 2"),
    (wrong_operand, "v is i64: the operator takes float tensors"),
    (wrong_constant, r"the constant c is float32\[4\], not f32\[3\]"),
    (unknown_dimension, "uses the dimension n, which nothing defines"),
    (unknown_dimension_in_attribute, "an attribute of reshape uses the dimension n"),
    (read_of_floats, "dimensions are read from no integers"),
    (condition, r"the condition of the branch is f32\[3\], not bool"),
    (branch_results, "a side of the branch gives 0 results, not 1"),
    (loop_body, "a loop carries 1 values, but its body takes 0 and gives 0"),
    (loop_state, r"a loop carries f32\[4\], but is given f32\[3\]"),
    (no_function, "did you mean main|no function man"),
    (call_of_a_tensor, "v is called, but is f32"),
    (wrong_argument, r"an argument is f32\[3\]"),
    (no_data_type, "the module has no data type T"),
    (missing_arm, r"a match on T has arms \['A'\]"),
    (no_item, "has no item 0"),
    (same_names, "two parameters have one name"),
    (too_deep, "nested more than"),
    (closure_type, "the closure gives fn"),
]


@pytest.mark.parametrize(("build", "message"), CASES, ids=[c[0].__name__ for c in CASES])
def test_refused(build: Callable[[], Module], message: str) -> None:
    with pytest.raises(UserError, match=message):
        verify(build())


def test_all_faults_are_listed() -> None:
    x = value()
    body = [Binding([value()], call("relu", value(name=n))) for n in "ab"]
    with pytest.raises(UserError, match="and 1 more") as refused:
        verify(main(x, *body))
    assert str(refused.value).count("^") == 2
