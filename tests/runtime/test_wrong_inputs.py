"""Inputs that a model cannot take: each refusal names the input, what it must be and what came."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph import Builder, evaluate
from tilewright.support.errors import UserError

F32 = np.float32


@pytest.fixture(scope="module")
def model() -> Any:
    """x: f32[n, 3] and y: f32[n, 3] added, times the scalar k."""
    b = Builder()
    x = b.input("x", "f32", ("n", 3))
    y = b.input("y", "f32", (x.shape[0], 3))
    k = b.input("k", "f32", ())
    b.output((x + y) * k)
    return tw.compile(b.build(), threads=1)


def given(**changes: Any) -> dict[str, Any]:
    made = {"x": np.ones((2, 3), F32), "y": np.ones((2, 3), F32), "k": np.array(2, F32)}
    return made | changes


REFUSALS = [
    ({"x": np.ones((2, 4), F32)}, r"input x must be float32\[n, 3\]: got the shape \[2, 4\]"),
    ({"x": np.ones(6, F32)}, r"input x must be float32\[n, 3\]: got 1 dimensions: \[6\]"),
    (
        {"x": np.ones((2, 3))},
        r"input x must be float32\[n, 3\]: got float64\[2, 3\]\n  remedy:",
    ),
    (
        {"y": np.ones((5, 3), F32)},
        r"input y must be float32\[n, 3\]: got the shape \[5, 3\] with n",
    ),
    ({"x": "text"}, r"input x must be float32\[n, 3\]: got"),
    ({"x": None}, r"input x must be float32\[n, 3\]: got NoneType\n  remedy: pass a NumPy array"),
    ({"x": object()}, r"input x must be float32\[n, 3\]: got object"),
    ({"x": [[1, 2], [3]]}, r"input x must be float32\[n, 3\]: "),
    ({"x": {"a": 1}}, r"input x must be float32\[n, 3\]: got dict"),
    ({"k": np.ones((1,), F32)}, r"input k must be float32\[\]: got 1 dimensions: \[1\]"),
    ({"z": np.ones(1, F32)}, r"the model has no input z: the model takes x: float32\[n, 3\]"),
    ({"x": np.ones((2, 3), object)}, r"input x must be float32\[n, 3\]: got object\[2, 3\]"),
]


@pytest.mark.parametrize(("changes", "message"), REFUSALS)
def test_refusals(model: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        model.run(given(**changes))


def test_missing_inputs_are_named(model: Any) -> None:
    with pytest.raises(UserError, match=r"input y, k is missing: the model takes x: "):
        model.run({"x": np.ones((2, 3), F32)})
    with pytest.raises(UserError, match=r"2 inputs were given: the model takes x: .*, k: "):
        model.run([np.ones((2, 3), F32)] * 2)


def test_what_is_no_set_of_inputs(model: Any) -> None:
    with pytest.raises(UserError, match=r"cannot run on ndarray\n  remedy: pass a dict"):
        model.run(np.ones((2, 3), F32))


def test_arrays_with_gaps_and_other_orders(model: Any) -> None:
    wide = np.arange(24, dtype=F32).reshape(4, 6)
    for x in (wide[::2, ::2], np.asfortranarray(wide[:2, :3]), wide[:2, 5:2:-1]):
        (got,) = model.run(given(x=x))
        np.testing.assert_array_equal(got, (x + 1) * 2)


def test_arrays_at_odd_addresses_and_of_other_byte_order(model: Any) -> None:
    raw = np.zeros(25, np.uint8)[1:].view(F32).reshape(2, 3)
    (got,) = model.run(given(x=raw))
    np.testing.assert_array_equal(got, np.full((2, 3), 2, F32))
    with pytest.raises(UserError, match=r"input x must be .*: got float32 in the byte order of ot"):
        model.run(given(x=np.ones((2, 3), ">f4")))


def test_python_numbers_are_not_rounded_to_integers() -> None:
    b = Builder()
    b.output(b.neg(b.input("x", "i64", ("n",))))
    model = tw.compile(b.build(), threads=1)
    assert model.run({"x": [1, 2.0]})[0].tolist() == [-1, -2]
    with pytest.raises(UserError, match=r"input x must be int64\[n\]: got numbers that this type"):
        model.run({"x": [1, 2.5]})


def test_no_rows(model: Any) -> None:
    empty = np.ones((0, 3), F32)
    (got,) = model.run(given(x=empty, y=empty))
    assert got.shape == (0, 3) and got.dtype == F32


def test_models_that_are_built_for_their_inputs() -> None:
    """Which axis is summed over decides on the program: it is made when the axis comes."""
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    inputs = [("x", onnx.TensorProto.FLOAT, ["n", 3]), ("axis", onnx.TensorProto.INT64, [1])]
    graph = helper.make_graph(
        [helper.make_node("ReduceSum", ["x", "axis"], ["y"], keepdims=0)],
        "g",
        [helper.make_tensor_value_info(*i) for i in inputs],
        [helper.make_value_info("y", onnx.TypeProto())],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    model = tw.compile(made, threads=1)
    x: Any = np.ones((2, 3), F32)
    np.testing.assert_array_equal(model.run({"x": x, "axis": np.array([0])})[0], [2, 2, 2])
    np.testing.assert_array_equal(model.run({"x": x, "axis": np.array([1])})[0], [3, 3])
    with pytest.raises(UserError, match="input axis is missing"):
        model.run({"x": x})
    with pytest.raises(UserError, match="the model has no input more"):
        model.run({"x": x, "axis": np.array([0]), "more": x})
    with pytest.raises(UserError, match="cannot run on ndarray"):
        model.run(x)
    with pytest.raises(UserError, match=r"values gives input axis: i64\[1\] an array of float32"):
        model.run({"x": x, "axis": np.array([0], F32)})
    with pytest.raises(UserError, match=r"input x must be float32\[n, 3\]: got float64"):
        model.run({"x": x.astype(np.float64), "axis": np.array([0])})


def empty_batches() -> list[Any]:
    """Networks over n rows, which may be none."""

    def conv(b: Any, x: Any) -> Any:
        y = b.relu(b.conv(x, np.ones((4, 3, 3, 3), F32), pads=[1, 1, 1, 1]))
        return b.mean(b.max_pool(y, kernel=[2, 2], strides=[2, 2]), axes=[2, 3])

    def attention(b: Any, x: Any) -> Any:
        rows = b.reshape(x, shape=[x.shape[0], 3, 64])
        scores = b.softmax(b.matmul(rows, rows, transpose_b=True))
        return b.layer_norm(b.matmul(scores, rows), np.ones(64, F32))

    def picks(b: Any, x: Any) -> Any:
        flat = b.reshape(x, shape=[x.shape[0], 192])
        values, _ = b.top_k(b.concat(flat, flat, axis=1), k=3)
        return b.sum(values, axes=[1])

    return [conv, attention, picks]


@pytest.mark.parametrize("network", empty_batches())
def test_empty_batches(network: Any) -> None:
    b = Builder()
    b.output(network(b, b.input("x", "f32", ("n", 3, 8, 8))))
    module = b.build()
    model = tw.compile(module, threads=1)
    for n in (0, 2, 0):
        x = np.random.default_rng(n).standard_normal((n, 3, 8, 8)).astype(F32)
        (got,), (want,) = model.run([x]), evaluate(module, [x])
        assert got.shape == want.shape and got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_refusal_leaves_the_model_usable(model: Any) -> None:
    for _ in range(3):
        with pytest.raises(UserError):
            model.run(given(x=np.ones((2, 4), F32)))
        np.testing.assert_array_equal(model.run(given())[0], np.full((2, 3), 4, F32))


def test_threads_share_a_model(model: Any) -> None:
    """Each with a batch of its own size, many times; no result is another thread's."""
    wrong: list[int] = []

    def work(number: int) -> None:
        x = np.full((number + 1, 3), number, F32)
        for _ in range(200):
            (got,) = model.run(given(x=x, y=x))
            if got.shape != x.shape or not (got == 4 * number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
