"""Kernels over sizes of their own: stages that differ in nothing else are one kernel."""

from __future__ import annotations

from collections import Counter

import numpy as np

import tilewright as tw
from tests.networks import random
from tilewright.graph import Builder, Module, evaluate


def _stages(count: int) -> Module:
    """Images made of transformed tiles, as `winograd` writes them, each half as large."""
    b = Builder("main")
    x = b.input("x", "f32", ("n", 8, "h", "w"))
    for _ in range(count):
        x = b.to_blocked(b.max_pool(x, kernel=[2, 2], strides=[2, 2]), block=8)
        tiles = b.winograd_tiles(x, pads=[1] * 4, tiles=[2, 2])
        planes = b.reshape(tiles, shape=[*tiles.shape[:5], 1, 8])
        made = b.winograd_image(planes, height=x.shape[2], width=x.shape[3], tiles=[2, 2])
        x = b.from_blocked(b.relu(made), channels=8)
    b.output(x)
    return b.build()


def test_sizes_in_attributes_and_operands_are_tied_by_the_type_rule() -> None:
    module = _stages(3)
    model = tw.compile(module, opt_level=1)
    assert isinstance(model, tw.Model)
    kinds = Counter(name.rpartition("_")[0] for name in model.kernels)
    assert kinds["winograd_tiles"] == kinds["winograd_image_relu"] == 1, model.kernels
    for height, width in ((37, 50), (8, 9)):
        x = random(2, 8, height, width)
        (want,) = evaluate(module, [x])
        np.testing.assert_allclose(model.run([x])[0], want, rtol=1e-3, atol=1e-3)


def test_kernels_are_not_named_after_values() -> None:
    """Padding is part of a kernel; what is padded may be called anything."""
    b = Builder("main")
    x = b.input("x", "f32", ("n", 4, "h", "w"))
    for name in ("one", "other"):
        x = b.max_pool(x, kernel=[2, 2], strides=[2, 2])
        x.name = name
        x = b.conv(x, random(4, 4, 3, 3), pads=[1] * 4)
    b.output(x)
    model = tw.compile(b.build(), opt_level=1)
    assert len([k for k in model.kernels if k.startswith("conv")]) == 1, model.kernels
