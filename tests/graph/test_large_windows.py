"""Pooling by windows larger than their image: NumPy's answers, and loops that end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.graph.harness import check
from tests.graph.interpreted import check_definition
from tilewright.graph import Builder

RNG = np.random.default_rng(5)

CASES: list[tuple[tuple[int, ...], dict[str, Any]]] = [
    ((1, 2, 3), {"kernel": [9], "pads": [5, 4]}),
    ((1, 2, 3), {"kernel": [8], "pads": [7, 7], "strides": [3], "ceil_mode": True}),
    ((1, 2, 5), {"kernel": [7], "dilations": [3], "pads": [9, 11], "strides": [2]}),
    ((1, 2, 4), {"kernel": [13], "dilations": [2], "pads": [12, 12], "ceil_mode": True}),
    ((2, 1, 1, 7), {"kernel": [13, 2], "pads": [6, 1, 6, 0], "strides": [1, 2]}),
    ((1, 1, 5, 3), {"kernel": [3, 11], "dilations": [1, 2], "pads": [1, 10, 1, 13]}),
    ((1, 1, 2), {"kernel": [99], "pads": [98, 97], "strides": [5], "ceil_mode": True}),
]


def places(extent: int, n: int, attrs: Any) -> list[list[int]]:
    """The indices of all taps along one axis, at every place of the window."""
    rank = len(attrs["kernel"])
    step, gap = (attrs.get(name, [1] * rank)[n] for name in ("strides", "dilations"))
    taps, before, after = attrs["kernel"][n], attrs["pads"][n], attrs["pads"][n + rank]
    last = extent + after - ((taps - 1) * gap + 1)
    if attrs.get("ceil_mode"):
        last = min(last + step - 1, extent - 1)
    return [[s + k * gap for k in range(taps)] for s in range(-before, last + 1, step)]


def windows(image: Any, attrs: Any) -> Iterator[tuple[Any, list[tuple[int, ...]], int]]:
    """Every place: its index, the elements inside the image, how many count with the padding."""
    rank = image.ndim
    axes = [places(extent, n, attrs) for n, extent in enumerate(image.shape)]
    for at in itertools.product(*(range(len(axis)) for axis in axes)):
        taps = list(itertools.product(*(axes[n][p] for n, p in enumerate(at))))
        low, high = attrs["pads"][:rank], attrs["pads"][rank:]
        bare = [t for t in taps if _within(t, image.shape, (0,) * rank, (0,) * rank)]
        yield at, bare, sum(_within(t, image.shape, low, high) for t in taps)


def _within(index: Any, extents: Any, before: Any, after: Any) -> bool:
    axes = zip(index, extents, before, after, strict=True)
    return all(-b <= i < e + a for i, e, b, a in axes)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_larger_than_the_image(case: Any) -> None:
    shape, attrs = case
    x = RNG.standard_normal(shape).astype("f4")
    greatest, where = check_definition("max_pool", [x], return_indices=True, **attrs)
    (mean,) = check_definition("avg_pool", [x], **attrs)
    (padded,) = check_definition("avg_pool", [x], count_include_pad=True, **attrs)
    check_definition("lp_pool", [x], **attrs)
    seen = 0
    for n, c in np.ndindex(*shape[:2]):
        for at, inside, counted in windows(x[n, c], attrs):
            seen, place = seen + 1, (n, c, *at)
            values = np.array([x[(n, c, *i)] for i in inside], "f8")
            if not inside:
                assert greatest[place] == -np.inf and padded[place] == 0
                continue
            assert greatest[place] == values.max()
            assert x.reshape(-1)[where[place]] == greatest[place]
            np.testing.assert_allclose(mean[place], values.mean(), rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(padded[place], values.sum() / counted, atol=1e-6)
    assert seen == greatest.size


def test_larger_than_the_image_natively() -> None:
    shape, attrs = CASES[5]
    x = RNG.standard_normal(shape).astype("f4")
    check("max_pool", [x], return_indices=True, symbolic=False, **attrs)
    check("avg_pool", [np.tile(x, (1, 16, 1, 1))], symbolic=False, **attrs)


@pytest.mark.parametrize("symbolic", [False, True])
def test_far_larger_than_the_image(symbolic: bool) -> None:
    far = 2**31
    attrs: Any = {"kernel": [far, far], "pads": [far - 3, far - 4, 0, 0]}
    x = RNG.standard_normal((1, 2, 5, 6)).astype("f4")
    b = Builder()
    image = b.input("x", "f32", ("n", "c", "h", "w") if symbolic else x.shape)
    for value in b.max_pool(image, return_indices=True, **attrs):
        b.output(value)
    b.output(b.avg_pool(image, **attrs))
    b.output(b.lp_pool(image, p=1, **attrs))
    greatest, where, mean, norm = tw.compile(b.build()).run([x])
    # The window can begin at 3 rows and 3 columns; it sees what is left of its end.
    assert greatest.shape == (1, 2, 3, 3)
    for p, q in np.ndindex(3, 3):
        seen = x[:, :, : 3 + p, : 4 + q]
        assert (greatest[:, :, p, q] == seen.max(axis=(2, 3))).all()
        assert (x.reshape(-1)[where[:, :, p, q]] == greatest[:, :, p, q]).all()
        np.testing.assert_allclose(mean[:, :, p, q], seen.mean(axis=(2, 3)), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(norm[:, :, p, q], np.abs(seen).sum(axis=(2, 3)), rtol=1e-5)
