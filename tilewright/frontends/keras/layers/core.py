"""Dense layers, embeddings, activations, and layers without effect at inference."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.frontends.keras.activations import activated
from tilewright.frontends.keras.layer import Layer
from tilewright.frontends.keras.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError


@converts("Dense")
def dense(n: Layer) -> Value:
    x = n.computed(n[0])
    uses_bias = n.config.flag("use_bias", True)
    kernel, *bias = n.weights("kernel", "bias" if uses_bias else None)
    if kernel.ndim != 2:
        raise UserError(f"the kernel has the shape {list(kernel.shape)}")
    result = n.builder.matmul(x, n.weight(kernel))
    if bias:
        result = result + n.weight(bias[0])
    return activated(n, result, n.config.raw("activation"))


@converts("EinsumDense")
def einsum_dense(n: Layer) -> Value:
    equation = n.config.text("equation").replace(" ", "")
    bias_axes = n.config.text("bias_axes", None)
    kernel, *bias = n.weights("kernel", "bias" if bias_axes else None)
    result = n.builder.einsum(n.computed(n[0]), n.weight(kernel), equation=equation)
    if bias:
        result = result + n.weight(_einsum_bias(equation, bias_axes, bias[0], result.ndim))
    return activated(n, result, n.config.raw("activation"))


def _einsum_bias(equation: str, axes: str, bias: Any, rank: int) -> Any:
    """The bias with axes of extent 1 where the result has axes that it lacks."""
    names = equation.split("->")[-1].replace("...", "")
    shape = [1] * len(names)
    for name, extent in zip((a for a in names if a in axes), bias.shape, strict=False):
        shape[names.index(name)] = extent
    return bias.reshape(shape) if bias.ndim <= rank else bias


@converts("Embedding")
def embedding(n: Layer) -> Value:
    (table,) = n.weights("embeddings")
    indices = n[0] if n[0].dtype.is_integer else n.builder.cast(n[0], dtype="int32")
    found = n.builder.gather(n.weight(table), indices, axis=0)
    mask = None
    if n.config.flag("mask_zero"):
        mask = n.builder.not_equal(indices, n.scalar(0, indices))
    return n.masked(found, mask)


@converts("Masking")
def masking(n: Layer) -> Value:
    x, b = n.computed(n[0]), n.builder
    differs = b.not_equal(x, n.scalar(n.config.real("mask_value", 0.0), x))
    any_differs = b.any(differs, axes=[-1], keepdims=True)
    kept = x * b.cast(any_differs, dtype=x.dtype)
    return n.masked(kept, b.squeeze(any_differs, axes=[-1]))


@converts(
    *("ActivityRegularization", "AlphaDropout", "Dropout", "GaussianDropout", "GaussianNoise"),
    *("Identity", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D", "InputLayer"),
)
def unchanged(n: Layer) -> Value:
    """Layers that only have an effect in training."""
    return n[0]


# ---- activations --------------------------------------------------------------------------------


@converts("Activation")
def activation(n: Layer) -> Value:
    return activated(n, n.computed(n[0]), n.config.raw("activation"))


@converts("ReLU")
def relu(n: Layer) -> Value:
    """Slopes below the threshold, a bound above."""
    slope, threshold = n.config.real("negative_slope", 0.0), n.config.real("threshold", 0.0)
    return bounded_relu(n, n.computed(n[0]), slope, threshold, n.config.real("max_value", None))


def bounded_relu(n: Layer, x: Value, slope: float, threshold: float, most: float | None) -> Value:
    """x from the threshold on, up to `most`; slope * (x - threshold) below."""
    b = n.builder
    if threshold:
        low = (x - threshold) * slope if slope else n.scalar(0, x)
        result = b.where(x >= threshold, x, low)
    elif slope:
        result = b.leaky_relu(x, alpha=slope)
    elif most is not None:
        return b.clip(x, n.scalar(0, x), n.scalar(most, x))
    else:
        return b.relu(x)
    return result if most is None else b.minimum(result, n.scalar(most, x))


@converts("LeakyReLU")
def leaky_relu(n: Layer) -> Value:
    slope = n.config.real("negative_slope", None)
    # Keras 2 called it alpha.
    alpha = n.config.real("alpha", 0.3) if slope is None else slope
    return n.builder.leaky_relu(n.computed(n[0]), alpha=alpha)


@converts("PReLU")
def prelu(n: Layer) -> Value:
    (alpha,) = n.weights("alpha")
    x, b = n.computed(n[0]), n.builder
    return b.relu(x) - n.weight(alpha) * b.relu(-x)


@converts("ELU")
def elu(n: Layer) -> Value:
    return n.builder.elu(n.computed(n[0]), alpha=n.config.real("alpha", 1.0))


@converts("ThresholdedReLU")
def thresholded_relu(n: Layer) -> Value:
    return n.builder.thresholded_relu(n.computed(n[0]), alpha=n.config.real("theta", 1.0))


@converts("Softmax")
def softmax(n: Layer) -> Value:
    x, b = n.computed(n[0]), n.builder
    mask = n.tensor_argument(1, "mask")
    if mask is not None:
        least = n.scalar(-3e4 if x.dtype.name == "float16" else -1e9, x)
        x = x + (1.0 - b.cast(mask, dtype=x.dtype)) * least
    axis = n.config.raw("axis", -1)
    if isinstance(axis, int):
        return b.softmax(x, axis=axis)
    axes = [int(a) for a in axis]
    shifted = x - b.log_sum_exp(x, axes=axes, keepdims=True)
    return b.exp(shifted)


# ---- preprocessing ------------------------------------------------------------------------------


@converts("Rescaling")
def rescaling(n: Layer) -> Value:
    x = n.computed(n[0])
    scale, offset = (np.asarray(n.config.raw(k, d), x.dtype.numpy) for k, d in _RESCALING)
    return x * n.constant(scale, x.dtype) + n.constant(offset, x.dtype)


_RESCALING = (("scale", 1.0), ("offset", 0.0))
