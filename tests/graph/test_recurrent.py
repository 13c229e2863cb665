"""Recurrent networks against NumPy: directions, lengths, states, activations, options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.graph.harness import check
from tests.graph.interpreted import check_definition
from tilewright.graph import Builder, evaluate
from tilewright.support.errors import UserError

RNG = np.random.default_rng(12)
LOOSE: Any = {"rtol": 1e-4, "atol": 1e-5}
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
T, B, I, H = 5, 3, 4, 2  # noqa: E741


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("f4")


def weights(name: str, directions: int = 1) -> list[Any]:
    size = GATES[name] * H
    return [normal(T, B, I), normal(directions, size, I), normal(directions, size, H)]


def bias(name: str, directions: int = 1) -> Any:
    return normal(directions, 2 * GATES[name] * H)


LENGTHS = np.array([5, 1, 3], "i4")


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("name", list(GATES))
def test_directions_lengths_and_states(name: str, direction: str) -> None:
    d = 2 if direction == "bidirectional" else 1
    operands = weights(name, d)
    states = [normal(d, B, H)] * (2 if name == "lstm" else 1)
    options = {"direction": direction, **LOOSE}
    check_definition(name, operands, symbolic=False, **options)
    check_definition(name, [*operands, bias(name, d), LENGTHS, *states], **options)
    check_definition(name, [*operands, None, None, *states], clip=0.3, symbolic=False, **options)


@pytest.mark.parametrize("name", list(GATES))
def test_natively(name: str) -> None:
    check(name, [*weights(name), bias(name)], symbolic=False, **LOOSE)


@pytest.mark.parametrize(
    ("name", "direction", "batch", "hidden", "options"),
    [
        ("lstm", "bidirectional", 1, 10, {"clip": 0.7}),
        ("lstm", "reverse", 9, 40, {}),
        ("gru", "forward", 1, 24, {}),
        ("gru", "bidirectional", 3, 13, {"linear_before_reset": True}),
        ("rnn", "forward", 5, 64, {}),
    ],
)
def test_constant_weights(
    name: str, direction: str, batch: int, hidden: int, options: dict[str, Any]
) -> None:
    d, size = 2 if direction == "bidirectional" else 1, GATES[name] * hidden
    lengths = RNG.integers(1, 8, batch).astype("i4")
    b = Builder()
    x = b.input("x", "f32", (7, batch, 6))
    operands = [normal(d, size, 6) / 3, normal(d, size, hidden) / 6, normal(d, 2 * size)]
    b.output(*getattr(b, name)(x, *operands, lengths, direction=direction, **options))
    graph, values = b.build(), normal(7, batch, 6)
    for got, expected in zip(
        tw.compile(graph).run([values]), evaluate(graph, [values]), strict=True
    ):
        np.testing.assert_allclose(got, expected, **LOOSE)


@pytest.mark.parametrize(("name", "hidden"), [("lstm", 32), ("lstm", 25), ("gru", 32), ("rnn", 16)])
def test_batches_of_any_size(name: str, hidden: int) -> None:
    """Tiles have versions for few rows, and directions may run side by side."""
    b, size = Builder(), GATES[name] * hidden
    x = b.input("x", "f32", ("steps", "batch", 6))
    operands = [normal(2, size, 6) / 3, normal(2, size, hidden) / 6, normal(2, 2 * size)]
    b.output(*getattr(b, name)(x, *operands, direction="bidirectional"))
    graph = b.build()
    model = tw.compile(graph, "llvm -num-cores=2")
    for steps, batch in [(1, 1), (7, 1), (3, 2), (2, 3), (3, 4), (2, 5), (2, 11), (0, 2), (2, 0)]:
        values = normal(steps, batch, 6)
        for got, expected in zip(model.run([values]), evaluate(graph, [values]), strict=True):
            np.testing.assert_allclose(got, expected, **LOOSE)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("name", list(GATES))
def test_states_in_bytes(name: str, direction: str) -> None:
    d, size = 2 if direction == "bidirectional" else 1, GATES[name] * H
    stored = RNG.integers(-127, 128, (d, H, size), "i1")
    optional = {"lstm": [LENGTHS, None, None, None], "gru": [None, LENGTHS, None]}
    operands = [normal(T, B, d * size), stored, *optional.get(name, [LENGTHS, None])]
    scales = np.abs(normal(d, size)) / 127
    for options in ({}, {"linear_before_reset": True}) if name == "gru" else ({},):
        check_definition(
            f"{name}_scan", [*operands, scales], direction=direction, **options, **LOOSE
        )


def test_peepholes_and_coupled_gates() -> None:
    operands = [*weights("lstm"), bias("lstm"), None, None, None, normal(1, 3 * H)]
    check_definition("lstm", operands, symbolic=False, **LOOSE)
    check_definition("lstm", operands, input_forget=True, clip=0.5, symbolic=False, **LOOSE)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_linear_before_reset(direction: str) -> None:
    d = 2 if direction == "bidirectional" else 1
    options = {"linear_before_reset": True, "direction": direction, **LOOSE}
    check_definition("gru", [*weights("gru", d), bias("gru", d), LENGTHS], **options)
    check_definition("gru", weights("gru", d), symbolic=False, **options)


def test_activations() -> None:
    names = ["relu", "hard_sigmoid", "affine", "scaled_tanh", "softsign", "elu"]
    options = {"alphas": [0.1, 0.3, 0.5, 0.7, 0.9, 1.1], "betas": [0.5, 0.4, 0.1, 0.3, 0, 0]}
    check_definition("lstm", weights("lstm", 2), direction="bidirectional", activations=names,
                     symbolic=False, **options, **LOOSE)  # fmt: skip
    for name in ("leaky_relu", "thresholded_relu", "softplus", "sigmoid"):
        check_definition("rnn", weights("rnn"), activations=[name], symbolic=False, **LOOSE)


def test_halves_are_summed_in_float32() -> None:
    operands = [a.astype("f2") for a in weights("gru")]
    check_definition("gru", operands, symbolic=False, rtol=1e-2, atol=5e-3)


def test_what_is_refused() -> None:
    b = Builder()
    x, w, r = (
        b.input(n, "f32", s) for n, s in (("x", (5, 1, 4)), ("w", (1, 8, 4)), ("r", (1, 8, 2)))
    )
    with pytest.raises(UserError, match="unknown direction backward"):
        b.lstm(x, w, r, direction="backward")
    with pytest.raises(UserError, match=r"dimension 0 of w .* differ: 1 and 2"):
        b.lstm(x, w, r, direction="bidirectional")
    with pytest.raises(UserError, match=r"dimension 1 of w .* differ: 8 and 6"):
        b.gru(x, w, r)
    with pytest.raises(UserError, match="its elements are not int8"):
        b.rnn_scan(b.input("p", "f32", (5, 1, 2)), b.input("v", "f32", (1, 2, 2)),
                   None, None, b.input("s", "f32", (1, 2)))  # fmt: skip
    with pytest.raises(UserError, match="unknown activation sigmoidal"):
        b.lstm(x, w, r, activations=["sigmoidal"] * 3)
