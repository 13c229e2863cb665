"""Convolutions by transformed tiles: operators, whole convolutions, and what is left alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.graph.harness import check
from tilewright.graph import (
    Builder,
    Call,
    KernelTable,
    Module,
    PassContext,
    evaluate,
    find_op,
    passes,
    verify,
)
from tilewright.graph.ops.forms.winograd_planes import winograd_weights
from tilewright.graph.winograd.transforms import PLANES, TRANSFORMS, Along, square, transform_of
from tilewright.schedule import RULES

#: What is chosen depends on the machine.
TARGET = tw.Target.of("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")


def values(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("f4")


def ops_of(module: Module) -> Counter[str]:
    return Counter(b.expr.op.name for b in module.main.body if isinstance(b.expr, Call))


def planned(module: Module, target: tw.Target = TARGET) -> Module:
    """The module after the passes that choose how convolutions are computed."""
    blocked = passes.constant_folding(passes.plan_layouts(target)(module))
    made = passes.winograd(target)(blocked)
    verify(made)
    return made


def tiles_of(module: Module, *operators: str) -> list[int]:
    calls = [b.expr for b in module.main.body if isinstance(b.expr, Call)]
    names = operators or ("winograd_tiles", "winograd_conv")
    found = [c.attrs for c in calls if c.op.name in names]
    return [a["tile"] if "tile" in a else max(a["tiles"]) for a in found]


def test_large_images_are_taken_by_strips() -> None:
    assert ops_of(planned(convolution((1, 64, 56, 56))))["winograd_strips"] == 1
    assert ops_of(planned(convolution((1, 64, 28, 28))))["winograd_strips"] == 0


def test_tiles_that_would_come_from_memory_are_not_made() -> None:
    """Windows other than 3×3 are not computed by strips; wide vectors wait longer for memory."""
    target = tw.Target.of("llvm -mcpu=cascadelake")
    small, large = (convolution((1, 32, side, side), 32, kernel=5) for side in (40, 320))
    assert ops_of(planned(small, target))["winograd_tiles"]
    assert not ops_of(planned(large, target))["winograd_tiles"]
    assert ops_of(planned(large))["winograd_tiles"]


def convolution(
    size: tuple[Any, ...] = (1, 64, 14, 14), outputs: int = 64, kernel: Any = 3, **attrs: Any
) -> Module:
    b = Builder("main")
    x = b.input("x", "f32", size)
    inputs = size[1] // attrs.get("groups", 1)
    window = (kernel, kernel) if isinstance(kernel, int) else kernel
    weight = values(outputs, inputs, *window) / np.float32((inputs * window[0] * window[1]) ** 0.5)
    attrs = {"pads": [k // 2 for k in (*window, *window)]} | attrs
    image = b.conv(b.relu(x), weight, values(outputs), **attrs)
    b.output(b.relu(b.add(image, image)))
    return b.build()


def test_reads_of_dimensions_stay_as_they_are() -> None:
    """A read has no outputs, and stands beside convolutions that are written anew."""
    b = Builder("main")
    x, size = b.input("x", "f32", (1, 64, 14, 14)), b.input("size", "i64", (1,))
    image = b.conv(b.relu(x), values(64, 64, 3, 3), pads=[1] * 4)
    (n,) = b.read(size)
    b.output(b.relu(image), b.expand(values(1), shape=[n]))
    assert ops_of(planned(b.build()))["winograd_image"] == 1


# ---- operators ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("planes", "taps"), [(p, r) for p in PLANES for r in range(2, p)])
def test_transforms_make_a_convolution(planes: int, taps: int) -> None:
    """Along one axis: A((G w) · (B x)) is the convolution of x by w."""
    window, weight, result = map(np.array, transform_of(planes - taps + 1, taps))
    x, w = np.random.default_rng(planes).standard_normal((2, planes))
    made = result @ ((weight @ w[:taps]) * (window @ x))
    np.testing.assert_allclose(made, np.correlate(x, w[:taps], "valid"), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("tile", TRANSFORMS)
@pytest.mark.parametrize("size", [1, 5, 8])
def test_tiles_and_back(tile: int, size: int) -> None:
    x, w, bias = values(2, 2, size, size, 8), values(16, 16, 3, 3), values(2, 8)
    both = [tile, tile]
    (tiles,) = check("winograd_tiles", [x], symbolic=False, atol=1e-4, pads=[1] * 4, tiles=both)
    rows = tiles.reshape(*tiles.shape[:2], -1, 16)
    factors = winograd_weights(w.transpose(2, 3, 1, 0), square(tile))[:, :, 0, 0]
    products = (rows @ factors).reshape(*tiles.shape[:5], 2, 8)
    extents = {"height": size, "width": size, "tiles": both}
    (got,) = check(
        "winograd_image", [products, bias], symbolic=False, atol=1e-3, rtol=1e-4, **extents
    )
    plain = x.transpose(0, 1, 4, 2, 3).reshape(2, 16, size, size)
    attrs = {"strides": (), "pads": (1, 1, 1, 1), "dilations": (), "groups": 1}
    (want,) = find_op("conv").evaluate([plain, w, bias.reshape(-1)], attrs)
    found = got.transpose(0, 1, 4, 2, 3).reshape(want.shape)
    np.testing.assert_allclose(found, want, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize(
    ("tile", "size", "pads", "blocks"),
    [
        (4, (1, 1, 1), [1] * 4, 3),
        (4, (2, 17, 9), [0, 1, 2, 0], 3),
        (2, (2, 5, 8), [1] * 4, 3),
        (4, (1, 9, 9), [1] * 4, 1),
    ],
)
def test_weights_transformed_where_they_are_used(
    tile: int, size: tuple[int, ...], pads: list[int], blocks: int
) -> None:
    """As many tiles as make whole tiles of registers, and not; results of direct convolution."""
    batch, height, width = size
    x = values(batch, blocks, height, width, 8)
    w, bias = values(2, blocks, 8, 3, 3, 16), values(2, 16)
    check("winograd_conv", [x, w, bias], symbolic=False, atol=1e-4, pads=pads, tile=tile)


@pytest.mark.parametrize(("cpu", "width"), [("x86-64-v3", 128), ("skylake-avx512", 66)])
def test_strips_whose_tiles_of_registers_are_not_whole(cpu: str, width: int) -> None:
    """Threads take strips whatever number of rows a strip and a tile have."""
    target = tw.Target.of(f"llvm -mcpu={cpu} -num-cores=8")
    x, w = values(1, 2, 24, width, 16), values(16, 32, 3, 3)
    factors = winograd_weights(w.transpose(2, 3, 1, 0), square(4)).reshape(6, 6, 2, 16, 2, 8)
    factors = np.ascontiguousarray(factors.transpose(0, 1, 4, 2, 3, 5))
    b = Builder()
    b.output(b.winograd_strips(b.input("x", "f32", x.shape), factors, values(2, 8), pads=[1] * 4))
    module = b.build()
    (binding,) = passes.fuse(TARGET)(module).main.body
    function = KernelTable()(binding).function

    scheduled = RULES.schedule(function, target)
    assert not scheduled.declined
    (want,) = evaluate(module, {"x": x})
    got = np.full(want.shape, np.nan, "f4")
    tw.build(scheduled, threads=2)(x, factors, values(2, 8), got)
    np.testing.assert_allclose(got, want, atol=1e-3)


@pytest.mark.parametrize(
    ("tile", "size", "pads"), [(4, (2, 70, 9), [0, 1, 2, 0]), (2, (1, 3, 50), [1] * 4)]
)
def test_strips_of_an_image(tile: int, size: tuple[int, ...], pads: list[int]) -> None:
    """Strips that are whole and that are not, against NumPy; their results are a convolution's."""
    batch, height, width = size
    x, w, bias = values(batch, 3, height, width, 8), values(16, 24, 3, 3), values(2, 8)
    transposed = winograd_weights(w.transpose(2, 3, 1, 0), square(tile)).reshape(
        tile + 2, tile + 2, 3, 8, 2, 8
    )
    factors = np.ascontiguousarray(transposed.transpose(0, 1, 4, 2, 3, 5))
    (got,) = check("winograd_strips", [x, factors, bias], symbolic=False, atol=1e-3, pads=pads)
    plain = x.transpose(0, 1, 4, 2, 3).reshape(batch, 24, height, width)
    attrs = {"strides": (), "pads": tuple(pads), "dilations": (), "groups": 1}
    (want,) = find_op("conv").evaluate([plain, w, bias.reshape(-1)], attrs)
    found = got.transpose(0, 1, 4, 2, 3).reshape(want.shape)
    np.testing.assert_allclose(found, want, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize(
    ("size", "axes"),
    [
        ((7, 9), (Along(1, 1, 1, 1), Along(7, 1, 4, 5))),
        ((9, 7), (Along(7, 1, 3, 4), Along(1, 1, 1, 1))),
        ((6, 11), (Along(5, 1, 3, 4), Along(4, 1, 2, 3))),
        ((9, 8), (Along(3, 2, 2, 5), Along(3, 2, 1, 1, 1))),
        ((5, 10), (Along(7, 3, 3, 2), Along(5, 2, 2, 3, 1))),
    ],
    ids=str,
)
def test_windows_of_other_kernels(size: tuple[int, int], axes: tuple[Along, Along]) -> None:
    """The taps of one phase, in groups, are the convolution by a kernel that is zero elsewhere."""
    x, w = values(2, 2, *size, 8), values(8, 16, *(a.kernel for a in axes))
    kernel, strides, taps, tiles, phases = zip(*axes, strict=True)
    attrs = {"kernel": kernel, "strides": strides, "taps": taps, "phases": phases, "tiles": tiles}
    pads = [k // 2 for k in (*kernel, *kernel)]
    near: Any = {"symbolic": False, "atol": 1e-3, "rtol": 1e-4}
    (found,) = check("winograd_tiles", [x], pads=pads, **attrs, **near)
    factors = winograd_weights(w.transpose(2, 3, 1, 0), axes).reshape(*found.shape[:2], -1, 8)
    rows = found.reshape(*found.shape[:2], -1, factors.shape[2])
    products = (rows @ factors).reshape(*found.shape[:5], 1, 8)
    kept = np.zeros_like(w)
    own = (..., *(slice(a.phase, None, a.step) for a in axes))
    kept[own] = w[own]
    plain = x.transpose(0, 1, 4, 2, 3).reshape(2, 16, *size)
    wanted = {"strides": strides, "pads": tuple(pads), "dilations": (), "groups": 1}
    (want,) = find_op("conv").evaluate([plain, kept, None], wanted)
    extents = {"height": want.shape[2], "width": want.shape[3], "tiles": tiles, "taps": taps}
    (got,) = check("winograd_image", [products], **extents, **near)
    image = got.transpose(0, 1, 4, 2, 3).reshape(want.shape)
    np.testing.assert_allclose(image, want, atol=1e-4 * np.abs(want).max())


IMAGE = {"height": 8, "width": 8, "tiles": [4, 4]}


@pytest.mark.parametrize(
    ("operator", "shape", "attrs", "message"),
    [
        (
            "winograd_tiles",
            (1, 1, 8, 8, 4),
            {"pads": [0] * 4, "tiles": [4, 3]},
            "no tiles of 3 res",
        ),
        ("winograd_tiles", (1, 1, 8, 8, 4), {"pads": [0] * 4, "tiles": [4]}, "not two of each"),
        ("winograd_tiles", (1, 4, 8, 8), {"pads": [0] * 4, "tiles": [4, 4]}, "is no image"),
        ("winograd_image", (6, 6, 1, 2, 2, 1, 4), IMAGE | {"height": 9}, "9×8 pixels"),
        ("winograd_image", (6, 4, 1, 2, 2, 1, 4), IMAGE, "no transformed"),
        ("winograd_conv", (1, 4, 8, 8), {"pads": [0] * 4, "tile": 4}, "is no image of known"),
        ("winograd_conv", (1, 1, 8, 8, 8), {"pads": [0] * 4, "tile": 4}, "no 3×3 weights"),
        ("winograd_strips", (1, 1, 8, 8, 8), {"pads": [0] * 4}, "no transformed weights"),
    ],
)
def test_refusals(operator: str, shape: tuple[int, ...], attrs: Any, message: str) -> None:
    b = Builder("main")
    with pytest.raises(tw.UserError, match=message):
        at_once = ("winograd_conv", "winograd_strips")
        weight = [b.constant(values(1, 1, 4, 3, 3, 4))] if operator in at_once else []
        b.emit(operator, b.input("x", "f32", shape), *weight, **attrs)


# ---- whole convolutions -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "outputs", "pads"),
    [
        ((1, 64, 1, 1), 64, [1, 1, 1, 1]),
        ((1, 64, 5, 7), 64, [1, 1, 1, 1]),
        ((2, 60, 13, 13), 66, [1, 1, 1, 1]),
        ((1, 64, 14, 14), 128, [0, 1, 2, 0]),
        ((2, 64, 12, 9), 64, [0, 0, 0, 0]),
    ],
)
def test_results_are_those_of_direct_convolution(
    size: tuple[int, ...], outputs: int, pads: list[int]
) -> None:
    module = convolution(size, outputs, pads=pads)
    x = values(*size)
    (want,) = evaluate(module, [x])
    with PassContext(opt_level=3):
        (got,) = tw.build(module).run([x])
    np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize(
    ("size", "tiles"),
    [((1, 64, 14, 14), [4]), ((1, 64, 5, 16), [4]), ((8, 64, 2, 2), [2]), ((1, 64, 1, 1), [])],
)
def test_tiles_fit_the_image(size: tuple[int, ...], tiles: list[int]) -> None:
    module = convolution(size)
    made = planned(module)
    assert tiles_of(made) == tiles
    (want,) = evaluate(module, [values(*size)])
    (got,) = evaluate(made, [values(*size)])
    np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize(
    ("size", "kernel", "attrs", "terms"),
    [
        ((1, 64, 17, 17), (1, 7), {}, 1),
        ((2, 60, 9, 17), (7, 1), {}, 1),
        ((1, 64, 11, 13), (5, 5), {"pads": [2, 2, 1, 0]}, 1),
        ((1, 64, 8, 8), (3, 1), {}, 1),
        ((1, 128, 28, 27), (3, 3), {"strides": [2, 2]}, 4),
        ((1, 128, 20, 20), (3, 3), {"strides": [2, 2], "pads": [0, 0, 1, 1]}, 4),
        ((2, 64, 28, 15), (3, 3), {"strides": [2, 1]}, 2),
    ],
)
def test_other_kernels(size: tuple[int, ...], kernel: Any, attrs: Any, terms: int) -> None:
    """Long kernels in groups of taps, strided ones in phases."""
    module, x = convolution(size, size[1], kernel, **attrs), values(*size)
    assert ops_of(planned(module))["winograd_tiles"] == terms
    (want,) = evaluate(module, [x])
    with PassContext(opt_level=3):
        (got,) = tw.build(module).run([x])
    np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize(("planes", "stored"), [(54, [28, 14]), (53, [28]), (26, []), (0, [])])
def test_weights_grow_where_that_saves_most(planes: int, stored: list[int]) -> None:
    """27 planes more for tiles of 4: the larger image is served first, the other goes without."""
    b = Builder("main")
    x = b.conv(b.relu(b.input("x", "f32", (1, 64, 28, 28))), values(64, 64, 3, 3), pads=[1] * 4)
    x = b.conv(b.max_pool(x, kernel=[2, 2], strides=[2, 2]), values(64, 64, 3, 3), pads=[1] * 4)
    b.output(b.relu(x))
    with PassContext(options={"winograd_bytes": planes * 64 * 64 * 4}):
        made = planned(b.build())
    assert tiles_of(made) == [4, 4]
    calls = [b.expr for b in made.main.body if isinstance(b.expr, Call)]
    images = [c.args[0] for c in calls if c.op.name == "winograd_tiles"]
    assert [v.tensor.static_shape[2] for v in images if v is not None] == stored
    assert len(tiles_of(made, "winograd_conv")) == 2 - len(stored)


@pytest.mark.parametrize("batch", [1, 2])
def test_results_are_those_of_direct_convolution_without_more_memory(batch: int) -> None:
    size = (batch, 64, 14, 11)
    module = convolution(size, 72)
    (want,) = evaluate(module, [values(*size)])
    with PassContext(opt_level=3, options={"winograd_bytes": 0}):
        model = tw.build(module)
    assert any(k.startswith("winograd_conv_add_relu") for k in model.kernels), model.kernels
    (got,) = model.run([values(*size)])
    np.testing.assert_allclose(got, want, atol=1e-5 * np.abs(want).max())


@pytest.mark.parametrize(("divided", "step"), [(0, 1), (2, 1), (0, 2)])
def test_images_of_any_size(divided: int, step: int) -> None:
    """One program for all heights and widths; those of the tiles follow from divided ones too."""
    b = Builder("main")
    x = b.input("x", "f32", ("n", 64, "h", "w"))
    y = x
    for _ in range(divided):
        y = b.max_pool(y, kernel=[3, 3], strides=[2, 2], pads=[1] * 4)
    moved = {"pads": [1] * 4, "strides": [step, step]}
    b.output(b.relu(b.conv(y, values(64, 64, 3, 3) / np.float32(24), values(64), **moved)))
    module = b.build()
    assert tiles_of(planned(module)) == ([4] if step == 1 else [5, 5, 5, 1])
    with PassContext(opt_level=3):
        model = tw.compile(module, threads=1)
    for n, height, width in ((1, 5, 8), (2, 17, 3), (1, 16, 21)):
        image = values(n, 64, height, width)
        (want,) = evaluate(module, [image])
        np.testing.assert_allclose(model.run([image])[0], want, rtol=1e-4, atol=1e-4)


def test_what_follows_is_computed_with_the_tiles() -> None:
    with PassContext(opt_level=3):
        kernels = list(tw.build(convolution()).kernels)
    assert any(k.startswith("winograd_image_add_relu") for k in kernels), kernels


@pytest.mark.parametrize("scale", [1e30, 1e36, np.inf])
def test_enormous_weights_are_not_transformed(scale: float) -> None:
    b = Builder("main")
    x = b.input("x", "f32", (1, 64, 14, 14))
    weight = values(64, 64, 3, 3)
    weight[1, 2, 0, 1] *= np.float32(scale)
    b.output(b.conv(x, weight, pads=[1] * 4))
    module = b.build()
    assert not any(name.startswith("winograd") for name in ops_of(planned(module)))
    given = values(1, 64, 14, 14)
    for found, wanted in zip(
        tw.compile(module).run([given]), evaluate(module, [given]), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_it_can_be_turned_off() -> None:
    with PassContext(opt_level=3, disabled_passes={"winograd"}):
        kernels = list(tw.build(convolution()).kernels)
    assert not any("winograd" in k for k in kernels), kernels


@pytest.mark.parametrize(
    "module",
    [
        convolution((1, 64, 7, 7), strides=[2, 2]),
        convolution(dilations=[2, 2]),
        convolution(groups=2),
        convolution(kernel=1),
        convolution((1, 64, 1, 1), kernel=5),
        convolution((1, 8, 32, 32), 8),
    ],
    ids=["strided", "dilated", "grouped", "1x1", "few pixels", "few channels"],
)
def test_other_convolutions_stay_as_they_are(module: Module) -> None:
    found = ops_of(planned(module))
    assert found["conv_blocked"] == 1 and not tiles_of(planned(module)), found
