"""Images in other sizes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from tilewright.frontends.onnx.writing.table import operand, writes
from tilewright.frontends.onnx.writing.writer import Writer
from tilewright.graph import Call
from tilewright.support.errors import UserError

#: The modes that ONNX has; other formats have more ways to compute a position in the source.
_KNOWN: Final = {
    "coordinates": frozenset(
        "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric"
        " tf_crop_and_resize".split()
    ),
    "nearest": frozenset("round_prefer_floor round_prefer_ceil floor ceil".split()),
    "mode": frozenset("nearest linear cubic".split()),
}


@writes("resize")
def resize(w: Writer, call: Call, outputs: list[str]) -> None:
    attrs = call.attrs
    for name, known in _KNOWN.items():
        if attrs[name] not in known:
            raise UserError(f"cannot write resize of {name} {attrs[name]} to ONNX")
    x, roi = w.arguments(call)
    scales = "" if attrs["scales"] is None else w.constant(_floats(attrs["scales"]), hint="scales")
    sizes = "" if attrs["sizes"] is None else w.dims(attrs["sizes"])
    w.node("Resize", [x, roi, scales, sizes], outputs, **_how(call))


def _floats(numbers: Any) -> Any:
    return np.array(numbers, np.float32)


def _how(call: Call) -> dict[str, Any]:
    """The attributes without those that have no effect here: some tools refuse them."""
    attrs, mode = call.attrs, call.attrs["mode"]
    axes = None if attrs["axes"] is None else [a % operand(call, 0).ndim for a in attrs["axes"]]
    is_stretched = attrs["policy"] == "stretch"
    crops = attrs["coordinates"] == "tf_crop_and_resize"
    return {
        "axes": axes,
        "mode": mode,
        "coordinate_transformation_mode": attrs["coordinates"],
        "nearest_mode": attrs["nearest"] if mode == "nearest" else None,
        "cubic_coeff_a": attrs["cubic_a"] if mode == "cubic" else None,
        "exclude_outside": int(attrs["exclude_outside"]) or None,
        "extrapolation_value": attrs["extrapolation"] if crops else None,
        "antialias": int(attrs["antialias"]) or None,
        "keep_aspect_ratio_policy": None if is_stretched else attrs["policy"],
    }
