"""The text form: what is printed parses back to the same module."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tilewright as tw
from tests.graph.random_graphs import inputs, modules
from tilewright.graph import (
    ANY,
    Builder,
    DataDef,
    DataType,
    Module,
    OptionalType,
    SequenceType,
    TensorType,
    UnknownType,
    evaluate,
    module_constants,
    module_text,
    parse_module,
    verify,
)
from tilewright.support.errors import UserError


def round_trip(module: Module) -> Module:
    text = module_text(module)
    parsed = parse_module(text, module_constants(module))
    assert module_text(parsed) == text
    verify(parsed)
    return parsed


@settings(max_examples=60, deadline=None)
@given(modules())
def test_random_modules_come_back(module: Module) -> None:
    parsed = round_trip(module)
    given_inputs = inputs()
    for a, b in zip(evaluate(module, given_inputs), evaluate(parsed, given_inputs), strict=True):
        np.testing.assert_array_equal(a, b)


def network() -> Module:
    b = Builder("main")
    x = b.input("x", "f32", ("n", 3))
    w = b.constant(np.arange(12, dtype="f4").reshape(4, 1, 3), name="w")
    b.output(b.relu(x * w + 0.5), names=["scores:0"])
    return b.build()


def test_text_of_a_network(golden: Any) -> None:
    golden(module_text(round_trip(network())), "graph/network")


def test_names_that_are_no_identifiers_are_kept() -> None:
    b = Builder("main")
    b.output(b.relu(b.input("input.1", "f32", (3,))), names=["out/0"])
    parsed = round_trip(b.build())
    assert [p.name for p in parsed.main.params] == ["input.1"]
    assert parsed.main.outputs == ("out/0",)


def control_flow() -> Module:
    data = DataDef("List", {"Nil": [], "Cons": [TensorType("f32", [3]), DataType("List")]})
    b = Builder("main")
    x = b.input("x", "f32", ("n", 3))
    c = b.input("c", "bool")
    s = b.input("s", SequenceType(TensorType("f32", [ANY, 4])))
    b.input("o", OptionalType(UnknownType("i64")))
    y = b.branch(c, lambda: b.relu(x), lambda: x * 2.0)
    last, rows = b.loop(None, [y], lambda i, v: (c, [v + x], [v]), condition=c)
    made = b.construct(data, "Cons", np.ones(3, "f4"), b.construct(data, "Nil"))
    head = b.match(made, data, {"Nil": lambda: np.zeros(3, "f4"), "Cons": lambda h, t: h + 1.0})
    f = b.closure([x.type], lambda v: v + head)
    b.output(b.call(f, last), rows, b.make_tuple(s, c))
    return Module([b.function()], [data])


def test_text_of_control_flow(golden: Any) -> None:
    golden(module_text(round_trip(control_flow())), "graph/control_flow")


def test_dimensions_that_are_read_come_back() -> None:
    b = Builder("main")
    s = b.input("s", "i64", (2,))
    x = b.input("x", "f32", (12,))
    n, m = b.read(s, "size")
    b.output(b.relu(b.reshape(x, shape=[n, m])))
    parsed = round_trip(b.build())
    assert "size0, size1, = read(s)" in module_text(parsed)
    data = {"s": np.array([3, 4]), "x": np.arange(12, dtype="f4")}
    assert evaluate(parsed, data)[0].shape == (3, 4)


def test_dimensions_that_cannot_be_negative_stay_so() -> None:
    b = Builder("main")
    s = b.input("s", "i64", (1,))
    (n,) = b.read(s, "count", natural=True)
    b.output(b.ramp(b.constant(0, "i64"), b.constant(1, "i64"), size=n))
    text = module_text(round_trip(b.build()))
    assert "count, = read(s, natural=True)" in text
    model = tw.compile(parse_module(text))
    assert model.run([np.array([3])])[0].tolist() == [0, 1, 2]
    with pytest.raises(UserError, match="count would be -1"):
        model.run([np.array([-1])])


def test_bindings_need_no_types() -> None:
    module = parse_module("def main(x: f32[n, 3]):\n    y = relu(x)\n    return y\n")
    verify(module)
    assert str(module.main.results[0].type) == "f32[n, 3]"


REFUSED = [
    ("def main(x: f32[3]):\n    return z", "z is not defined here"),
    ("def main(x: f32[3]):\n    y = rellu(x)\n    return y", "unknown operator rellu"),
    ("def main(x: f32[3]):\n    y = relu(x, alpha=1)\n    return y", "relu has no attribute alpha"),
    ("def main(x: f32[3]):\n    y = relu(x, x)\n    return y", "relu takes the operands"),
    ("def main(x: f32[3]):\n    y: f32[4] = relu(x)\n    return y", r"y is written as f32\[4\]"),
    ("def main(x: f32[3]):\n    x = relu(x)\n    return x", "x is defined already"),
    ("def main(x: f33[3]):\n    return x", "f33 is no element type"),
    ("def main(w: const f32[3]):\n    return w", "the table has no constant w"),
    ("def main(x):\n    return x", "x has no type"),
    ("def main(x: f32[3]):\n    for i in x: pass", "has no meaning in a graph"),
    ("def main(x: f32[3]) -> f32[4]:\n    return x", "main returns"),
    ("def main(x: f32[3]):\n    y = x\n    return y", "cannot be bound"),
    ("x = 3", "expected a function or a data type"),
    ("def main(x: f32[3]:\n", "syntax error"),
    ("def main(x: List):\n    return x", "no type List"),
    ("def f(): return\ndef f(): return", "f is defined twice"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_is_refused_is_told_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as refused:
        parse_module(text)
    assert "<text>:" in str(refused.value) or "\n    " in str(refused.value)


def test_constants_must_have_the_type_they_are_written_with() -> None:
    text = module_text(network())
    with pytest.raises(UserError, match="the constant w is float32"):
        parse_module(text, {"w": np.zeros((2, 2), "f4")})
