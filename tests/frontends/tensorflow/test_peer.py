"""Every operator beside TensorFlow itself, where it is installed: SavedModels, frozen graphs with
loops of both generations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.frontends.tensorflow.peer_cases import cases
from tilewright.frontends import UnspecialisedError
from tilewright.frontends.tensorflow import from_tensorflow
from tilewright.graph import evaluate

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf: Any = pytest.importorskip("tensorflow")
CASES = cases(tf)


def frozen(function: Any, lower: bool) -> bytes:
    from tensorflow.python.framework.convert_to_constants import (  # pyright: ignore
        convert_variables_to_constants_v2,
    )

    made = convert_variables_to_constants_v2(function, lower_control_flow=lower)
    return made.graph.as_graph_def().SerializeToString()


def results(source: Any, given: dict[str, Any]) -> list[Any]:
    try:
        module = from_tensorflow(source)
    except UnspecialisedError as error:
        shapes = {n: np.shape(given[n]) for n in error.shapes}
        module = from_tensorflow(source, shapes, {n: given[n] for n in error.values})
    return evaluate(module, [given[p.name] for p in module.main.params])


def close(found: list[Any], wanted: list[Any], atol: float = 2e-5) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert np.asarray(a).dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=atol)


@pytest.mark.parametrize("is_open", [False, True], ids=["fixed", "open"])
@pytest.mark.parametrize("name", CASES)
def test_operators(name: str, is_open: bool) -> None:
    function, inputs = CASES[name]
    specs = [
        tf.TensorSpec([None if is_open and k == 0 else d for k, d in enumerate(a.shape)], a.dtype)
        for a in inputs
    ]
    made = tf.function(lambda *a: tf.nest.flatten(function(*a))).get_concrete_function(*specs)
    wanted = [np.asarray(v) for v in made(*(tf.constant(a) for a in inputs))]
    names = [t.op.name for t in made.inputs]
    given = dict(zip(names, inputs, strict=True))
    graphs = [frozen(made, lower=False)]
    if b"While" in graphs[0] or b"If" in graphs[0]:
        graphs.append(frozen(made, lower=True))
    for graph in graphs:
        outputs = [t.name for t in made.outputs]
        known = set(from_outputs(graph))
        found = results_of(graph, given, [o for o in outputs if o.split(":")[0] in known])
        # TensorFlow rounds the weights of cubic interpolation to a table of 1024 places.
        close(found, wanted, 5e-3 if "Bicubic" in name else 2e-5)


def from_outputs(graph: bytes) -> list[str]:
    parsed = tf.compat.v1.GraphDef.FromString(graph)
    return [n.name for n in parsed.node]


def results_of(source: Any, given: dict[str, Any], outputs: list[str]) -> list[Any]:
    shapes: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for _ in range(3):
        try:
            module = from_tensorflow(source, shapes, values, outputs=outputs)
            return evaluate(module, [given[p.name] for p in module.main.params])
        except UnspecialisedError as error:
            shapes |= {n: np.shape(given[n]) for n in error.shapes}
            values |= {n: given[n] for n in error.values}
    raise AssertionError("inputs are asked for again and again")


def _keras_cases() -> dict[str, Any]:
    keras = pytest.importorskip("keras")
    from tests.frontends.keras.peer_cases import cases as keras_cases

    return keras_cases(keras)


@pytest.mark.parametrize(
    "name",
    "sequential nested shared transformer masked_lstm initial_state cross_attention LSTM_all "
    "bidirectional_GRU_concat gru_reset_before SimpleRNN_back separable2d conv1d_causal group_norm "
    "resizing embedding time_distributed conv2d_transpose_same_3_2_None layer_norm prelu".split(),
)
def test_saved_models(name: str, tmp_path: Path) -> None:
    from tests.frontends.keras.test_peer import arrays, expected, randomized

    model = randomized(_keras_cases()[name]())
    given = arrays(model)
    wanted = expected(model, given)
    model.export(str(tmp_path), verbose=False)
    module = from_tensorflow(tmp_path)
    by_name = {p.name: a for p in module.main.params for a in given if _fits(p, a)}
    if len(given) > 1:
        loaded = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
        keys = sorted(loaded.structured_input_signature[1])
        by_name = dict(zip(keys, _in_order(model, given, keys), strict=True))
        outputs = loaded(**{k: tf.constant(v) for k, v in by_name.items()})
        wanted = [np.asarray(outputs[k]) for k in sorted(outputs)]
    close(evaluate(module, [by_name[p.name] for p in module.main.params]), wanted)


def _fits(param: Any, array: Any) -> bool:
    return param.ndim == array.ndim


def _in_order(model: Any, given: list[Any], keys: list[str]) -> list[Any]:
    by_name = dict(zip([x.name for x in model.inputs], given, strict=True))
    return [by_name[k] if k in by_name else given[i] for i, k in enumerate(keys)]
