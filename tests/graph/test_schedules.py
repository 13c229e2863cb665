"""What the default rules make of operators: nothing is repeated, and steps of scans are vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tilewright.graph import TensorType, Value, find_op
from tilewright.ir import For, Function, Store, Var, const, function_text, is_const, walk
from tilewright.kernels.pipeline import lowered
from tilewright.schedule import Schedule, schedule_by_rules
from tilewright.target import Target
from tilewright.tensor import te


def scheduled(
    name: str,
    shapes: Sequence[tuple[int | str, ...]],
    constants: Sequence[int] = (),
    target: str = "llvm -mtriple=x86_64-unknown-linux-gnu",
    **attrs: Any,
) -> Function:
    return schedule_by_rules(defined(name, shapes, constants, **attrs), Target.of(target))


def defined(
    name: str,
    shapes: Sequence[tuple[int | str, ...]],
    constants: Sequence[int] = (),
    **attrs: Any,
) -> Function:
    op = find_op(name)
    dims = [[Var(d) if isinstance(d, str) else d for d in shape] for shape in shapes]
    values = [Value(f"x{k}", TensorType("float32", shape)) for k, shape in enumerate(dims)]
    bound, full = op.bind(values, attrs)
    tensors = [None if v is None else te.placeholder(v.shape, v.dtype, v.name) for v in bound]
    outs = op.define(tensors, full, op.infer(bound, full))
    function = te.function([t for t in tensors if t is not None], list(outs), name=name)
    return replace(function, attrs={"constants": list(constants)})


def test_moments_are_computed_once_for_each_channel() -> None:
    s = Schedule(scheduled("instance_norm", [(2, 3, 8, 16), (3,), (3,)]))
    shared = [set(s.loops(b)) & set(s.loops("instance_norm")) for b in s.blocks()]
    sums = [len(n) for n, b in zip(shared, s.blocks(), strict=True) if "_sum" in b.name]
    assert sums
    assert max(sums) <= 2


def test_rows_of_a_softmax_share_their_loop() -> None:
    s = Schedule(scheduled("softmax", [(6, 40)]))
    last = s.blocks()[-1]
    assert all(set(s.loops(b)) & set(s.loops(last)) for b in s.blocks())


def test_steps_of_a_scan_are_vectors() -> None:
    function = scheduled("lstm_scan", [(5, 1, 64), (1, 16, 64)])
    s = Schedule(function)
    for name in ("moved", "c", "h"):
        kinds = [s.loop_of(loop).kind for loop in s.loops(name)]
        assert kinds[-1] == "vectorized", function_text(function)


def test_the_product_in_a_step_keeps_its_sums_in_registers() -> None:
    s = Schedule(scheduled("lstm_scan", [(5, 1, 512), (1, 128, 512)], constants=[1]))
    time = s.loops("moved")[0]
    assert s.loops("moved_local")[0] == time, "each step has its own sums"
    assert time not in s.loops("moved_weights"), "weights are packed before all steps"
    assert s.loop_of(s.loops("moved")[-1]).kind == "vectorized"


@pytest.mark.parametrize("batch", [1, 6])
def test_threads_meet_once_in_a_step(batch: int) -> None:
    shapes = [(5, batch, 4096), (2, 512, 2048)]
    s = Schedule(scheduled("lstm_scan", shapes, constants=[1], direction="bidirectional"))
    shared = s.loops("moved")[:2]
    assert [s.loop_of(loop).kind for loop in shared] == ["serial", "parallel"]
    assert all(s.loops(name)[:2] == shared for name in ("c", "h"))


def test_a_product_that_waits_for_a_step_has_threads_of_its_own() -> None:
    s = Schedule(scheduled("gru_scan", [(5, 1, 1536), (1, 512, 1536)], constants=[1]))
    (step, moved), (_, last) = (s.loops(name)[:2] for name in ("moved", "last"))
    assert s.loops("reset")[:2] == (step, moved)
    assert s.loops("h")[:2] == (step, last)
    assert moved != last


def test_short_steps_are_not_shared_out() -> None:
    s = Schedule(scheduled("lstm_scan", [(500, 1, 256), (1, 64, 256)], constants=[1]))
    assert all(s.loop_of(loop).kind != "parallel" for loop in s.loops("h"))


@pytest.mark.parametrize("batch", [1, "b"])
def test_short_steps_in_both_directions_are_shared_out_by_directions(batch: int | str) -> None:
    target = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=cascadelake -num-cores=2"
    shapes, options = [("t", batch, 1024), (2, 128, 512)], {"direction": "bidirectional"}
    s = Schedule(scheduled("lstm_scan", shapes, [1], target, **options))
    shared = s.loops("moved")[:2]
    assert [s.loop_of(loop).kind for loop in shared] == ["parallel", "serial"]
    assert all(s.loops(name)[:2] == shared for name in ("c", "h"))


@pytest.mark.parametrize(("channels", "pixels"), [(34, 784), (68, 196), (136, 49), (29, 784)])
def test_pixels_of_grouped_convolutions_are_one_dimension(channels: int, pixels: int) -> None:
    """Tiles end with a group, so that what follows is computed in them."""
    target = Target.of("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=cascadelake -num-cores=2")
    side, count = int(pixels**0.5), 4 * channels
    shapes = [(1, count, side, side), (count, channels, 1, 1), (count,)]
    function = defined("conv", shapes, [1, 2], groups=4)
    made = schedule_by_rules(function, target, by_address=True)
    assert "refused" not in made.attrs
    s = Schedule(made)
    assert [it.extent for it in s.block_of("grouped").iters][3] is const(pixels)
    last = s.blocks()[-1].name
    assert s.loops("grouped")[:3] == s.loops(last)[:3]


def test_steps_of_few_rows_sum_up_no_more_than_these() -> None:
    """Their state is an intermediate buffer, which may be as long as tiles compute."""
    target = Target.of("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=cascadelake -num-cores=2")
    function = scheduled("lstm_scan", [("t", "b", 512), (1, 128, 512)], [1], str(target))
    loops = [s for s in walk(lowered(function, target).body) if isinstance(s, For)]
    sums = [loop for loop in loops if loop.var.name.startswith("k")]
    stores = [sum(isinstance(s, Store) for s in walk(loop.body)) for loop in sums]
    assert min(stores) * 4 == max(stores), "a version for one row of four"


@pytest.mark.parametrize("size", [(64, 64), ("h", "w")])
def test_images_that_all_channels_read_are_padded_once(size: tuple[int | str, ...]) -> None:
    """A plain convolution with few channels: by vectors, on all cores."""
    target = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=cascadelake -num-cores=2"
    function = scheduled("conv", [(1, 3, *size), (8, 3, 3, 3)], target=target, pads=[1] * 4)
    assert "refused" not in function.attrs, function.attrs
    s = Schedule(function)
    own, padding = s.loops("conv"), s.loops(s.blocks()[0])
    longer = [s.loop_of(loop) for loop in own if not is_const(s.loop_of(loop).extent, 1)]
    assert [longer[k].kind for k in (0, -1)] == ["parallel", "vectorized"]
    assert not set(own) & set(padding)
