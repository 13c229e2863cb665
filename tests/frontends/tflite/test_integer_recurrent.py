"""Recurrent networks in integers, bit for bit as LiteRT's kernels have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.frontends.tflite.peer import lite
from tests.frontends.tflite.writer import Writer
from tilewright.frontends.tflite import first_states, from_tflite
from tilewright.graph import evaluate

BATCH, TIME, INPUTS, CELLS = 2, 6, 5, 4
RECORDED_LSTM = [
    [
        [49, 48, -66, -3],
        [-33, -79, 67, -81],
        [79, 75, -88, 3],
        [83, 44, -42, -28],
        [-34, -57, 108, 19],
        [-47, -28, 106, -27],
    ],
    [
        [-37, -89, 71, -85],
        [102, 115, -67, -24],
        [-37, -89, 71, -85],
        [1, 5, -1, -8],
        [71, 70, -92, -3],
        [-5, -6, -3, -6],
    ],
]
RECORDED_SVDF = [[-128, -128, -128, -114], [-95, -128, -75, -128]]


def lstm(
    *,
    coupled: bool = False,
    peepholes: bool = False,
    projected: bool = False,
    clip: float = 0.0,
    normalised: bool = False,
    seed: int = 0,
) -> tuple[bytes, Any]:
    """A network whose gates reach all of their range, and inputs for it."""
    rng = np.random.default_rng(seed)
    w = Writer()
    # LiteRT takes the number of outputs for that of the cells where it multiplies by peepholes.
    outputs = 3 if projected and not peepholes else CELLS

    def weights(*shape: int, dtype: Any = np.int8, scale: float = 0.02) -> int:
        most = np.iinfo(dtype).max
        return w.constant(rng.integers(-most, most, shape).astype(dtype), scale=scale)

    def biases() -> int:
        return w.constant(rng.integers(-9999, 9999, CELLS).astype(np.int32), scale=0.001)

    how: dict[str, Any] = {"scale": 0.04, "zero": 7}
    x = w.input("int8", [BATCH, TIME, INPUTS], **how)
    first = [-1] if coupled else [weights(CELLS, INPUTS)]
    ins = [x, *first, *(weights(CELLS, INPUTS) for _ in range(3))]
    first = [-1] if coupled else [weights(CELLS, outputs)]
    ins += [*first, *(weights(CELLS, outputs) for _ in range(3))]
    for k in range(3):
        given = peepholes and not (coupled and k == 0)
        ins.append(weights(CELLS, dtype=np.int16, scale=2e-5) if given else -1)
    ins += [-1 if coupled else biases(), *(biases() for _ in range(3))]
    ins += [weights(outputs, CELLS, scale=0.01) if projected else -1]
    ins += [w.constant(rng.integers(-99, 99, outputs).astype(np.int32)) if projected else -1]
    state: dict[str, Any] = (
        {"scale": 0.01, "zero": -5} if projected else {"scale": 1 / 128, "zero": 3}
    )
    ins += [w.tensor("int8", [BATCH, outputs], variable=True, name="h", **state)]
    ins += [w.tensor("int16", [BATCH, CELLS], variable=True, name="c", scale=2.0**-11)]
    norms = (
        [weights(CELLS, dtype=np.int16, scale=1e-4) for _ in range(4)] if normalised else [-1] * 4
    )
    ins += norms
    inner = [w.tensor("int16", [0], scale=2.0**-12, name=f"inner{k}") for k in range(4)]
    inner.append(w.tensor("int8", [0], scale=1 / 128, zero=4 if projected else 3, name="hidden"))
    y = w.op(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        ins,
        w.tensor("int8", [BATCH, TIME, outputs], **state),
        intermediates=inner,
        version=1,
        activation=4,
        cell_clip=clip,
        proj_clip=clip / 2 if projected else 0.0,
    )
    return w.model([y]), rng.integers(-128, 128, (BATCH, TIME, INPUTS)).astype(np.int8)


def require_equal(data: bytes, x: Any) -> None:
    """The evaluator and compiled code have LiteRT's bytes."""
    states = first_states(data)
    (wanted,) = lite(data, x)
    found = evaluate(from_tflite(data), {"x0": x, **states})
    np.testing.assert_array_equal(found[0], wanted)
    for level in (0, 3):
        native = tw.compile(data, threads=1, opt_level=level).run({"x0": x, **states})
        for a, b in zip(native, found, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"coupled": True},
        {"peepholes": True, "clip": 0.5},
        {"projected": True, "clip": 0.5},
        {"coupled": True, "peepholes": True, "projected": True},
    ],
)
def test_lstm(how: dict[str, Any]) -> None:
    require_equal(*lstm(**how))


def svdf() -> tuple[bytes, Any]:
    rng = np.random.default_rng(1)
    w = Writer()
    x = w.input("int8", [2, 3], scale=0.05, zero=4)
    ins = [x, w.constant(rng.integers(-127, 128, (8, 3)).astype(np.int8), scale=0.02)]
    ins.append(w.constant(rng.integers(-32767, 32767, (8, 6)).astype(np.int16), scale=3e-5))
    ins.append(w.constant(rng.integers(-9999, 9999, 4).astype(np.int32), scale=1e-7))
    ins.append(w.tensor("int16", [2, 48], variable=True, name="state", scale=0.001))
    out = w.tensor("int8", [2, 4], scale=0.05, zero=-128)
    data = w.model([w.op("SVDF", ins, out, version=3, rank=2, activation=1)])
    return data, rng.integers(-128, 128, (2, 3)).astype(np.int8)


def test_svdf() -> None:
    require_equal(*svdf())


def test_answers_that_litert_gave() -> None:
    """Where LiteRT is not installed."""
    data, x = lstm(coupled=True, peepholes=True, projected=True)
    found = evaluate(from_tflite(data), {"x0": x, **first_states(data)})
    np.testing.assert_array_equal(found[0], RECORDED_LSTM)
    data, x = svdf()
    found = evaluate(from_tflite(data), {"x0": x, **first_states(data)})
    np.testing.assert_array_equal(found[0], RECORDED_SVDF)


def test_layer_normalisation_is_refused() -> None:
    data, _ = lstm(normalised=True)
    with pytest.raises(tw.UserError, match="layer normalisation is not supported"):
        from_tflite(data)
