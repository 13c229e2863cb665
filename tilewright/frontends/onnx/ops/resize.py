"""Images in other sizes."""

from __future__ import annotations

from typing import Any

from tilewright.frontends.onnx.node import Node
from tilewright.frontends.onnx.table import converts
from tilewright.graph import Value
from tilewright.support.errors import UserError


@converts("Upsample", until=7)
def upsample_by_height_and_width(n: Node) -> Value:
    scales = [1.0, 1.0, n.real("height_scale"), n.real("width_scale")]
    return _from_the_left(n, scales)


@converts("Upsample", since=7, until=9)
def upsample_by_attribute(n: Node) -> Value:
    return _from_the_left(n, n.reals("scales"))


@converts("Upsample", since=9)
@converts("Resize", until=11)
def resize_by_scales(n: Node) -> Value:
    return _from_the_left(n, _floats(n, 1))


def _from_the_left(n: Node, scales: list[float]) -> Value:
    """Before version 11: each element is repeated, or interpolated to its right neighbour."""
    mode = n.text("mode", "nearest")
    return n.builder.resize(
        n[0],
        scales=scales,
        mode="linear" if mode == "bilinear" else mode,
        coordinates="asymmetric",
        nearest="floor",
    )


def _floats(n: Node, index: int) -> list[float]:
    return [float(v) for v in n.array(index).ravel()]


@converts("Resize", since=11)
def resize(n: Node) -> Value:
    coordinates = n.text("coordinate_transformation_mode", "half_pixel")
    return n.builder.resize(
        n[0],
        n.get(1) if coordinates == "tf_crop_and_resize" else None,
        **_extents(n),
        axes=n.integers("axes", None),
        mode=n.text("mode", "nearest"),
        coordinates=coordinates,
        nearest=n.text("nearest_mode", "round_prefer_floor"),
        cubic_a=n.real("cubic_coeff_a", -0.75),
        exclude_outside=n.flag("exclude_outside"),
        extrapolation=n.real("extrapolation_value", 0.0),
        antialias=n.flag("antialias"),
        policy=n.text("keep_aspect_ratio_policy", "stretch"),
    )


def _extents(n: Node) -> dict[str, Any]:
    if n.get(3) is not None:
        return {"sizes": n.dims(3)}
    if n.get(2) is None or n[2].tensor.size == 0:
        raise UserError("neither sizes nor scales are given")
    return {"scales": _floats(n, 2)}
