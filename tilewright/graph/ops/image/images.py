"""Image files as tensors; decoded on the host, by Pillow."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any, Final

import numpy as np

from tilewright.graph.ir import Array, Value
from tilewright.graph.ir.op import op
from tilewright.graph.ir.types import TensorType, Type, fresh_dim
from tilewright.graph.ops.elementwise.elementwise import require_kind
from tilewright.support.errors import UserError

#: The channels of each kind of result, and Pillow's name for it.
_KINDS: Final = {"rgb": (3, "RGB"), "bgr": (3, "RGB"), "grayscale": (1, "L")}


@op(host=True)
def decode_image(data: Value, *, channels: str = "rgb") -> Type:
    """The pixels of an image file, height × width × channels: rgb, bgr or grayscale.

    What cannot be decoded has no pixels.
    """
    require_kind("integer", data)
    if data.ndim != 1 or data.dtype.bits != 8:
        raise UserError(f"{data} holds no image file", reason="that is a list of bytes")
    if channels not in _KINDS:
        raise UserError(f"channels are {channels!r}", remedy=f"use {', '.join(_KINDS)}")
    return TensorType("uint8", [fresh_dim("height"), fresh_dim("width"), _KINDS[channels][0]])


@decode_image.reference
def decode_image_reference(data: Array, *, channels: str) -> Array:
    count, mode = _KINDS[channels]
    library = _pillow()
    try:
        with library.open(io.BytesIO(data.tobytes())) as image:
            pixels = np.asarray(image.convert(mode))
    except (OSError, SyntaxError, ValueError, library.DecompressionBombError):
        return np.empty((0, 0, count), np.uint8)
    shaped = pixels.reshape(*pixels.shape[:2], count)
    return np.ascontiguousarray(shaped[..., ::-1] if channels == "bgr" else shaped)


def _pillow() -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError:
        raise UserError(
            "cannot decode an image",
            reason="Pillow is not installed",
            remedy="install it: pip install pillow",
        ) from None
