"""Products, convolutions, pooling, normalisation, recurrent networks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.frontends.onnx.writing.table import operand, writes
from tilewright.frontends.onnx.writing.writer import Writer, static_ints
from tilewright.graph import Call, Value
from tilewright.support.errors import UserError

_RECURRENT: Final = {"lstm": "LSTM", "gru": "GRU", "rnn": "RNN"}


@writes("matmul")
def matmul(w: Writer, call: Call, outputs: list[str]) -> None:
    names = [
        _transposed(w, operand(call, k), call.attrs[f"transpose_{n}"]) for k, n in enumerate("ab")
    ]
    if call.attrs["dtype"] is not None:
        raise UserError(
            "cannot write a product to ONNX", reason="its sums are of another type than its factors"
        )
    w.node("MatMul", names, outputs)


def _transposed(w: Writer, value: Value, is_transposed: bool) -> str:
    if not is_transposed:
        return w.name(value)
    axes = [*range(value.ndim - 2), value.ndim - 1, value.ndim - 2]
    if value.constant is not None:
        return w.constant(np.ascontiguousarray(value.constant.transpose(axes)), value.dtype)
    return w.node("Transpose", [w.name(value)], perm=axes)


@writes("gemm")
def gemm(w: Writer, call: Call, outputs: list[str]) -> None:
    factors = {k: float(call.attrs[k]) for k in ("alpha", "beta")}
    turns = {f"trans{n.upper()}": int(call.attrs[f"transpose_{n}"]) for n in "ab"}
    w.node("Gemm", w.arguments(call), outputs, **factors, **turns)


@writes("dense")
def dense(w: Writer, call: Call, outputs: list[str]) -> None:
    x, weight, bias = w.arguments(call)
    if operand(call, 0).ndim == 2:
        w.node("Gemm", [x, weight, bias], outputs, transB=1)
        return
    transposed = w.node("Transpose", [weight], perm=[1, 0])
    total = w.node("MatMul", [x, transposed], "" if bias else outputs)
    if bias:
        w.node("Add", [total, bias], outputs)


@writes("einsum")
def einsum(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("Einsum", w.arguments(call), outputs, equation=call.attrs["equation"])


def _window(call: Call) -> dict[str, Any]:
    return {name: static_ints(call, name) for name in ("strides", "pads", "dilations")}


@writes("conv", "conv1d", "conv2d", "conv3d")
def conv(w: Writer, call: Call, outputs: list[str]) -> None:
    if call.attrs["dtype"] is not None or call.attrs["fill"]:
        raise UserError(
            f"cannot write conv of {operand(call, 0).dtype} with wider sums to ONNX",
            remedy="save the model as it was before it was compiled",
        )
    w.node("Conv", w.arguments(call), outputs, **_window(call), group=call.attrs["groups"])


@writes("conv_transpose")
def conv_transpose(w: Writer, call: Call, outputs: list[str]) -> None:
    more = static_ints(call, "output_pads")
    window = {**_window(call), "group": call.attrs["groups"], "output_padding": more}
    w.node("ConvTranspose", w.arguments(call), outputs, **window)


@writes("max_pool")
def max_pool(w: Writer, call: Call, outputs: list[str]) -> None:
    order = int(call.attrs["column_major"]) or None
    w.node("MaxPool", w.arguments(call), outputs, **_pool(call), storage_order=order)


@writes("avg_pool")
def avg_pool(w: Writer, call: Call, outputs: list[str]) -> None:
    counted = int(call.attrs["count_include_pad"])
    w.node("AveragePool", w.arguments(call), outputs, **_pool(call), count_include_pad=counted)


@writes("lp_pool")
def lp_pool(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("LpPool", w.arguments(call), outputs, **_pool(call), p=call.attrs["p"])


def _pool(call: Call) -> dict[str, Any]:
    rounding = int(call.attrs["ceil_mode"])
    return {**_window(call), "kernel_shape": static_ints(call, "kernel"), "ceil_mode": rounding}


@writes("global_avg_pool", "global_max_pool")
def global_pool(w: Writer, call: Call, outputs: list[str]) -> None:
    kind = "GlobalAveragePool" if call.op.name == "global_avg_pool" else "GlobalMaxPool"
    w.node(kind, w.arguments(call), outputs)


@writes("batch_norm")
def batch_norm(w: Writer, call: Call, outputs: list[str]) -> None:
    epsilon = float(call.attrs["epsilon"])
    w.node("BatchNormalization", w.arguments(call), outputs, epsilon=epsilon)


@writes("instance_norm")
def instance_norm(w: Writer, call: Call, outputs: list[str]) -> None:
    epsilon = float(call.attrs["epsilon"])
    w.node("InstanceNormalization", w.arguments(call), outputs, epsilon=epsilon)


@writes("group_norm")
def group_norm(w: Writer, call: Call, outputs: list[str]) -> None:
    attrs = {"num_groups": call.attrs["groups"], "epsilon": float(call.attrs["epsilon"])}
    w.node("GroupNormalization", w.arguments(call), outputs, **attrs)


@writes("layer_norm")
def layer_norm(w: Writer, call: Call, outputs: list[str]) -> None:
    x, scale, bias = w.arguments(call)
    if not scale:
        shape = operand(call, 0).tensor.shape[call.attrs["axis"] :]
        one = w.scalar(1.0, operand(call, 0).dtype)
        scale = w.node("Expand", [one, w.dims(shape)])
    attrs = {"axis": call.attrs["axis"], "epsilon": float(call.attrs["epsilon"])}
    w.node("LayerNormalization", [x, scale, bias], outputs, **attrs)


@writes("rms_norm")
def rms_norm(w: Writer, call: Call, outputs: list[str]) -> None:
    x = operand(call, 0)
    axes = list(range(call.attrs["axis"] % x.ndim, x.ndim))
    square = w.node("Mul", [w.name(x), w.name(x)])
    mean = w.node("ReduceMean", [square, w.numbers(axes)], keepdims=1)
    moved = w.node("Add", [mean, w.scalar(call.attrs["epsilon"], x.dtype)])
    scale = call.args[1]
    unit = w.node("Div", [w.name(x), w.node("Sqrt", [moved])], "" if scale else outputs)
    if scale is not None:
        w.node("Mul", [unit, w.name(scale)], outputs)


@writes("lrn")
def lrn(w: Writer, call: Call, outputs: list[str]) -> None:
    w.node("LRN", w.arguments(call), outputs, **call.attrs)


@writes(*_RECURRENT)
def recurrent(w: Writer, call: Call, outputs: list[str]) -> None:
    attrs = call.attrs
    given: dict[str, Any] = {
        "direction": attrs["direction"],
        "activations": list(attrs["activations"]) or None,
        "activation_alpha": list(attrs["alphas"]) or None,
        "activation_beta": list(attrs["betas"]) or None,
        "clip": float(attrs["clip"]) or None,
        # R: directions × gates of the hidden size × the hidden size.
        "hidden_size": operand(call, 2).tensor.static_shape[-1],
        "input_forget": int(attrs["input_forget"]) if "input_forget" in attrs else None,
        "linear_before_reset": int(attrs.get("linear_before_reset", False)) or None,
    }
    w.node(_RECURRENT[call.op.name], w.arguments(call), outputs, **given)
