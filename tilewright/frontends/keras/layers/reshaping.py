"""Shapes: reshape, permute, crop, pad, repeat, resize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.frontends.keras.config import as_list
from tilewright.frontends.keras.images import as_before, channels_first, is_channels_last
from tilewright.frontends.keras.layer import Layer
from tilewright.frontends.keras.table import converts
from tilewright.graph import Dim, Value
from tilewright.support.errors import UserError


@converts("Flatten")
def flatten(n: Layer) -> Value:
    x, b = n[0], n.builder
    if x.ndim < 2:
        return b.unsqueeze(x, axes=[1])
    if not is_channels_last(n) and x.ndim > 2:
        x = b.transpose(x, axes=[0, *range(2, x.ndim), 1])
    return b.flatten(x, axis=1)


@converts("Reshape")
def reshape(n: Layer) -> Value:
    target = as_list(n.config.raw("target_shape", []))
    if target is None or not all(d is None or isinstance(d, int) for d in target):
        raise UserError(f"the target_shape is {target}")
    return n.builder.reshape(n[0], shape=[n[0].shape[0], *(-1 if d is None else d for d in target)])


@converts("Permute")
def permute(n: Layer) -> Value:
    dims = n.config.integers("dims", n[0].ndim - 1)
    return n.builder.transpose(n[0], axes=[0, *dims])


@converts("RepeatVector")
def repeat_vector(n: Layer) -> Value:
    x, b = n[0], n.builder
    count = n.config.integer("n")
    return b.expand(b.unsqueeze(x, axes=[1]), shape=[x.shape[0], count, *x.shape[1:]])


def _pairs(n: Layer, name: str, rank: int) -> list[tuple[int, int]]:
    """(before, after) for each spatial axis: one number, one for each axis, or two."""
    given = n.config.raw(name)
    items = [given] * rank if isinstance(given, int) else as_list(given) or []
    if rank == 1 and len(items) == 2:
        items = [items]
    rows = [[g, g] if isinstance(g, int) else as_list(g) or [] for g in items]
    if len(rows) != rank or any(len(r) != 2 or not _are_sizes(r) for r in rows):
        raise UserError(f"the {name} is {given}")
    return [(front, behind) for front, behind in rows]


def _are_sizes(row: list[Any]) -> bool:
    return all(isinstance(v, int) and v >= 0 for v in row)


def _first_spatial(n: Layer) -> int:
    return 1 if is_channels_last(n) else 2


@converts("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D")
def zero_padding(n: Layer) -> Value:
    # With channels first, like the convolutions around it, so that transposes cancel.
    image = channels_first(n, n[0])
    pairs = _pairs(n, "padding", image.ndim - 2)
    before, after = ([0, 0, *(p[side] for p in pairs)] for side in (0, 1))
    return as_before(n, n.builder.pad(image, before=before, after=after))


@converts("Cropping1D", "Cropping2D", "Cropping3D")
def cropping(n: Layer) -> Value:
    image = channels_first(n, n[0])
    pairs = _pairs(n, "cropping", image.ndim - 2)
    axes = list(range(2, image.ndim))
    ends = [image.shape[axis] - behind for axis, (_, behind) in zip(axes, pairs, strict=True)]
    starts = [front for front, _ in pairs]
    return as_before(n, n.builder.slice(image, starts=starts, ends=ends, axes=axes))


@converts("UpSampling1D", "UpSampling2D", "UpSampling3D")
def up_sampling(n: Layer) -> Value:
    x, b, rank = n[0], n.builder, n[0].ndim - 2
    sizes = n.config.integers("size", rank)
    mode = n.config.text("interpolation", "nearest") if rank == 2 else "nearest"
    if mode != "nearest":
        image = channels_first(n, n.computed(x))
        extents = [e * s for e, s in zip(image.shape[2:], sizes, strict=True)]
        return as_before(n, resized(n, image, extents, mode))
    image = channels_first(n, x)
    for k, size in enumerate(sizes):
        if size != 1:
            image = b.repeat_elements(image, repeats=size, axis=2 + k)
    return as_before(n, image)


def resized(
    n: Layer, image: Value, sizes: Sequence[Dim], mode: str, antialias: bool = False
) -> Value:
    """An image N×C×spatial of another size, by centres of pixels."""
    modes = {
        "nearest": ("nearest", -0.75, False),
        "bilinear": ("linear", -0.75, False),
        # Keys' cubic, without weights outside of the image.
        "bicubic": ("cubic", -0.5, True),
    }
    if mode not in modes:
        raise UserError(f"the interpolation {mode}", remedy=f"known: {', '.join(modes)}")
    name, cubic_a, excludes = modes[mode]
    return n.builder.resize(
        image,
        sizes=list(sizes),
        axes=list(range(2, image.ndim)),
        mode=name,
        coordinates="half_pixel",
        # TensorFlow takes floor(x + 0.5 pixel): ties go up.
        nearest="round_prefer_ceil",
        cubic_a=cubic_a,
        exclude_outside=excludes,
        antialias=antialias and name != "nearest",
    )


@converts("Resizing")
def resizing(n: Layer) -> Value:
    for name in ("crop_to_aspect_ratio", "pad_to_aspect_ratio"):
        if n.config.flag(name):
            raise UserError(f"{name} is not supported", remedy="resize without it")
    sizes = [n.config.integer("height"), n.config.integer("width")]
    image = channels_first(n, n.computed(n[0]))
    antialias = n.config.flag("antialias")
    mode = n.config.text("interpolation", "bilinear")
    return as_before(n, resized(n, image, sizes, mode, antialias))


@converts("CenterCrop")
def center_crop(n: Layer) -> Value:
    first = _first_spatial(n)
    x, sizes = n[0], [n.config.integer("height"), n.config.integer("width")]
    axes = [first, first + 1]
    starts = [(x.shape[a] - s) // 2 for a, s in zip(axes, sizes, strict=True)]
    ends = [start + s for start, s in zip(starts, sizes, strict=True)]
    return n.builder.slice(x, starts=starts, ends=ends, axes=axes)
