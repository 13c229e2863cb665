"""Networks that are refused."""

from __future__ import annotations

import pytest

import tilewright as tw
from tests.frontends.caffe import networks as nets
from tilewright.frontends import from_caffe, read_model

INPUT = 'input: "x" input_shape { dim: 1 dim: 4 dim: 6 dim: 6 }\n'


def test_layers_that_are_missing_are_told_together() -> None:
    text = 'layer { name: "d" type: "Data" top: "x" } layer { name: "p" type: "Python" top: "y" }'
    with pytest.raises(tw.UserError, match=r"2 of them[^$]*Data: d; use the network's deploy"):
        read_model((INPUT + text).encode())


@pytest.mark.parametrize(
    ("layer", "match"),
    [
        ('type: "ReLU" bottom: "z"', "it reads the blob z"),
        ('type: "Pooling" bottom: "x" pooling_param { pool: STOCHASTIC }', "STOCHASTIC"),
        ('type: "Pooling" bottom: "x" pooling_param { kernel_size: 0 }', "cannot slide"),
        ('type: "Pooling" bottom: "x"', "kernel_size is missing"),
        ('type: "Convolution" bottom: "x" convolution_param { num_output: 2 kernel_size: 3 }',
         "0 blobs of weights are given"),
        ('type: "Softmax" bottom: "x" softmax_param: 3', "softmax_param is no message"),
        ('type: "Concat" bottom: "x" concat_param { axis: 7 }', "axis 7 of a blob with 4"),
        ('type: "Eltwise" bottom: "x"', "it has 1 bottoms"),
        ('type: "LRN" bottom: "x" lrn_param { local_size: "a" }', "takes a whole number"),
        ('type: "Slice" bottom: "x" top: "b" top: "c"', "4 elements in 3 equal parts"),
    ],
)  # fmt: skip
def test_layers_that_do_not_fit(layer: str, match: str) -> None:
    text = f'{INPUT} layer {{ name: "l" top: "y" {layer} }}'
    with pytest.raises(tw.UserError, match=match) as error:
        from_caffe(text.encode())
    assert "at layer l (" in str(error.value)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("layer {", "ends too early"),
        ("layer }", "stands on line 1"),
        ("name 3", "stands on line 1"),
        ('name: "a', "line 1 has"),
        ("layer { " * 40, "nested more than 32 deep"),
        ("name: [1, 2", "it ends on line 1"),
        ('name: "a"', "has no inputs"),
        ('input: "x"', "1 inputs and 0 shapes"),
        (INPUT, "has no outputs"),
        ("layers { layer { } }", "of the first generation"),
    ],
)
def test_texts_that_are_no_networks(text: str, match: str) -> None:
    with pytest.raises(tw.UserError, match=match):
        from_caffe(text.encode())


def test_weights_that_do_not_fit() -> None:
    net = nets.end(nets.Net(1, 3, 8, 8))
    text, data = net.files()
    with pytest.raises(tw.UserError, match="cannot be read"):
        from_caffe(text, data[:-3])
    with pytest.raises(tw.UserError, match="HDF5"):
        from_caffe(text, b"\x89HDF\r\n")
    for name in net.blobs:
        net.blobs[name] = [a[:-1] for a in net.blobs[name]]
    with pytest.raises(tw.UserError, match=r"the layer needs \[10, 3\]"):
        from_caffe(*net.files())
