"""Symbols of several versions, their files, and networks that are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.frontends.mxnet.networks import Net, classifier, params
from tilewright.frontends import UnspecialisedError, from_mxnet, read_model
from tilewright.graph import evaluate

SHAPES = {"data": [2, 3, 6, 6]}


def expected(net: Net, x: np.ndarray) -> np.ndarray:  # pyright: ignore
    a = {k.split(":")[1]: v for k, v in net.arrays.items()}
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    seen = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    y = np.einsum("nchwij,ocij->nohw", seen, a["conv_weight"]) + a["conv_bias"][:, None, None]
    mean, variance = (a[f"bn_moving_{k}"][:, None, None] for k in ("mean", "var"))
    y = np.maximum((y - mean) / np.sqrt(variance + 1e-3) + a["bn_beta"][:, None, None], 0)
    y = y.reshape(2, 4, 3, 2, 3, 2).max((3, 5)).reshape(2, -1)
    e = np.exp(y @ a["fc_weight"].T + a["fc_bias"])
    return e / e.sum(1, keepdims=True)


@pytest.mark.parametrize(
    ("keys", "version"), [("attrs", 3), ("attrs", 2), ("attr", 1), ("param", 0)]
)
def test_versions(keys: str, version: int) -> None:
    """Attributes under three names; states that old symbols do not list; four forms of arrays."""
    net, head = classifier(keys)
    text, data = net.files(head, version=version)
    module = read_model(text, SHAPES, params=data)
    assert [p.name for p in module.main.params] == ["data"]
    assert [r.name for r in module.main.results] == ["softmax_output"]
    x = np.random.default_rng(1).random((2, 3, 6, 6), dtype=np.float32)
    np.testing.assert_allclose(evaluate(module, [x])[0], expected(net, x), rtol=1e-4, atol=1e-6)


def test_native_and_built_when_it_runs(tmp_path: Path) -> None:
    """Without shapes the model is built for those of the first run; of all epochs, the last."""
    net, head = classifier()
    text, data = net.files(head)
    (tmp_path / "net-symbol.json").write_bytes(text)
    (tmp_path / "net-0002.params").write_bytes(b"of another epoch")
    (tmp_path / "net-0010.params").write_bytes(data)
    model = tw.compile(tmp_path / "net-symbol.json", opt_level=1)
    x = np.random.default_rng(2).random((2, 3, 6, 6), dtype=np.float32)
    np.testing.assert_allclose(model.run([x])[0], expected(net, x), rtol=1e-4, atol=1e-6)


def test_shapes_that_are_missing() -> None:
    text, data = classifier()[0].files(14)
    with pytest.raises(UnspecialisedError, match=r"does not declare the shapes of data"):
        read_model(text, params=data)
    net = Net()
    net.node("relu", net.var("x", __shape__="(2, 3)", __dtype__=2))
    (param,) = from_mxnet(net.files(1)[0]).main.params
    assert str(param.type) == "f16[2, 3]"


def test_operators_that_are_missing_are_told_together() -> None:
    net = Net()
    x = net.node("CTCLoss", net.node("Correlation", net.var("x")))
    with pytest.raises(tw.UserError, match=r"2 of them[^$]*Correlation"):
        from_mxnet(net.files(x)[0], None, {"x": [1]})


@pytest.mark.parametrize(
    ("op", "attrs", "match"),
    [
        ("Convolution", {"kernel": "(3, 3)"}, "it has 1 operands"),
        ("Pooling", {"kernel": "(0, 1)"}, "cannot slide"),
        ("Activation", {"act_type": "nothing"}, "the activation nothing"),
        ("Activation", {}, "the attribute act_type is missing"),
        ("Reshape", {"shape": "(-1, -1)"}, "more than one extent open"),
        ("Reshape", {"shape": "(-9,)"}, "has the code -9"),
        ("SliceChannel", {"num_outputs": 5}, "4 elements in 5 equal parts"),
        ("sum", {"axis": "7"}, "axis 7 of 4 dimensions"),
        ("Cast", {"dtype": "str"}, "dtype is str"),
        ("_plus_scalar", {"scalar": "x"}, "it takes a number"),
    ],
)
def test_nodes_that_do_not_fit(op: str, attrs: dict[str, str], match: str) -> None:
    net = Net()
    node = net.node(op, net.var("x"), name="n", **attrs)
    with pytest.raises(tw.UserError, match=match) as error:
        from_mxnet(net.files(node)[0], None, {"x": [1, 4, 6, 6]})
    assert f"at node n ({op})" in str(error.value)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"{", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b'{"nodes": []}', "has no nodes"),
        (b'{"nodes": [{"op": "null", "name": "x"}], "heads": [[1, 0]]}', "there is none"),
        (b'{"nodes": [{"op": "null", "name": "x"}]}', "heads of the symbol are missing"),
        (b'{"nodes": [{"op": "relu", "name": "x", "inputs": [[0, 0]]}]}', "there is none"),
        (b'{"nodes": [{"op": 3, "name": "x"}]}', "no operator"),
    ],
)
def test_texts_that_are_no_symbols(text: bytes, match: str) -> None:
    with pytest.raises(tw.UserError, match=match):
        from_mxnet(text)


def test_parameters_that_do_not_fit() -> None:
    net, head = classifier()
    text, data = net.files(head)
    with pytest.raises(tw.UserError, match="end too early"):
        from_mxnet(text, data[:-5], SHAPES)
    with pytest.raises(tw.UserError, match="no file of MXNet"):
        from_mxnet(text, bytes(64), SHAPES)
    sparse = bytearray(params({"a": np.zeros(2, np.float32)}))
    sparse[28] = 1
    with pytest.raises(tw.UserError, match="is sparse"):
        from_mxnet(text, bytes(sparse), SHAPES)
