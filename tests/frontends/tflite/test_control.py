"""Subgraphs, variables, tables and signatures."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.frontends.tflite.peer import lite, ours, require_close
from tests.frontends.tflite.writer import Writer
from tilewright.frontends.tflite import first_states, from_tflite
from tilewright.graph import evaluate
from tilewright.support.errors import UserError


def of_two(w: Writer, op: str) -> int:
    """A subgraph of one operator on two inputs."""
    a, b = w.input("float32", [3]), w.input("float32", [3])
    return w.graph([w.op(op, [a, b], w.tensor("float32", [3]))])


def branch() -> bytes:
    w = Writer()
    c = w.input("bool", [1])
    a, b = w.input("float32", [3]), w.input("float32", [3])
    sides: dict[str, Any] = {"then": 1, "else": 2}
    y = w.op("IF", [c, a, b], w.tensor("float32", [3]), **sides)
    w.graph([y])
    of_two(w, "ADD")
    of_two(w, "MUL")
    return w.model(main=0)


@pytest.mark.parametrize("condition", [True, False])
def test_if(condition: bool) -> None:
    a, b = np.arange(3, dtype=np.float32), np.full(3, 5, np.float32)
    inputs = np.array([condition]), a, b
    wanted = a + b if condition else a * b
    require_close(ours(branch(), *inputs), [wanted])
    require_close(ours(branch(), *inputs, native=True), [wanted])
    require_close(lite(branch(), *inputs), [wanted])


def loop() -> bytes:
    """i, x = i + 1, x + x while i < limit."""
    w = Writer()
    i, x = w.input("int32", [1]), w.input("float32", [2])
    outs = [w.tensor("int32", [1]), w.tensor("float32", [2])]
    w.graph(w.op("WHILE", [i, x], outs, cond=1, body=2))
    i, x = w.input("int32", [1]), w.input("float32", [2])
    limit = w.constant(np.array([5], np.int32))
    w.graph([w.op("LESS", [i, limit], w.tensor("bool", [1]))])
    i, x = w.input("int32", [1]), w.input("float32", [2])
    one = w.constant(np.array([1], np.int32))
    after = w.op("ADD", [i, one], w.tensor("int32", [1]))
    twice = w.op("ADD", [x, x], w.tensor("float32", [2]))
    w.graph([after, twice])
    return w.model(main=0)


@pytest.mark.parametrize("start", [0, 3, 9])
def test_while(start: int) -> None:
    x = np.array([1, -2], np.float32)
    inputs = np.array([start], np.int32), x
    trips = max(5 - start, 0)
    wanted = [np.array([start + trips], np.int32), x * 2**trips]
    require_close(ours(loop(), *inputs), wanted)
    require_close(ours(loop(), *inputs, native=True), wanted)
    require_close(lite(loop(), *inputs), wanted)


def counter() -> bytes:
    """A variable, 7 at first, to which the input is added at every run."""
    w = Writer()
    x = w.input("float32", [2], name="x")
    w.op("CALL_ONCE", [], [], subgraph=1)
    handle = w.op("VAR_HANDLE", [], w.tensor("resource", []), shared_name="total")
    old = w.op("READ_VARIABLE", [handle], w.tensor("float32", [2]))
    new = w.op("ADD", [old, x], w.tensor("float32", [2]))
    w.op("ASSIGN_VARIABLE", [handle, new], [])
    w.graph([new])
    handle = w.op("VAR_HANDLE", [], w.tensor("resource", []), shared_name="total")
    w.op("ASSIGN_VARIABLE", [handle, w.constant(np.full(2, 7, np.float32))], [])
    w.graph([])
    return w.model(main=0)


def test_variables_are_inputs_and_outputs() -> None:
    model = tw.compile(counter(), threads=1)
    assert [s.name for s in model.inputs] == ["x", "total"]
    assert [s.name for s in model.outputs][1] == "total"
    state = first_states(counter())["total"]
    np.testing.assert_array_equal(state, [7, 7])
    x = np.array([1, 2], np.float32)
    for k in range(1, 4):
        y, state = model.run({"x": x, "total": state})
        np.testing.assert_array_equal(y, 7 + k * x)


def lstm(
    *, projected: bool = False, peepholes: bool = False, clip: float = 0.3
) -> tuple[bytes, Any]:
    """A network of 4 cells on 3 inputs, with states that are variables."""
    rng = np.random.default_rng(5)
    w = Writer()
    outputs = 2 if projected else 4

    def weights(*shape: int) -> int:
        return w.constant(rng.uniform(-0.5, 0.5, shape).astype(np.float32))

    x = w.input("float32", [2, 5, 3])
    ins = [x, *(weights(4, 3) for _ in range(4)), *(weights(4, outputs) for _ in range(4))]
    ins += [weights(4) if peepholes else -1 for _ in range(3)]
    ins += [weights(4) for _ in range(4)]
    ins += [weights(2, 4), -1] if projected else [-1, -1]
    ins += [w.tensor("float32", [2, outputs], variable=True, name="h")]
    ins += [w.tensor("float32", [2, 4], variable=True, name="c"), -1, -1, -1, -1]
    y = w.op(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        ins,
        w.tensor("float32", [2, 5, outputs]),
        activation=4,
        cell_clip=clip,
        proj_clip=0.0,
    )
    return w.model([y]), rng.uniform(-1, 1, (2, 5, 3)).astype(np.float32)


@pytest.mark.parametrize(
    "how", [{}, {"projected": True}, {"clip": 0.0}, {"clip": 0.0, "peepholes": True}]
)
def test_lstm(how: dict[str, Any]) -> None:
    data, x = lstm(**how)
    states = first_states(data)
    assert list(states) == ["h", "c"]
    found = evaluate(from_tflite(data), {"x0": x, **states})
    require_close(found[:1], lite(data, x))
    native = tw.compile(data, threads=1).run({"x0": x, **states})
    require_close(native, found)


def test_networks_without_extras_are_cells() -> None:
    def operators(data: bytes) -> str:
        return str(from_tflite(data))

    assert "lstm(" in operators(lstm(clip=0.0)[0]) and "lstm(" not in operators(lstm()[0])


@pytest.mark.parametrize("activation", [0, 1, 4])
def test_rnn(activation: int) -> None:
    rng = np.random.default_rng(5)
    w = Writer()

    def weights(*shape: int) -> int:
        return w.constant(rng.uniform(-0.5, 0.5, shape).astype(np.float32))

    x = rng.uniform(-1, 1, (2, 5, 3)).astype(np.float32)
    state = w.tensor("float32", [2, 4], variable=True, name="h")
    ins = [w.input("float32", x.shape), weights(4, 3), weights(4, 4), weights(4), state]
    out = w.tensor("float32", [2, 5, 4])
    y = w.op("UNIDIRECTIONAL_SEQUENCE_RNN", ins, out, activation=activation)
    data = w.model([y])
    states = first_states(data)
    found = tw.compile(data, threads=1).run({"x0": x, **states})
    require_close(found, evaluate(from_tflite(data), {"x0": x, **states}))
    require_close(found[:1], lite(data, x))


def test_svdf() -> None:
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (2, 3)).astype(np.float32)
    features = rng.uniform(-1, 1, (8, 3)).astype(np.float32)
    times = rng.uniform(-1, 1, (8, 6)).astype(np.float32)
    w = Writer()
    state = w.tensor("float32", [2, 48], variable=True, name="state")
    ins = [w.input("float32", x.shape), w.constant(features), w.constant(times), -1, state]
    data = w.model([w.op("SVDF", ins, w.tensor("float32", [2, 4]), rank=2, activation=0)])
    found = evaluate(from_tflite(data), {"x0": x, **first_states(data)})
    wanted = ((x @ features.T) * times[:, -1]).reshape(2, 4, 2).sum(-1)
    require_close(found[:1], [wanted])
    require_close(found[:1], lite(data, x))


def test_hash_table() -> None:
    w = Writer()
    keys = w.input("int64", [3])
    w.op("CALL_ONCE", [], [], subgraph=1)
    table = w.op("HASHTABLE", [], w.tensor("resource", []), table=3, key_type=4, value_type=4)
    default = w.constant(np.array([-1], np.int64))
    w.graph([w.op("HASHTABLE_FIND", [table, keys, default], w.tensor("int64", [3]))])
    table = w.op("HASHTABLE", [], w.tensor("resource", []), table=3, key_type=4, value_type=4)
    held = [w.constant(np.array(v, np.int64)) for v in ([5, 6, 7], [50, 60, 70])]
    w.op("HASHTABLE_IMPORT", [table, *held], [])
    w.graph([])
    data = w.model(main=0)
    require_close(ours(data, np.array([7, 5, 9])), [np.array([70, 50, -1])])


def test_names_of_a_signature() -> None:
    w = Writer()
    x = w.input("float32", [2], name="serving_default_image:0")
    y = w.op("NEG", [x], w.tensor("float32", [2], name="StatefulPartitionedCall:0"))
    w.graph([y])
    w.sign("serve", 0, {"image": x}, {"scores": y})
    data = w.model(main=0)
    model = tw.compile(data, threads=1)
    assert [s.name for s in (*model.inputs, *model.outputs)] == ["image", "scores"]
    with pytest.raises(UserError, match="no signature other"):
        from_tflite(data, signature="other")


def test_sizes_that_are_free() -> None:
    w = Writer()
    x = w.input("float32", [1, 3], name="x", signature=[-1, 3])
    y = w.op("ADD", [x, x], w.tensor("float32", [1, 3], signature=[-1, 3]))
    model = tw.compile(w.model([y]), threads=1)
    for count in (1, 4):
        given = np.ones((count, 3), np.float32)
        np.testing.assert_array_equal(model.run([given])[0], 2 * given)
