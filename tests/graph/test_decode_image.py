"""Image files decoded on the host."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from tilewright.graph import Builder, evaluate
from tilewright.support.errors import UserError

image = pytest.importorskip("PIL.Image")
PIXELS = np.random.default_rng(0).integers(0, 256, (3, 5, 3)).astype(np.uint8)


def decoded(data: bytes, **attrs: Any) -> Any:
    b = Builder("main")
    b.output(b.decode_image(b.input("data", "u8", ("n",)), **attrs))
    return evaluate(b.build(), [np.frombuffer(data, np.uint8)])[0]


def png() -> bytes:
    file = io.BytesIO()
    image.fromarray(PIXELS).save(file, "PNG")
    return file.getvalue()


def test_channels_in_either_order() -> None:
    np.testing.assert_array_equal(decoded(png()), PIXELS)
    np.testing.assert_array_equal(decoded(png(), channels="bgr"), PIXELS[..., ::-1])
    assert decoded(png(), channels="grayscale").shape == (3, 5, 1)


@pytest.mark.parametrize("data", [b"", b"no image", png()[:40]])
def test_what_cannot_be_decoded_has_no_pixels(data: bytes) -> None:
    assert decoded(data).shape == (0, 0, 3)


def test_what_is_refused() -> None:
    b = Builder("main")
    with pytest.raises(UserError, match="holds no image file"):
        b.decode_image(b.input("x", "i32", (4,)))
    with pytest.raises(UserError, match="use rgb, bgr, grayscale"):
        b.decode_image(b.input("y", "u8", (4,)), channels="cmyk")
