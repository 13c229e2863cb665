"""Which tensor intrinsics a target has."""

from __future__ import annotations

from typing import Final

from tilewright.ir import DType
from tilewright.schedule.intrinsics.amx import TILE_PRODUCTS, TileProduct
from tilewright.schedule.intrinsics.arm import ARM_DOTS, ARM_LANE_DOTS
from tilewright.schedule.intrinsics.cortex_m import CORTEX_M_DOTS
from tilewright.schedule.intrinsics.dot import Dot
from tilewright.schedule.intrinsics.x86 import X86_DOTS
from tilewright.schedule.tensor_intrin import has_features
from tilewright.target import Target

_DOTS: dict[str, tuple[Dot, ...]] = {
    "x86_64": X86_DOTS,
    "aarch64": ARM_DOTS,
    "arm": CORTEX_M_DOTS,
}
#: The ones that multiply lane by lane.
_LANE_DOTS: dict[str, tuple[Dot, ...]] = {"aarch64": ARM_LANE_DOTS}
#: Bits of scalar registers.
_SCALAR: Final = 32


def dots_for(target: Target, a: DType, b: DType, out: DType) -> list[Dot]:
    """Dot products of rows of `a` and columns of `b` that `target` has, the best first."""
    return [
        dot
        for dot in _DOTS.get(target.arch, ())
        if (dot.a, dot.b, dot.out) == (a, b, out)
        and dot.columns * 32 <= max(target.vector_bits, _SCALAR)
        and has_features(target, dot.needs)
    ]


def lane_dot_for(target: Target, a: DType, b: DType, out: DType) -> Dot | None:
    """The lane-by-lane dot product of these types, if `target` has it."""
    fitting = (d for d in _LANE_DOTS.get(target.arch, ()) if (d.a, d.b, d.out) == (a, b, out))
    return next((d for d in fitting if has_features(target, d.needs)), None)


def tile_product_for(target: Target, a: DType, b: DType, out: DType) -> TileProduct | None:
    """AMX's product of rows of `a` and columns of `b`, if `target` has it."""
    if target.arch != "x86_64":
        return None
    fitting = (p for p in TILE_PRODUCTS if (p.a, p.b, p.out) == (a, b, out))
    return next((p for p in fitting if target.has(p.needs)), None)
