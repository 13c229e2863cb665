"""Sizes and places that are inputs of a compiled model: any sign, any range, beside the peer."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import tilewright as tw
from tests.frontends.onnx.models import info, make, node
from tilewright.support.errors import UserError

ort: Any = pytest.importorskip("onnxruntime")
ort.set_default_logger_severity(4)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


X = np.random.default_rng(0).standard_normal((3, 7, 2)).astype(np.float32)


def peer_of(model: onnx.ModelProto) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def check(nodes: Sequence[Any], runs: Sequence[dict[str, Any]], outputs: Sequence[str]) -> None:
    """One model, compiled once at the lowest and the highest level, for all runs."""
    inputs = [info(n, a.dtype, a.shape) for n, a in runs[0].items()]
    model = make(nodes, inputs, outputs)
    session = peer_of(model)
    wanted = [_results(session, given) for given in runs]
    assert any(w is not None for w in wanted)
    for level in (0, 3):
        compiled = tw.compile(model, opt_level=level, threads=1)
        for given, want in zip(runs, wanted, strict=True):
            _compare(compiled, given, want)


def _results(session: Any, given: dict[str, Any]) -> list[Any] | None:
    """What the peer gives; None where it refuses."""
    try:
        return session.run(None, given)
    except Exception:
        return None


def _compare(compiled: Any, given: dict[str, Any], want: list[Any] | None) -> None:
    if want is None:
        with pytest.raises(UserError):
            compiled.run(given)
        return
    for g, w in zip(compiled.run(given), want, strict=True):
        assert g.shape == w.shape, given
        np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6, err_msg=str(given))


PLACES = [-(1 << 40), -8, -7, -3, -1, 0, 2, 6, 7, 9, 1 << 40]


@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_slices(step: int) -> None:
    nodes = [
        node("Constant", [], ["axes"], value_ints=[1]),
        node("Constant", [], ["steps"], value_ints=[step]),
        node("Slice", ["x", "a", "b", "axes", "steps"], ["s"]),
        node("Neg", ["s"], ["y"]),
        node("ReduceSum", ["s", "axes"], ["t"]),
    ]
    runs = [{"x": X, "a": ints(a), "b": ints(b)} for a, b in itertools.product(PLACES, PLACES)]
    check(nodes, runs, ["y", "t"])


def test_slices_from_a_place_on() -> None:
    """The end is no input: what is taken depends on the start alone, and on the size of x."""
    nodes = [
        node("Constant", [], ["axes"], value_ints=[1]),
        node("Constant", [], ["end"], value_ints=[(1 << 63) - 1]),
        node("Slice", ["x", "a", "end", "axes"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    check(nodes, [{"x": X, "a": ints(a)} for a in PLACES], ["y"])


def test_axes_tell_how_many_bounds_a_slice_has() -> None:
    """The lengths of the bounds themselves are known when the model runs."""
    model = make(
        [node("Slice", ["x", "a", "b", "axes"])],
        [info("x", shape=["n", 4]), info("a", "int64", ["k"]), info("b", "int64", ["k"])],
        ["y"],
        {"axes": np.array([1])},
    )
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    compiled = tw.compile(model)
    np.testing.assert_array_equal(compiled.run([x, ints(1), ints(3)])[0], x[:, 1:3])
    with pytest.raises(UserError):
        compiled.run([x, ints(1, 0), ints(3, 1)])


def test_padding_and_cropping() -> None:
    nodes = [node("Pad", ["x", "p"], ["q"]), node("Neg", ["q"], ["y"])]
    pairs = itertools.product([-2, -1, 0, 3], [-3, -1, 0, 2])
    check(nodes, [{"x": X, "p": ints(0, a, 0, 0, b, 0)} for a, b in pairs], ["y"])


def test_shapes() -> None:
    nodes = [node("Reshape", ["x", "s"], ["r"]), node("Neg", ["r"], ["y"])]
    shapes = [(6, 7), (-1, 7), (6, -1), (0, 14), (-1, 1), (0, -1), (5, 8), (-1, 5), (-1, -1)]
    check(nodes, [{"x": X, "s": ints(*s)} for s in shapes], ["y"])


def test_expansion() -> None:
    nodes = [node("Expand", ["x", "s"], ["e"]), node("Neg", ["e"], ["y"])]
    shapes = [(3, 7, 2), (1, 1, 1), (1, 7, 2), (2, 7, 2)]
    check(nodes, [{"x": X, "s": ints(*s)} for s in shapes], ["y"])


def test_tiles() -> None:
    nodes = [node("Tile", ["x", "r"], ["t"]), node("Neg", ["t"], ["y"])]
    counts = [(1, 1, 1), (2, 1, 3), (0, 1, 1), (1, 4, 1)]
    check(nodes, [{"x": X, "r": ints(*c)} for c in counts], ["y"])


def test_ranges() -> None:
    nodes = [node("Range", ["a", "b", "c"], ["r"]), node("Neg", ["r"], ["y"])]
    places, steps = [-5, -1, 0, 3, 8], [-2, -1, 1, 3]
    runs = itertools.product(places, places, steps)
    check(nodes, [dict(zip("abc", map(np.array, r), strict=True)) for r in runs], ["y"])


def test_filled_shapes() -> None:
    nodes = [node("ConstantOfShape", ["s"], ["z"]), node("Add", ["z", "x"], ["y"])]
    runs = [{"s": ints(*s), "x": X[:1, :1, 0]} for s in [(2, 3), (0, 4), (1, 1), (-1, 3)]]
    check(nodes, runs, ["y"])


def test_triangles() -> None:
    nodes = [node("Trilu", ["x", "k"], ["t"], upper=1), node("Neg", ["t"], ["y"])]
    square = X[:, :2]
    check(nodes, [{"x": square, "k": np.array(k)} for k in (-9, -2, -1, 0, 1, 5)], ["y"])


def test_best_elements() -> None:
    nodes = [node("TopK", ["x", "k"], ["v", "i"], axis=1), node("Neg", ["v"], ["y"])]
    check(nodes, [{"x": X, "k": ints(k)} for k in (-1, 0, 1, 4, 7, 8)], ["y", "i"])


def test_parts() -> None:
    nodes = [node("Split", ["x", "s"], ["a", "b"], axis=1), node("Neg", ["b"], ["y"])]
    runs = [{"x": X, "s": ints(a, b)} for a, b in [(3, 4), (0, 7), (7, 0), (3, 3), (-1, 8)]]
    check(nodes, runs, ["a", "y"])


def test_depths() -> None:
    nodes = [node("OneHot", ["i", "d", "v"], ["h"]), node("Neg", ["h"], ["y"])]
    values = np.array([0, 1], np.float32)
    runs = [{"i": ints(0, 2, -1), "d": np.array(d), "v": values} for d in (3, 5, 1)]
    check(nodes, runs, ["y"])


def test_resized_images() -> None:
    nodes = [
        node("Resize", ["x", "", "", "s"], ["r"], mode="nearest"),
        node("Neg", ["r"], ["y"]),
    ]
    sizes = [(1, 3, 14, 4), (1, 3, 3, 1), (1, 3, 7, 2)]
    check(nodes, [{"x": X[None], "s": ints(*s)} for s in sizes], ["y"])


def test_sizes_that_are_rounded_on_their_way() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        scaled (float[1, 4, h, w] x) => (float[1, 4, p, q] y)
        <float[1] factor = {0.75}, int64[2] head = {1, 4}> {
            extents = Shape <start = 2> (x)
            real = Cast <to = 1> (extents)
            shrunk = Mul (real, factor)
            up = Ceil (shrunk)
            whole = Cast <to = 7> (up)
            sizes = Concat <axis = 0> (head, whole)
            small = Resize <mode = "nearest"> (x, , , sizes)
            y = Softmax <axis = 3> (small)
        }""")
    compiled, peer = tw.compile(model, threads=1), peer_of(model)
    for extents in ((7, 5), (8, 16), (1, 3)):
        x = np.random.default_rng(0).standard_normal((1, 4, *extents)).astype(np.float32)
        np.testing.assert_allclose(compiled(x), peer.run(None, {"x": x})[0], rtol=1e-5)


def test_two_ways_to_one_size_that_is_read_meet() -> None:
    """A signal of a length that is read, and one that went down and up again by a rounded scale."""

    def resized(x: str, y: str, scale: float) -> list[Any]:
        scales = node("Constant", [], [f"{y}_scale"], value_floats=[1.0, 1.0, scale])
        return [scales, node("Resize", [x, "", f"{y}_scale"], [y], mode="linear")]

    nodes = [
        node("Constant", [], ["zero"], value_int=0),
        node("Constant", [], ["one"], value_int=1),
        node("Constant", [], ["row"], value_ints=[1, 1, -1]),
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Range", ["zero", "most", "one"], ["range"]),
        node("Cast", ["range"], ["floats"], to=onnx.TensorProto.FLOAT),
        node("Reshape", ["floats", "row"], ["signal"]),
        *resized("signal", "long", 30.0),
        *resized("long", "short", 1 / 15),
        *resized("short", "again", 15.0),
        node("Mul", ["again", "long"], ["y"]),
    ]
    check(nodes, [{"x": ints(3, 5, 2)}, {"x": ints(1, 7, 1)}], ["y"])
