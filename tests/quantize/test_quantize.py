"""Models quantized with data: right, within their budget, and the same for other tools."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.quantize.networks import convolutional, normal, operators, perceptron, upsampling
from tilewright.graph import Call, Module, evaluate, passes, verify

ort: Any = pytest.importorskip("onnxruntime")
ort.set_default_logger_severity(4)

IMAGES = normal(40, 8, 9, 9, seed=20)
ROWS = normal(64, 64, seed=21)


def relative(ours: Any, theirs: Any) -> float:
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())


def worst(ours: Any, theirs: Any, samples: Any) -> float:
    return max(relative(ours.run([x[None]])[0], theirs.run([x[None]])[0]) for x in samples)


@cache
def _convolutional() -> Any:
    return tw.compile(convolutional())


def unquantized(images: Any) -> Any:
    """The answers of the convolutional network as it is."""
    return _convolutional().run([images])


@pytest.mark.parametrize("method", ["mse", "minmax", "percentile", "entropy"])
def test_a_convolutional_network(method: str, tmp_path: Path) -> None:
    module = convolutional()
    q = tw.quantize(module, IMAGES, method=method)
    verify(q)
    assert [r.precision for r in q.report.layers] == ["int8"] * 3
    assert "batch_norm" not in operators(q), "folded into weights"
    made = tw.compile(q)
    (ours,), (want,) = made.run([IMAGES]), unquantized(IMAGES)
    assert relative(ours, want) < 0.05 and q.report.error is not None
    if tw.Target.of("llvm").has_byte_products:
        assert "uint8 × " in made.precision
    np.testing.assert_allclose(ours, evaluate(q, [IMAGES])[0], atol=0.02 * np.abs(want).max())
    # ONNX Runtime rounds some sums the other way, by one step of a byte.
    q.save(tmp_path / "q.onnx")
    session = ort.InferenceSession(tmp_path / "q.onnx")
    assert relative(session.run(None, {"x": IMAGES})[0], ours) < 0.01
    again = tw.compile(str(tmp_path / "q.onnx"))
    np.testing.assert_allclose(again.run([IMAGES])[0], ours, atol=1e-5)


def test_grouped_and_transposed_convolutions(tmp_path: Path) -> None:
    module, images = upsampling(), normal(12, 32, 8, 8, seed=7)
    q = tw.quantize(module, images)
    assert [r.precision for r in q.report.layers] == ["int8"] * 3
    changed = passes.quantized_products(tw.Target.of("llvm -mcpu=cascadelake"))(q)
    assert "conv_transpose" not in operators(changed)
    convs = [b.expr for b in changed.main.body if isinstance(b.expr, Call)]
    types = [c.args[0].dtype.bits for c in convs if c.op.name == "conv" and c.args[0] is not None]
    assert types == [8, 8, 8]
    (ours,), (want,) = tw.compile(q).run([images]), tw.compile(module).run([images])
    assert relative(ours, want) < 0.05
    q.save(tmp_path / "q.onnx")
    # Its own products of bytes saturate where a processor has no dot products.
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(tmp_path / "q.onnx", options)
    assert relative(session.run(None, {"x": images})[0], ours) < 1e-3


@pytest.mark.parametrize("cpu", ["cascadelake", "neoverse-n1"])
@pytest.mark.parametrize("make", [convolutional, perceptron])
def test_products_are_of_bytes_where_machines_have_them(make: Any, cpu: str) -> None:
    data = IMAGES if make is convolutional else ROWS
    q = tw.quantize(make(), data, equalize=False)
    changed = passes.quantized_products(tw.Target.of(f"llvm -mcpu={cpu}"))(q)
    calls = [b.expr for b in changed.main.body if isinstance(b.expr, Call)]
    products = [c for c in calls if c.op.name in ("conv", "gemm", "matmul", "matmul_integer")]
    assert products
    for call in products:
        assert all(a is None or a.dtype.bits == 8 for a in call.args[:2]), call.op.name


def test_a_budget_holds_on_data_that_was_not_seen() -> None:
    module = perceptron()
    free = tw.quantize(module, ROWS)
    unseen, original = normal(100, 64, seed=99), tw.compile(module)
    assert free.report.error is not None
    for share in (0.75, 0.5, 0.2):
        budget = free.report.error.relative * share
        q = tw.quantize(module, ROWS, budget=budget)
        assert worst(tw.compile(q), original, unseen) <= budget
        assert q.report.error is not None and q.report.error.relative <= budget
        assert any(r.reason == "kept for the budget" for r in q.report.layers)
    curve = free.report.curve
    assert curve[0].share == 1 and curve[-1].error.relative == 0


def test_the_error_is_what_samples_show_one_by_one() -> None:
    module, held_out = perceptron(), ROWS[3::4]
    q = tw.quantize(module, ROWS)
    assert q.report.error is not None and q.report.held_out
    assert q.report.error.relative == pytest.approx(
        worst(tw.compile(q), tw.compile(module), held_out), rel=1e-3
    )
    noise = [r.sqnr for r in q.report.layers]
    assert all(n is not None and n >= q.report.error.sqnr - 1 for n in noise)


def scales(module: Module) -> list[float]:
    calls = [b.expr for b in module.main.body if isinstance(b.expr, Call)]
    found = [c.args[1] for c in calls if c.op.name == "quantize"]
    return [float(v.constant) for v in found if v is not None and v.constant is not None]


def test_ranges_do_not_depend_on_batches(tmp_path: Path) -> None:
    module = perceptron()
    (tmp_path / "parts").mkdir()
    for k, part in enumerate(np.array_split(ROWS, 3)):
        np.savez(tmp_path / "parts" / f"{k}.npz", x=part)
    np.savez(tmp_path / "all.npz", x=ROWS)
    sources: list[Any] = [
        {"x": ROWS},
        [{"x": row[None]} for row in ROWS],
        ({"x": part} for part in np.array_split(ROWS, 5)),
        (part for part in np.array_split(ROWS, 2)),
        [{"x": ROWS[:0]}, [ROWS]],
        str(tmp_path / "all.npz"),
        tmp_path / "parts",
    ]
    want = scales(tw.quantize(module, ROWS, equalize=False))
    for source in sources:
        assert scales(tw.quantize(module, source, equalize=False)) == want


def test_outliers_go_into_weights() -> None:
    module = perceptron(spread=8.0)
    plain = tw.quantize(module, ROWS, equalize=False, validation=ROWS)
    smooth = tw.quantize(module, ROWS, validation=ROWS)
    assert smooth.report.equalized and smooth.report.error and plain.report.error
    assert smooth.report.error.sqnr > plain.report.error.sqnr + 3


def test_values_that_branches_read_keep_their_size() -> None:
    b = tw.graph.Builder()
    x, flag = b.input("x", "f32", ("n", 64)), b.input("flag", "bool", ())
    scale = (8.0 ** normal(64, seed=1)).astype(np.float32)
    y = b.layer_norm(x, scale, normal(64, seed=2))
    z = b.matmul(y, normal(64, 32, seed=3))
    taken = b.branch(flag, lambda: b.relu(y), lambda: b.neg(y))
    b.output(z, taken, names=["z", "taken"])
    module = b.build()
    data = [{"x": ROWS[k : k + 1], "flag": np.array(k % 2 == 0)} for k in range(16)]
    q = tw.quantize(module, data)
    assert not q.report.equalized
    for sample in data[:2]:
        np.testing.assert_allclose(
            tw.compile(q).run(sample)[1], tw.compile(module).run(sample)[1], rtol=1e-5
        )


def test_layers_can_be_kept_and_ranges_symmetric() -> None:
    module = perceptron()
    name = tw.quantize(module, ROWS).report.layers[0].name
    q = tw.quantize(module, ROWS, keep=[name], symmetric=True)
    assert operators(q).count("quantize") == 1
    calls = [b.expr for b in q.main.body if isinstance(b.expr, Call)]
    (zero,) = [c.args[2] for c in calls if c.op.name == "quantize"]
    assert zero is not None and zero.dtype.name == "int8" and zero.constant == 0
    with pytest.raises(tw.UserError, match="there is no layer nothing to keep"):
        tw.quantize(module, ROWS, keep=["nothing"])


def test_models_of_fixed_sizes_take_samples_one_by_one() -> None:
    module = passes.bind_shapes(perceptron(), {"x": (2, 64)})
    q = tw.quantize(module, ROWS)
    assert q.report.held_out and q.report.error is not None
    assert tw.compile(q).run([ROWS[:2]])[0].shape == (2, 24)


def test_what_cannot_be_calibrated_with_is_refused() -> None:
    module, bad = perceptron(), ROWS.copy()
    bad[5, 7] = np.nan
    for data, message in [
        (bad, "batch 0: input x holds NaN or infinity"),
        (np.full_like(ROWS, np.inf), "holds NaN or infinity"),
        (ROWS[:0], "there is no calibration data"),
        ([], "there is no calibration data"),
        ({"z": ROWS}, "batch 0 holds z, which is no input"),
        ([[ROWS, ROWS]], "batch 0 holds 2 arrays"),
        (ROWS[0], "has the shape"),
        (ROWS.astype("U4"), "input x is"),
        (5, "cannot calibrate with int"),
        ("no/such/file.npz", "there is no file"),
        (None, "cannot quantize without calibration data"),
    ]:
        with pytest.raises(tw.UserError, match=message):
            tw.quantize(module, data)
    q = tw.quantize(module, ROWS)
    with pytest.raises(tw.UserError, match="the model is quantized already"):
        tw.quantize(q, ROWS)


def test_random_data_is_asked_for_by_name_and_warned_of() -> None:
    with pytest.warns(UserWarning, match="ranges will be wrong"):
        q = tw.quantize(perceptron(), "random")
    assert q.report.error is not None
    with pytest.warns(UserWarning, match="too few samples"):
        q = tw.quantize(perceptron(), ROWS[:1])
    assert not q.report.held_out


def test_constant_inputs_and_models_without_layers() -> None:
    q = tw.quantize(perceptron(), np.ones((8, 64), np.float32))
    assert q.report.error is not None and q.report.error.relative < 0.05
    b = tw.graph.Builder()
    b.output(b.relu(b.input("x", "f32", ("n", 4))))
    module = b.build()
    left = tw.quantize(module, np.ones((8, 4), np.float32))
    assert operators(left) == ["relu"] and not left.report.layers


def test_the_report_is_a_page(tmp_path: Path) -> None:
    q = tw.quantize(perceptron(), ROWS, budget=0.5)
    q.save_report(tmp_path / "q.html")
    page = (tmp_path / "q.html").read_text(encoding="utf-8")
    assert "<svg" in page and "budget 50.00%" in page and "int8" in page
    assert q.report.summary in str(q.report) and q.report.data()["share"] == pytest.approx(1)
