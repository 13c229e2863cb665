"""Sound models that damaged ones are made of, as the tables of their files."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.frontends.tflite.flatbuffers_writer import Fields
from tests.frontends.tflite.writer import Writer


def network() -> Fields:
    """A quantized network with many kinds of operators."""
    rng = np.random.default_rng(1)
    w = Writer()
    how: dict[str, Any] = {"scale": 0.05, "zero": 3}
    x = w.input("int8", [1, 8, 8, 4], name="image", signature=[-1, 8, 8, 4], **how)
    weights = w.constant(rng.integers(-99, 99, (8, 3, 3, 4)).astype(np.int8), scale=[0.01] * 8)
    bias = w.constant(np.arange(8, dtype=np.int32), scale=[0.0005] * 8)
    stride: dict[str, Any] = {"stride_w": 1, "stride_h": 1}
    y = w.op("CONV_2D", [x, weights, bias], w.tensor("int8", [1, 8, 8, 8], **how), **stride)
    pool: dict[str, Any] = {"stride_w": 2, "stride_h": 2, "filter_w": 2, "filter_h": 2}
    y = w.op("MAX_POOL_2D", [y], w.tensor("int8", [1, 4, 4, 8], **how), **pool)
    y = w.op("DEQUANTIZE", [y], w.tensor("float32", [1, 4, 4, 8]))
    shape = w.constant(np.array([-1, 128], np.int32))
    y = w.op("RESHAPE", [y, shape], w.tensor("float32", [1, 128]))
    begin, end, step = (w.constant(np.array(v, np.int32)) for v in ([0, 4], [0, 100], [1, 2]))
    y = w.op("STRIDED_SLICE", [y, begin, end, step], w.tensor("float32", [1, 48]), begin=1, end=1)
    parts = [w.tensor("float32", [1, 24]) for _ in range(2)]
    w.op("SPLIT", [w.constant(np.array(1, np.int32)), y], parts, count=2)
    y = w.op("CONCATENATION", parts[::-1], w.tensor("float32", [1, 48]), axis=1)
    return w.fields([w.op("SOFTMAX", [y], w.tensor("float32", [1, 48]), beta=1.0)])


def loops() -> Fields:
    """Subgraphs, a variable and a loop."""
    w = Writer()
    x = w.input("float32", [2, 3])
    state = w.tensor("float32", [2, 3], variable=True, name="state")
    y = w.op("ADD", [x, state], w.tensor("float32", [2, 3]))
    i = w.constant(np.array([0], np.int32))
    outs = [w.tensor("int32", [1]), w.tensor("float32", [2, 3])]
    w.graph(w.op("WHILE", [i, y], outs, cond=1, body=2))
    i, x = w.input("int32", [1]), w.input("float32", [2, 3])
    limit = w.constant(np.array([3], np.int32))
    w.graph([w.op("LESS", [i, limit], w.tensor("bool", [1]))])
    i, x = w.input("int32", [1]), w.input("float32", [2, 3])
    one = w.constant(np.array([1], np.int32))
    after = w.op("ADD", [i, one], w.tensor("int32", [1]))
    axes = w.constant(np.array([1], np.int32))
    least = w.op("MEAN", [x, axes], w.tensor("float32", [2, 1]), keep_dims=True)
    w.graph([after, w.op("SUB", [x, least], w.tensor("float32", [2, 3]))])
    return w.fields(main=0)


SEEDS = {"network": network, "loops": loops}
