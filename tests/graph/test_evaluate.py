"""The evaluator: control flow, functions, recursion, data types, symbolic sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.graph import (
    Builder,
    Call,
    DataDef,
    DataType,
    Function,
    Module,
    TensorType,
    Value,
    evaluate,
    verify,
)
from tilewright.support.errors import UserError

SCALAR = TensorType("i64")


def run(b: Builder, *inputs: Any) -> Any:
    module = b.build()
    verify(module)
    results = evaluate(module, [np.asarray(i) for i in inputs])
    return results[0] if len(results) == 1 else results


def test_operators_and_numbers() -> None:
    b = Builder()
    x = b.input("x", "f32", ("n",))
    y = b.input("y", "f32", ("n",))
    b.output((x + y * 2.0) / (1.0 - x), -x, 3.0 - x, x < y)
    x_, y_ = np.array([2.0, 3.0], "f4"), np.array([5.0, 1.0], "f4")
    results = run(b, x_, y_)
    np.testing.assert_allclose(results[0], (x_ + y_ * 2) / (1 - x_))
    np.testing.assert_array_equal(results[3], x_ < y_)


def test_branches_see_outer_values_and_join_shapes() -> None:
    b = Builder()
    x = b.input("x", "f32", ("n",))
    y = b.input("y", "f32", ("m",))
    c = b.input("c", "bool")
    z = b.branch(c, lambda: x + 1.0, lambda: y)
    assert isinstance(z.type, TensorType) and str(z.type) == "f32[d]"
    b.output(z)
    assert run(b, np.zeros(2, "f4"), np.zeros(3, "f4"), False).shape == (3,)


def test_branches_of_different_rank_are_refused() -> None:
    b = Builder()
    x, y = b.input("x", "f32", (2,)), b.input("y", "f32", (2, 2))
    with pytest.raises(UserError, match="ranks must be known"):
        b.branch(b.input("c", "bool"), lambda: x, lambda: y)


def test_loop_with_state_condition_and_rows() -> None:
    b = Builder()
    limit = b.input("limit", "i64")
    zero = b.constant(0, "i64")

    def body(i: Value, total: Value) -> Any:
        total = total + i
        return total < limit, [total], [total * 2]

    b.output(*b.loop(100, [zero], body))
    total, rows = run(b, np.int64(10))
    assert total == 10
    np.testing.assert_array_equal(rows, [0, 2, 6, 12, 20])


def test_a_loop_that_never_runs_has_no_rows() -> None:
    b = Builder()
    x = b.input("x", "f32", ("n", 3))
    b.output(*b.loop(0, [x], lambda i, s: ([s + x], [s])))
    state, rows = run(b, np.ones((2, 3), "f4"))
    assert state.shape == (2, 3) and rows.shape == (0, 2, 3)


def test_a_state_that_grows_gets_a_symbolic_dimension() -> None:
    b = Builder()
    x = b.input("x", "f32", (1,))
    b.output(b.loop(4, [x], lambda i, s: [b.concat(s, x, axis=0)]))
    module = b.build()
    verify(module)
    assert not module.main.results[0].tensor.is_static
    assert evaluate(module, [np.ones(1, "f4")])[0].shape == (5,)


def test_closures_capture() -> None:
    b = Builder()
    x = b.input("x", "f32", (2,))
    f = b.closure([x.type], lambda v: v * x)
    b.output(b.call(f, b.call(f, x)))
    np.testing.assert_array_equal(run(b, np.array([2.0, 3.0], "f4")), [8.0, 27.0])


def factorial() -> Function:
    b = Builder("factorial")
    n = b.input("n", SCALAR)

    def again() -> Any:
        return n * b.call("factorial", n - 1, types=[SCALAR])

    b.output(b.branch(n > 1, again, lambda: b.constant(1, "i64")))
    return b.function()


def test_recursion() -> None:
    b = Builder()
    b.output(b.call(factorial(), b.input("n", SCALAR)))
    module = Module([b.function(), factorial()])
    verify(module)
    assert evaluate(module, [np.int64(10)])[0] == 3628800
    # Deeper than Python's own stack goes.
    assert evaluate(module, [np.int64(3000)])[0] == 0


def test_dimensions_of_a_function_belong_to_each_call() -> None:
    f = Builder("f")
    f.output(f.relu(f.input("x", "f32", ("n", 3))))
    function = f.function()
    b = Builder()
    x, y = b.input("x", "f32", ("n", 3)), b.input("y", "f32", (5, 3))
    b.output(b.call(function, x), b.call(function, y))
    main = b.function()
    assert [str(r.type) for r in main.results] == ["f32[n, 3]", "f32[5, 3]"]
    results = evaluate(Module([main, function]), [np.ones((2, 3), "f4"), np.ones((5, 3), "f4")])
    assert [r.shape for r in results] == [(2, 3), (5, 3)]


def test_data_types_and_recursion_over_them() -> None:
    data = DataDef("List", {"Nil": [], "Cons": [SCALAR, DataType("List")]})
    s = Builder("total")
    items = s.input("items", DataType("List"))
    s.output(
        s.match(
            items,
            data,
            {
                "Nil": lambda: s.constant(0, "i64"),
                "Cons": lambda head, tail: head + s.call("total", tail, types=[SCALAR]),
            },
        )
    )
    total = s.function()
    b = Builder()
    made = b.construct(data, "Nil")
    for number in (1, 2, 3):
        made = b.construct(data, "Cons", b.constant(number, "i64"), made)
    b.output(b.call(total, made))
    module = Module([b.function(), total], [data])
    verify(module)
    assert evaluate(module, [])[0] == 6


def test_sizes_that_are_read() -> None:
    b = Builder()
    x, s = b.input("x", "f32", ("n",)), b.input("s", "i64", (2,))
    rows, columns = b.read(s)
    b.output(b.reshape(x, shape=[rows, columns]))
    assert run(b, np.arange(6, dtype="f4"), np.array([3, 2])).shape == (3, 2)


def test_what_is_read_in_a_branch_is_not_known_outside() -> None:
    b = Builder()
    x, s = b.input("x", "f32", ("n",)), b.input("s", "i64", (1,))
    c = b.input("c", "bool")
    y = b.branch(c, lambda: b.reshape(x, shape=b.read(s)), lambda: x)
    b.output(y, b.reshape(x, shape=b.read(s)))
    first, _ = run(b, np.zeros(4, "f4"), np.array([4]), True)
    assert first.shape == (4,)


def test_wrong_inputs_are_named() -> None:
    b = Builder()
    b.output(b.relu(b.input("x", "f32", ("n", 3))))
    module = b.build()
    with pytest.raises(UserError, match=r"missing: \['x'\], not known: \['y'\]"):
        evaluate(module, {"y": np.zeros((2, 3), "f4")})
    with pytest.raises(UserError, match="3 is 3, not 4"):
        evaluate(module, [np.zeros((2, 4), "f4")])
    with pytest.raises(UserError, match="is float64 when it is evaluated"):
        evaluate(module, [np.zeros((2, 3))])


def test_a_symbolic_dimension_has_one_size() -> None:
    b = Builder()
    b.output(b.input("x", "f32", ("n",)) + b.input("y", "f32", ("n",)))
    with pytest.raises(UserError, match="n is 2, not 3"):
        evaluate(b.build(), [np.zeros(2, "f4"), np.zeros(3, "f4")])


# ---- building -----------------------------------------------------------------------------------


def test_an_error_shows_the_call_and_where_it_comes_from() -> None:
    b = Builder()
    b.origin = "node Add_3"
    x, y = b.input("x", "f32", (3,)), b.input("y", "f32", (4,))
    with pytest.raises(UserError, match="cannot be broadcast") as refused:
        b.add(x, y)
    assert "add(x: f32[3], y: f32[4])" in str(refused.value)
    assert "from node Add_3" in str(refused.value)


def test_unknown_operators_and_attributes() -> None:
    b = Builder()
    x = b.input("x", "f32", (3,))
    with pytest.raises(UserError, match="did you mean relu"):
        b.rellu(x)
    with pytest.raises(UserError, match="cast has no attribute type"):
        b.cast(x, type="f32")
    with pytest.raises(UserError, match="cast is not given the attribute dtype"):
        b.cast(x)
    with pytest.raises(UserError, match=r"add takes the operands \(a, b\), not 1"):
        b.add(x)


def test_types_are_not_mixed_silently() -> None:
    b = Builder()
    x, y = b.input("x", "f32", (3,)), b.input("y", "f64", (3,))
    with pytest.raises(UserError, match="operands have the element types f32, f64"):
        b.add(x, y)


def test_values_of_a_finished_graph_take_no_operators() -> None:
    b = Builder()
    x = b.input("x", "f32", (3,))
    b.output(x)
    b.build()
    with pytest.raises(UserError, match="its graph is finished"):
        _ = x + 1.0


def test_shape_arithmetic_is_followed() -> None:
    b = Builder()
    x = b.input("x", "i64", (2,))
    x.known = np.array([b.dim("n"), b.dim("m")], object)
    doubled = x * 2 + 1
    assert [str(e) for e in doubled.known] == ["n * 2 + 1", "m * 2 + 1"]
    assert b.cast(b.cast(doubled, dtype="i32"), dtype="i64").known is not None


def test_broadcasting_of_symbolic_dimensions() -> None:
    b = Builder()
    x = b.input("x", "f32", ("n",))
    assert str((x + x).type) == "f32[n]"
    assert str((x + np.zeros(4, "f4")).type) == "f32[4]"
    c = Builder()
    c.output(c.input("x", "f32", ("n",)) + c.input("y", "f32", ("m",)))
    function = c.function()
    for shapes in [(3, 3), (1, 3), (3, 1), (0, 1), (1, 1)]:
        # The evaluator holds the inferred shape against the result.
        evaluate(function, [np.ones(n, "f4") for n in shapes])
    with pytest.raises(UserError, match=r"add.* failed"):
        evaluate(function, [np.ones(2, "f4"), np.ones(3, "f4")])
    call = function.body[0].expr
    assert isinstance(call, Call)
    [(condition, message)] = call.op.conditions(call.args, call.attrs)
    assert "cannot be broadcast" in message and "n" in str(condition)


def test_sequences_change_size_in_loops() -> None:
    b = Builder()
    x = b.input("x", "f32", (2,))

    def body(i: Value, items: Value) -> Any:
        return [b.sequence_insert(items, b.cast(i, dtype="f32") * x)]

    items = b.loop(3, [b.sequence_empty(dtype="f32")], body)
    assert str(items.type) == "seq[f32[2]]"
    last = b.sequence_at(items, b.constant(-1, "i64"))
    joined = b.concat_from_sequence(items, axis=0)
    fewer = b.sequence_erase(items, b.constant(0, "i64"))
    stacked = b.concat_from_sequence(fewer, axis=0, new_axis=True)
    b.output(last, joined, stacked, b.sequence_length(items))
    results = run(b, np.array([1.0, 2.0], "f4"))
    np.testing.assert_array_equal(results[0], [2, 4])
    np.testing.assert_array_equal(results[1], [0, 0, 1, 2, 2, 4])
    np.testing.assert_array_equal(results[2], [[1, 2], [2, 4]])
    assert results[3] == 3


def test_elements_of_a_sequence_may_differ_in_size() -> None:
    b = Builder()
    x, y = b.input("x", "f32", (2, 3)), b.input("y", "f32", (4, 3))
    items = b.sequence(x, y)
    assert str(items.type) == "seq[f32[_, 3]]"
    one = b.sequence_at(items, b.input("k", "i64"))
    assert str(one.type) == "f32[d, 3]"
    b.output(b.relu(one), items)
    first, second = run(b, np.ones((2, 3), "f4"), np.ones((4, 3), "f4"), np.int64(1))
    assert first.shape == (4, 3) and len(second) == 2


def test_split_to_sequence() -> None:
    b = Builder()
    x = b.input("x", "f32", (5, 2))
    parts = b.split_to_sequence(x, b.constant([2, 3], "i64"), axis=0)
    rows = b.split_to_sequence(x, axis=1, keep_axis=False)
    assert str(rows.type) == "seq[f32[5]]"
    b.output(parts, rows, b.split_to_sequence(x, b.constant(2, "i64"), axis=0))
    results = run(b, np.ones((5, 2), "f4"))
    assert [[p.shape for p in r] for r in results] == [
        [(2, 2), (3, 2)],
        [(5,), (5,)],
        [(2, 2), (2, 2), (1, 2)],
    ]


def test_optionals() -> None:
    b = Builder()
    x = b.input("x", "f32", (2,))
    some, none = b.optional(x), b.optional_none(dtype="f32")
    c = b.input("c", "bool")
    either = b.branch(c, lambda: some, lambda: none)
    assert str(either.type) == "opt[f32[2]]"
    b.output(b.optional_get(some), b.optional_has(either), b.optional_has(x))
    results = run(b, np.ones(2, "f4"), False)
    assert [r.tolist() for r in results] == [[1.0, 1.0], False, True]
