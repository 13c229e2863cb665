"""Layouts of images: blocked operators, the plan against all plans, and random graphs."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.graph.harness import check
from tests.graph.random_images import RandomImages
from tilewright.graph import Builder, Call, Module, PassContext, evaluate, passes, verify
from tilewright.graph.layouts import plan as plans
from tilewright.graph.layouts.images import Blocking
from tilewright.graph.layouts.plan import Option, PlannedCall, cost_of, plan
from tilewright.ir import DType
from tilewright.kernels.levels import kernel_levels

HERE = tw.Target.of("llvm")
WIDE = tw.Target.of("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids")


def values(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("f4")


def ops_of(module: Module) -> Counter[str]:
    return Counter(b.expr.op.name for b in module.main.body if isinstance(b.expr, Call))


# ---- operators ----------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [8, 6])
def test_blocking_and_back(channels: int) -> None:
    x = values(2, channels, 3, 5)
    (blocked,) = check("to_blocked", [x], symbolic=False, block=4)
    assert blocked.shape == (2, 2, 3, 5, 4)
    assert not blocked[:, 1, :, :, channels - 4 :].any()
    check("from_blocked", [blocked], symbolic=False, channels=channels, expected=x)


def test_what_fills_the_last_block_is_cleared() -> None:
    x = values(2, 2, 3, 5, 4)
    (cleared,) = check("clear_fill", [x], symbolic=False, channels=6)
    assert not cleared[:, 1, :, :, 2:].any()
    np.testing.assert_array_equal(cleared[:, 0], x[:, 0])
    np.testing.assert_array_equal(cleared[:, 1, :, :, :2], x[:, 1, :, :, :2])


def test_packed_weights() -> None:
    w = values(6, 5, 3, 3)
    (packed,) = check("pack_conv_weights", [w], symbolic=False, in_block=4, out_block=8)
    assert packed.shape == (1, 2, 3, 3, 4, 8)
    assert packed[0, 1, 2, 0, 0, 5] == w[5, 4, 2, 0]
    assert packed.astype(bool).sum() == w.size
    (plain,) = check("pack_conv_weights", [w], symbolic=False, in_block=0, out_block=4)
    assert plain.shape == (2, 5, 3, 3, 4)
    assert plain[1, 3, 1, 2, 1] == w[5, 3, 1, 2]


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_conv_blocked_is_conv(groups: int) -> None:
    x, w, bias = values(1, 16, 6, 7), values(32, 16 // groups, 3, 3), values(32)
    attrs: dict[str, Any] = {
        "strides": [2, 1],
        "pads": [1, 0, 1, 2],
        "dilations": [1, 2],
        "groups": groups,
    }
    (want,) = tw.graph.find_op("conv").evaluate([x, w, bias], attrs)
    blocked = np.ascontiguousarray(x.reshape(1, 4, 4, 6, 7).transpose(0, 1, 3, 4, 2))
    packed = w.reshape(8, 4, 4 // groups, 4, 3, 3).transpose(0, 2, 4, 5, 3, 1)
    operands = [blocked, np.ascontiguousarray(packed), bias.reshape(8, 4)]
    (got,) = check("conv_blocked", operands, atol=1e-4, symbolic=False, **attrs)
    np.testing.assert_array_equal(got.transpose(0, 1, 4, 2, 3).reshape(want.shape), want)


# ---- the plan -----------------------------------------------------------------------------------


def test_options_are_weighed_once_for_states_that_differ_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def weighed(others: int) -> int:
        """Options whose cost is found, with so many values live whose layout does not matter."""
        either = [Option((), layout, 1.0) for layout in range(2)]
        steps = [PlannedCall(k, either) for k in range(others)]
        for k in range(others, others + 20):
            takes = [((k - 1, layout),) if k > others else () for layout in range(2)]
            steps.append(PlannedCall(k, [Option(t, g, 1.0) for g, t in enumerate(takes)]))
        last = tuple((k, 0) for k in (*range(others), others + 19))
        steps.append(PlannedCall(None, [Option(last, 0, 0.0)]))
        asked: list[Option] = []
        monkeypatch.setattr(plans, "_take", lambda s, p, o, c: asked.append(o) or take(s, p, o, c))
        plan(steps, lambda _, old, new: float(old != new))
        # The last step is about all of them.
        return sum(len(o.takes) < 2 for o in asked)

    take = plans._take
    assert weighed(6) < weighed(0) + 20


def random_problem(seed: int) -> tuple[list[PlannedCall], Any]:
    rng = np.random.default_rng(seed)
    changes = rng.integers(1, 9, (8, 3, 3)).astype(float)
    steps: list[PlannedCall] = []
    last = int(rng.integers(3, 8)) - 1
    for made in range(1, last + 1):
        takes = rng.integers(0, made, int(rng.integers(1, 3)))
        options = [
            Option(
                tuple((int(v), int(rng.integers(3))) for v in dict.fromkeys(takes.tolist())),
                int(rng.integers(3)),
                float(rng.integers(0, 9)),
            )
            for _ in range(int(rng.integers(1, 4)))
        ]
        steps.append(PlannedCall(made, options))
    steps.append(PlannedCall(None, [Option(((last, 0),), 0, 0.0)]))
    return steps, lambda v, old, new: float(changes[v, old, new])


@pytest.mark.parametrize("seed", range(40))
def test_plan_is_the_best_of_all(seed: int) -> None:
    steps, change = random_problem(seed)
    every = itertools.product(*(range(len(s.options)) for s in steps))
    best = min(cost_of(steps, chosen, change) for chosen in every)
    assert cost_of(steps, plan(steps, change, limit=10**6), change) == best


@pytest.mark.parametrize("limit", [1, 4])
def test_plan_within_a_limit_is_no_worse_than_greedy(limit: int) -> None:
    found = [random_problem(seed) for seed in range(20)]
    exact = sum(cost_of(s, plan(s, c, limit=10**6), c) for s, c in found)
    bounded = sum(cost_of(s, plan(s, c, limit=limit), c) for s, c in found)
    assert exact <= bounded <= 1.6 * exact


def test_blocks_come_from_the_machine() -> None:
    image = tw.graph.TensorType("f32", [1, 24, 8, 8])
    assert Blocking(HERE).widths[-1] == HERE.lanes("float32")
    assert Blocking(WIDE).blocks(image) == [16]
    narrow = tw.Target.of("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3")
    assert Blocking(narrow).blocks(image) == [8]


# ---- whole graphs -------------------------------------------------------------------------------


def residual_block() -> Module:
    b = Builder("main")
    x = b.input("x", "f32", ("n", 3, "h", "w"))
    a = b.relu(b.conv(x, values(32, 3, 3, 3), strides=[2, 2], pads=[1] * 4))
    c = b.relu(b.conv(a, values(16, 32, 1, 1), values(16)))
    d = b.conv(c, values(32, 16, 3, 3) / 12, pads=[1] * 4)
    e = b.relu(b.add(d, a))
    pooled = b.max_pool(e, kernel=[3, 3], strides=[2, 2], pads=[1] * 4)
    b.output(b.mean(pooled, axes=[2, 3]))
    return b.build()


@pytest.mark.parametrize("target", [HERE, WIDE])
def test_a_residual_block_changes_no_layouts(target: tw.Target) -> None:
    planned = passes.constant_folding(passes.plan_layouts(target)(residual_block()))
    verify(planned)
    found = ops_of(planned)
    assert found["conv_into_blocked"] == 1
    assert found["conv_blocked"] == 2
    assert not found["to_blocked"] and not found["from_blocked"] and not found["conv"]


@pytest.mark.parametrize("channels", [32, 18])
def test_whole_images_are_reduced_where_they_lie(channels: int) -> None:
    """But for images that do not fill their last block, which would count."""
    b = Builder("main")
    x = b.input("x", "f32", (2, 16, 9, 9))
    image = b.add(b.conv(x, values(channels, 16, 3, 3)), np.float32(100))
    least = b.min(image, axes=[1, 2, 3], keepdims=True)
    b.output(b.mean(b.conv(b.sub(image, least), values(16, channels, 3, 3)), axes=[2, 3]))
    b.output(b.min(image, axes=[1, 2, 3]))
    module = b.build()
    planned = passes.constant_folding(passes.plan_layouts(HERE)(module))
    verify(planned)
    assert bool(ops_of(planned)["from_blocked"]) == (channels == 18)
    array = values(2, 16, 9, 9)
    for found in (evaluate(planned, [array]), tw.compile(module).run([array])):
        for got, want in zip(found, evaluate(module, [array]), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-3)


def test_blocks_that_channels_do_not_fill_stay_blocked() -> None:
    """Adding a number to channels that only fill a block would make them more than zeros."""
    b = Builder("main")
    x = b.input("x", "f32", (1, 32, "h", "w"))
    a = b.conv(x, values(40, 32, 3, 3), pads=[1] * 4)
    swished = b.mul(a, b.sigmoid(b.add(a, b.constant(np.float32(3)))))
    b.output(b.conv(swished, values(32, 40, 3, 3)))
    module = b.build()
    planned = passes.constant_folding(passes.plan_layouts(WIDE)(module))
    verify(planned)
    found = ops_of(planned)
    assert found["clear_fill"] == 2 and found["to_blocked"] <= 1 and found["from_blocked"] == 1
    array = values(1, 32, 5, 6)
    (got,), (want,) = evaluate(planned, [array]), evaluate(module, [array])
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("channels", "filled"), [(1, 4), (3, 4), (6, 8)])
def test_bytes_of_few_channels_are_filled_up_to_what_is_summed_at_once(
    channels: int, filled: int
) -> None:
    rng = np.random.default_rng(channels)
    array = rng.integers(-128, 128, (1, channels, 19, 18)).astype(np.int8)
    weight = rng.integers(-127, 128, (40, channels, 3, 3)).astype(np.int8)
    b = Builder("main")
    x = b.input("x", "i8", (1, channels, 19, 18))
    attrs = {"strides": [2, 2], "pads": [0, 1, 1, 1], "fill": -5}
    b.output(b.conv(x, weight, b.constant(np.arange(40, dtype="i4")), dtype="i32", **attrs))
    module = b.build()
    planned = passes.plan_layouts(WIDE)(module)
    (call,) = [
        c.expr
        for c in planned.main.body
        if isinstance(c.expr, Call) and c.expr.op.name == "conv_blocked"
    ]
    image = call.args[0]
    assert image is not None and image.shape[-1] == filled
    (want,) = evaluate(module, [array])
    np.testing.assert_array_equal(evaluate(planned, [array])[0], want)
    np.testing.assert_array_equal(tw.compile(module).run([array])[0], want)


def test_symbolic_images_are_compiled() -> None:
    module = residual_block()
    model = tw.compile(module, opt_level=3)
    for shape in [(1, 3, 9, 12), (2, 3, 16, 7)]:
        (want,) = evaluate(module, [values(*shape)])
        np.testing.assert_allclose(model.run([values(*shape)])[0], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", [HERE, WIDE])
@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_keep_their_results(seed: int, target: tw.Target) -> None:
    images = RandomImages(seed, spatial=1 + seed % 3)
    module = images.module(steps=8)
    planned = passes.plan_layouts(target)(module)
    verify(planned)
    shapes = [v.tensor.static_shape for v in images.inputs]
    arrays = [values(*s) for s in shapes]
    for got, want in zip(evaluate(planned, arrays), evaluate(module, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("seed", range(2))
def test_random_graphs_with_symbolic_sizes_are_compiled(seed: int) -> None:
    images = RandomImages(seed + 100, symbolic=True)
    module = images.module(steps=6)
    model = tw.compile(module, opt_level=3)
    x = values(2, images.channels(images.inputs[0]), 9, 6)
    for got, want in zip(model.run([x]), evaluate(module, [x]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_what_is_not_a_number_stays_where_it_is() -> None:
    """Channels that only fill blocks meet no infinity of other channels."""
    b = Builder("main")
    x = b.input("x", "f32", (1, 6, 4, 4))
    a = b.conv(x, values(6, 6, 1, 1))
    b.output(b.conv(b.exp(b.mul(a, b.constant(np.float32(1e4)))), values(32, 6, 3, 3)))
    module = b.build()
    planned = passes.plan_layouts(WIDE)(module)
    array = values(1, 6, 4, 4)
    with np.errstate(all="ignore"):
        (got,), (want,) = evaluate(planned, [array]), evaluate(module, [array])
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


def test_graphs_inside_use_plain_images() -> None:
    b = Builder("main")
    x, flag = b.input("x", "f32", (1, 16, 8, 8)), b.input("flag", "bool")
    a = b.relu(b.conv(x, values(32, 16, 3, 3)))
    both = b.branch(
        flag, lambda: b.conv(a, values(16, 32, 3, 3)), lambda: b.conv(a, values(16, 32, 3, 3) * 2)
    )
    b.output(both)
    module = b.build()
    planned = passes.plan_layouts(HERE)(module)
    verify(planned)
    assert ops_of(planned)["from_blocked"] == 1
    for flag_value in (True, False):
        inputs = [values(1, 16, 8, 8), np.array(flag_value)]
        (got,), (want,) = evaluate(planned, inputs), evaluate(module, inputs)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_graphs_without_convolutions_stay_as_they_are() -> None:
    b = Builder("main")
    x = b.input("x", "f32", (1, 16, 8, 8))
    b.output(b.max_pool(b.relu(x), kernel=[2, 2]))
    module = b.build()
    assert passes.plan_layouts(HERE)(module) is module


def test_a_limit_of_states_is_an_option() -> None:
    module = RandomImages(7).module(steps=10)
    with PassContext(options={"layout_states": 1}):
        planned = passes.plan_layouts(HERE)(module)
    x = values(*module.main.params[0].tensor.static_shape)
    for got, want in zip(evaluate(planned, [x]), evaluate(module, [x]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


# ---- sizes --------------------------------------------------------------------------------------


def test_halved_images_share_kernels_over_their_own_sizes() -> None:
    b = Builder("main")
    x = b.input("x", "f32", ("n", 16, "h", "w"))
    weight = values(16, 16, 3, 3) / 12
    for _ in range(3):
        x = b.relu(b.conv(x, weight, strides=[2, 2], pads=[1] * 4))
        x = b.relu(b.conv(x, weight, pads=[1] * 4))
    b.output(x)
    module = b.build()
    model = tw.compile(module, opt_level=3)
    kernels = [k for k in model.kernels if k.startswith("conv")]
    assert len(kernels) < 6, "sizes that were divided make kernels of their own"
    assert not any(k.startswith("relu") for k in model.kernels), "activations are epilogues"
    array = values(2, 16, 21, 18)
    (want,) = evaluate(module, [array])
    np.testing.assert_allclose(model.run([array])[0], want, rtol=1e-4, atol=1e-4)


#: Transposed convolutions: rank, channels in and out, window, strides, pads, extra at the end.
TRANSPOSED = [
    (1, 16, 32, [3], [3], [0, 0], [0]),
    (2, 16, 32, [2, 3], [2, 3], [0] * 4, [0, 0]),
    (2, 24, 1, [2, 2], [2, 2], [0] * 4, [0, 0]),
    (2, 24, 24, [2, 2], [2, 2], [0] * 4, [0, 0]),
    (2, 16, 40, [4, 4], [2, 2], [1, 1, 1, 1], [0, 0]),
    (2, 16, 16, [3, 3], [2, 2], [1, 1, 1, 1], [1, 1]),
    (2, 20, 16, [3, 5], [1, 3], [0, 2, 1, 0], [0, 2]),
    (1, 32, 16, [16], [8], [4, 4], [0]),
    (1, 16, 16, [2], [3], [0, 0], [2]),
    (1, 16, 16, [4], [2], [3, 2], [0]),
    (3, 16, 16, [2, 2, 2], [2, 2, 2], [0] * 6, [0] * 3),
]


@pytest.mark.parametrize("case", TRANSPOSED)
def test_transposed_convolutions_are_convolutions_of_phases(case: Any) -> None:
    rank, inputs, outputs, window, strides, pads, extra = case
    b = Builder("main")
    x = b.input("x", "f32", ("n", inputs, *"dhw"[:rank]))
    weight, bias = values(inputs, outputs, *window), values(outputs)
    attrs = {"strides": strides, "pads": pads, "output_pads": extra}
    b.output(b.relu(b.conv_transpose(b.relu(x), weight, bias, **attrs)))
    module = b.build()
    model = tw.compile(module, threads=1)
    assert isinstance(model, tw.Model)
    assert any("phases_to_image" in name for name in model.kernels)
    for size in ((2, 2, 2), (5, 4, 3), (16, 17, 2)):
        image = values(2, inputs, *size[:rank])
        (want,) = evaluate(module, [image])
        np.testing.assert_allclose(model.run([image])[0], want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("channels", "dtype"), [(24, "f32"), (17, "f32"), (64, "i8"), (31, "f64")])
def test_images_change_their_layout_by_tiles(channels: int, dtype: str) -> None:
    """Sizes that are known and not, rows that fill tiles and do not."""
    for sizes in ((1, 1), (16, 16), (7, 33)):
        for shape in (sizes, ("h", "w")):
            b = Builder("main")
            x = b.input("x", dtype, ("n", channels, *shape))
            blocked = b.emit("to_blocked", x, block=16)
            b.output(blocked, b.emit("from_blocked", b.abs(blocked), channels=channels))
            module = b.build()
            model = tw.compile(module, threads=1)
            image = (values(2, channels, *sizes) * 40).astype(DType.of(dtype).numpy)
            for got, want in zip(model.run([image]), evaluate(module, [image]), strict=True):
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("sizes", [(40, 40), ("h", "w")])
@pytest.mark.parametrize("channels", [24, 64])
def test_tiles_go_through_registers_whatever_the_sizes(sizes: Any, channels: int) -> None:
    b = Builder("main")
    x = b.input("x", "f32", (1, -(-channels // 16), *sizes, 16))
    b.output(b.emit("from_blocked", x, channels=channels))
    model = tw.compile(b.build(), target="llvm -mcpu=skylake-avx512 -num-cores=2")
    assert isinstance(model, tw.Model)
    (name,) = model.kernels
    assert "transpose.f32x16x16" in kernel_levels(model.ir(name), model.target).scheduled


@pytest.mark.parametrize("dtype", ["i8", "f32"])
def test_images_change_their_layout_before_they_are_computed_with(dtype: str) -> None:
    """By tiles, in a kernel of its own: vectors of channels lie side by side behind it."""
    b = Builder("main")
    x = b.input("x", dtype, (1, 64, 14, 14))
    three, one = (x.dtype.numpy.type(v) for v in (3, 1))
    b.output(b.add(b.mul(b.emit("to_blocked", x, block=16), three), one))
    module = b.build()
    model = tw.compile(module, target="llvm -mcpu=neoverse-n1 -num-cores=2")
    assert isinstance(model, tw.Model)
    moves, _ = model.kernels
    assert "transpose." in kernel_levels(model.ir(moves), model.target).scheduled


def test_a_change_of_layout_that_undoes_a_transpose_goes_with_it() -> None:
    """Together they copy what lies side by side."""
    b = Builder("main")
    x = b.input("x", "i8", (1, 20, 1, 64))
    b.output(b.emit("to_blocked", b.transpose(x, axes=[0, 3, 1, 2]), block=64))
    model = tw.compile(b.build(), target="llvm -mcpu=neoverse-n1 -num-cores=2")
    assert isinstance(model, tw.Model)
    assert len(model.kernels) <= 1
