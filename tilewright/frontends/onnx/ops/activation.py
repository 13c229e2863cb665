"""Activations, softmax and kin."""

from __future__ import annotations

from typing import Any, Final

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import TABLE, converts
from tilewright.graph import Value

#: The graph operator and the attributes, with ONNX's defaults.
_ACTIVATIONS: Final[dict[str, tuple[str, dict[str, float]]]] = {
    "Celu": ("celu", {"alpha": 1.0}),
    "Elu": ("elu", {"alpha": 1.0}),
    "HardSigmoid": ("hard_sigmoid", {"alpha": 0.2, "beta": 0.5}),
    "HardSwish": ("hard_swish", {}),
    "LeakyRelu": ("leaky_relu", {"alpha": 0.01}),
    "Mish": ("mish", {}),
    "Relu": ("relu", {}),
    "Selu": ("selu", {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}),
    "Sigmoid": ("sigmoid", {}),
    "Softplus": ("softplus", {}),
    "Softsign": ("softsign", {}),
    "Swish": ("swish", {"alpha": 1.0}),
    "ThresholdedRelu": ("thresholded_relu", {"alpha": 1.0}),
}


def _declare(name: str, op: str, defaults: dict[str, float]) -> None:
    def convert(n: Node) -> Value:
        attrs = {key: n.real(key, default) for key, default in defaults.items()}
        return n.builder.emit(op, n[0], **attrs)

    TABLE.add(name, convert)


for _name, _row in _ACTIVATIONS.items():
    _declare(_name, *_row)


@converts("Gelu")
def gelu(n: Node) -> Value:
    return n.builder.gelu(n[0], approximate=n.text("approximate", "none"))


@converts("Shrink")
def shrink(n: Node) -> Value:
    x, attrs = n[0], {"lambd": n.real("lambd", 0.5), "bias": n.real("bias", 0.0)}
    if x.dtype.is_float:
        return n.builder.shrink(x, **attrs)
    real = n.builder.shrink(n.builder.cast(x, dtype="float64"), **attrs)
    return n.builder.cast(real, dtype=x.dtype)


@converts("PRelu", until=7)
def prelu_by_channel(n: Node) -> Value:
    slope = n[1]
    if slope.ndim == 1 and n[0].ndim > 1:
        behind = list(range(1, n[0].ndim - 1))
        slope = n.builder.unsqueeze(slope, axes=behind) if behind else slope
    return n.builder.prelu(n[0], slope)


@converts("PRelu", since=7)
def prelu(n: Node) -> Value:
    return n.builder.prelu(n[0], n[1])


# ---- along an axis ------------------------------------------------------------------------------

_ALONG_AXIS: Final = {"Softmax": "softmax", "LogSoftmax": "log_softmax", "Hardmax": "hardmax"}


@converts(*_ALONG_AXIS, since=13)
def along_axis(n: Node) -> Value:
    return n.builder.emit(_ALONG_AXIS[n.op], n[0], axis=n.integer("axis", -1))


@converts(*_ALONG_AXIS, until=13)
def along_the_rest(n: Node) -> Value:
    """Before version 13 all dimensions from `axis` on count as one."""
    x, axis = n[0], n.integer("axis", 1)
    at = axis + x.ndim if axis < 0 else axis
    if at == x.ndim - 1:
        return n.builder.emit(_ALONG_AXIS[n.op], x, axis=-1)
    flat = n.builder.flatten(x, axis=at)
    result: Any = n.builder.emit(_ALONG_AXIS[n.op], flat, axis=1)
    return n.builder.reshape(result, shape=x.shape)
