"""Images with channels last, around operators that want them first."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.frontends.common import images
from tilewright.frontends.common.images import WindowAttributes
from tilewright.frontends.common.padding import same_padding, split_padding
from tilewright.frontends.keras.layer import Layer
from tilewright.graph import Dim, Value
from tilewright.support.errors import UserError


def is_channels_last(n: Layer) -> bool:
    """Whether images have their channels last."""
    found = n.config.text("data_format", "channels_last")
    if found not in ("channels_last", "channels_first"):
        raise UserError(f"the data_format is {found!r}")
    return found == "channels_last"


def channels_first(n: Layer, x: Value) -> Value:
    """N×C×spatial, whatever the layer's format."""
    if x.ndim < 3:
        raise UserError(f"{x} is no image")
    if not is_channels_last(n):
        return x
    return images.channels_first(n.builder, x)


def as_before(n: Layer, x: Value) -> Value:
    """N×C×spatial in the layer's format."""
    if not is_channels_last(n):
        return x
    return images.channels_last(n.builder, x)


def window_of(
    n: Layer, image: Value, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> WindowAttributes:
    """The window of a layer over an image with its channels first."""
    if len(kernel) != image.ndim - 2:
        raise UserError(f"a window of {len(kernel)} dimensions on {image}")
    if any(v < 1 for v in (*kernel, *strides, *dilations)):
        raise UserError(f"a kernel of {kernel} with strides {strides} and dilations {dilations}")
    padding = n.config.text("padding", "valid").lower()
    rank = len(kernel)
    if padding == "valid":
        pads: tuple[Dim, ...] = (0,) * (2 * rank)
    elif padding == "causal" and rank == 1:
        pads = (dilations[0] * (kernel[0] - 1), 0)
    elif padding == "same":
        axes = zip(image.shape[2:], kernel, strides, dilations, strict=True)
        pads = split_padding([same_padding(*axis) for axis in axes])
    else:
        raise UserError(f"the padding is {padding!r}")
    return WindowAttributes(tuple(kernel), tuple(strides), tuple(dilations), pads)
