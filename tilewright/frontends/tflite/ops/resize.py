"""Images in another size."""

from __future__ import annotations

from tilewright.frontends.tflite.fixed_point import quantized, real
from tilewright.frontends.tflite.images import on_images
from tilewright.frontends.tflite.node import Node
from tilewright.frontends.tflite.table import converts
from tilewright.graph import Value


@converts("RESIZE_BILINEAR")
def resize_bilinear(n: Node) -> Value:
    """Where it is asked for, centres of pixels or corners are mapped onto each other."""
    coordinates = "asymmetric"
    if n.option("align_corners"):
        coordinates = "align_corners"
    elif n.option("half_pixel_centers"):
        coordinates = "half_pixel"
    how = {"sizes": n.dims(1, 2), "axes": (2, 3), "mode": "linear", "coordinates": coordinates}
    return quantized(n, on_images(n, real(n, 0), lambda x: n.builder.resize(x, **how)))


@converts("RESIZE_NEAREST_NEIGHBOR")
def resize_nearest(n: Node) -> Value:
    """Corners are aligned to the nearest pixel; else the one is taken that a place lies in."""
    how = {"sizes": n.dims(1, 2), "axes": (2, 3), "mode": "nearest"}
    if n.option("align_corners"):
        how |= {"coordinates": "align_corners", "nearest": "round_prefer_ceil"}
    elif n.option("half_pixel_centers"):
        how |= {"coordinates": "tf_half_pixel_for_nn", "nearest": "floor"}
    else:
        how |= {"coordinates": "asymmetric", "nearest": "floor"}
    return on_images(n, n[0], lambda x: n.builder.resize(x, **how))
