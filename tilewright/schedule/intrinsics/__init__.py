"""Tensor intrinsics: tables of what targets have, and intrinsics that rules create as needed."""

from tilewright.schedule.intrinsics.amx import TileProduct
from tilewright.schedule.intrinsics.dot import Dot
from tilewright.schedule.intrinsics.interleave import interleave
from tilewright.schedule.intrinsics.mma import warp_product
from tilewright.schedule.intrinsics.tables import dots_for, lane_dot_for, tile_product_for
from tilewright.schedule.intrinsics.transpose import PART_BYTES, transpose_tile

__all__ = [
    "PART_BYTES",
    "Dot",
    "TileProduct",
    "dots_for",
    "interleave",
    "lane_dot_for",
    "tile_product_for",
    "transpose_tile",
    "warp_product",
]
