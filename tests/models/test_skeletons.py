"""Models without weights, which benchmarks fill again by numbers drawn anew."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

_PATH = Path(__file__).parents[2] / "benchmarks" / "whole_models" / "skeletons.py"
_SPEC = spec_from_file_location("skeletons", _PATH)
assert _SPEC is not None and _SPEC.loader is not None
skeletons = module_from_spec(_SPEC)
_SPEC.loader.exec_module(skeletons)

_LAYERS = 12


def _filters_with_large_factors(path: Path) -> None:
    """Convolutions whose filters have the factors of norms that divided by small deviations."""
    random = np.random.default_rng(0)
    nodes, weights, read = [], [], "x"
    for k in range(_LAYERS):
        filters = random.normal(0, 4.0, (16, 16, 3, 3)).astype(np.float32)
        weights.append(numpy_helper.from_array(filters, f"w{k}"))
        nodes.append(helper.make_node("Conv", [read, f"w{k}"], [f"c{k}"], pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{k}"], [f"r{k}"]))
        read = f"r{k}"
    size = [1, 16, 8, 8]
    x, y = (
        helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, size)
        for n in ("x", f"r{_LAYERS - 1}")
    )
    graph = helper.make_graph(nodes, "filters", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), str(path))


def test_answers_of_drawn_filters_fit_half_precision(tmp_path: Path) -> None:
    _filters_with_large_factors(tmp_path / "whole.onnx")
    skeletons.strip(tmp_path / "whole.onnx", tmp_path / "stripped.onnx")
    assert (tmp_path / "stripped.onnx").stat().st_size < 10_000
    x = np.random.default_rng(1).normal(size=(1, 16, 8, 8)).astype(np.float32)
    (y,) = ReferenceEvaluator(skeletons.filled(tmp_path / "stripped.onnx")).run(None, {"x": x})
    assert 1e-2 < np.asarray(y).max() < 1e2


def test_smaller_filters_keep_their_size(tmp_path: Path) -> None:
    filters = np.random.default_rng(0).normal(0.01, 0.02, (16, 16, 3, 3)).astype(np.float32)
    graph = helper.make_graph([], "filters", [], [], [numpy_helper.from_array(filters, "w")])
    onnx.save(helper.make_model(graph), str(tmp_path / "whole.onnx"))
    skeletons.strip(tmp_path / "whole.onnx", tmp_path / "stripped.onnx")
    drawn = skeletons.filled(tmp_path / "stripped.onnx").graph.initializer[0]
    array = numpy_helper.to_array(drawn)
    np.testing.assert_allclose([array.mean(), array.std()], [0.01, 0.02], rtol=0.1)
