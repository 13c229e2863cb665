"""Reductions, softmax, searches along an axis."""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.frontends.onnx.writing.table import operand, writes
from tilewright.frontends.onnx.writing.writer import Writer
from tilewright.graph import Call

_REDUCTIONS: Final = {
    "l1": "ReduceL1",
    "l2": "ReduceL2",
    "log_sum": "ReduceLogSum",
    "log_sum_exp": "ReduceLogSumExp",
    "max": "ReduceMax",
    "mean": "ReduceMean",
    "min": "ReduceMin",
    "prod": "ReduceProd",
    "sum": "ReduceSum",
    "sum_square": "ReduceSumSquare",
}
_ALONG: Final = {"softmax": "Softmax", "log_softmax": "LogSoftmax", "hardmax": "Hardmax"}


@writes(*_REDUCTIONS)
def reduction(w: Writer, call: Call, outputs: list[str]) -> None:
    axes, keepdims = call.attrs["axes"], int(call.attrs["keepdims"])
    x = operand(call, 0)
    # No axes at all means all of them to ONNX, unless told otherwise.
    axes = range(x.ndim) if axes is None else axes
    names = [w.name(x), w.numbers(axes)]
    kind = _REDUCTIONS[call.op.name]
    w.node(kind, names, outputs, keepdims=keepdims, noop_with_empty_axes=1)


@writes(*_ALONG)
def along(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node(_ALONG[call.op.name], w.arguments(call), outputs, axis=call.attrs["axis"])


@writes("argmax", "argmin")
def argreduce(w: Writer, call: Call, outputs: list[str]) -> None:
    kind = "ArgMax" if call.op.name == "argmax" else "ArgMin"
    last, keepdims = int(call.attrs["last"]), int(call.attrs["keepdims"])
    attrs = {"axis": call.attrs["axis"], "keepdims": keepdims, "select_last_index": last}
    w.node(kind, w.arguments(call), outputs, **attrs)


@writes("cumsum")
def cumsum(w: Writer, call: Call, outputs: list[str]) -> None:
    axis = w.constant(np.array(call.attrs["axis"], np.int64), hint="axis")
    ways = {name: int(call.attrs[name]) for name in ("exclusive", "reverse")}
    w.node("CumSum", [w.name(operand(call, 0)), axis], outputs, **ways)


@writes("top_k")
def top_k(w: Writer, call: Call, outputs: list[str]) -> None:
    attrs = {"axis": call.attrs["axis"], "largest": int(call.attrs["largest"])}
    w.node("TopK", [w.name(operand(call, 0)), w.dims([call.attrs["k"]])], outputs, **attrs)
