"""Whole models for GPUs, run by the executor that stands for one."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.conformance.cases import is_close, load_cases
from tilewright import te
from tilewright.graph import Builder
from tilewright.graph import Module as Graph
from tilewright.ir import Function
from tilewright.support import libcuda
from tilewright.support.errors import UserError

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)

#: One of each way in which host programs and kernels meet: loops and branches that the host
#: decides, sizes that it reads, results that it hands over, numbers that it sends.
CASES = [
    "test_loop11",
    "test_if",
    "test_compress_0",
    "test_nonzero_example",
    "test_range_int32_type_negative_delta",
    "test_unique_sorted_with_axis_3d",
    "test_top_k",
    "test_scatternd_add",
    "test_nonmaxsuppression_two_batches",
    "test_gru_batchwise",
    "test_layer_normalization_3d_axis1_epsilon",
    "test_convtranspose_dilations",
    "test_maxpool_2d_ceil_output_size_reduce_by_one",
    "test_nllloss_NCd1d2_no_weight_reduction_mean_ii",
    "test_constantofshape_float_ones",
]


def weights(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def network() -> Graph:
    b = Builder()
    x = b.input("x", "f32", ("n", 3, 12, 12))
    y = b.relu(b.conv(x, weights(8, 3, 3, 3), pads=(1, 1, 1, 1)))
    y = b.mean(y, axes=(2, 3))
    b.output(b.softmax(b.matmul(y, weights(8, 10))))
    return b.build()


def test_a_network_of_any_batch() -> None:
    graph = network()
    here, there = tw.compile(graph), tw.compile(graph, "simt")
    for n in (1, 3):
        x = weights(n, 3, 12, 12)
        np.testing.assert_allclose(there(x), here(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_what_the_host_decides(name: str) -> None:
    (case,) = [c for c in load_cases("node") if c.name == name]
    model = tw.compile(case.model, "simt")
    for inputs, wanted in case.data:
        assert is_close(model.run(list(inputs)), list(wanted), case.rtol, case.atol)


def test_code_that_takes_the_place_of_other_code_is_its_own() -> None:
    """Kernels are known by where they lie, which others may later do as well."""
    for k in range(1, 5):
        b = Builder()
        b.output(b.mul(b.input("x", "f32", (16,)), np.float32(k)))
        x = weights(16)
        np.testing.assert_array_equal(tw.compile(b.build(), "simt")(x), x * np.float32(k))
        gc.collect()


def test_checks_that_fail_on_the_device_are_told() -> None:
    b = Builder()
    table, at = b.input("table", "f32", (5,)), b.input("at", "i64", (3,))
    b.output(b.take(table, at, axis=0))
    model = tw.compile(b.build(), "simt")
    with pytest.raises(UserError, match="stopped"):
        model(weights(5), np.array([0, 7, 1]))
    np.testing.assert_array_equal(
        model(np.arange(5, dtype=np.float32), np.array([0, 4, 1])), [0, 4, 1]
    )


def test_arrays_cross_by_dlpack() -> None:
    from tilewright.runtime.gpu import dlpack
    from tilewright.runtime.gpu.arrays import DeviceArray
    from tilewright.simt.device import DEVICE

    array = DeviceArray(DEVICE, (3, 4), np.dtype(np.float32))
    array.fill(np.arange(12, dtype=np.float32).reshape(3, 4))
    held = dlpack.held_capsules()
    seen = np.from_dlpack(array)
    np.testing.assert_array_equal(seen, array.numpy())
    assert dlpack.held_capsules() == held + 1
    del seen
    capsule = array.__dlpack__()
    del capsule
    gc.collect()
    assert dlpack.held_capsules() == held


def test_sequences_stay_with_processors() -> None:
    (case,) = [c for c in load_cases("node") if c.name == "test_sequence_insert_at_back"]
    with pytest.raises(UserError, match="sequences or optionals"):
        tw.compile(case.model, "simt")


# ---- code for GPUs ------------------------------------------------------------------------------


def doubled(n: int) -> Function:
    x = te.placeholder((n,), name="X")
    return te.function([x], [te.compute((n,), lambda i: x[i] * 2.0, name="Y")], name="f")


@pytest.mark.parametrize("arch", ["sm_70", "sm_80", "sm_90a"])
def test_ptx_of_each_architecture(arch: str) -> None:
    module = tw.build(doubled(1024), f"cuda -arch={arch}")
    assert f".target {arch}" in module.asm and ".visible .entry f_0(" in module.asm


def test_neighbours_are_loaded_together() -> None:
    assert "ld.global.v4" in tw.build(doubled(1 << 16), "cuda -arch=sm_90a").asm


def test_doubling_is_no_part_of_a_fused_operation() -> None:
    x = te.placeholder((64,), name="X")
    made = te.compute((64,), lambda i: x[i] * x[i] * 2.0, name="Y")
    module = tw.build(te.function([x], [made], name="f"), "cuda -arch=sm_90a")
    assert "fma" not in module.asm


@pytest.mark.skipif(not libcuda.why_no_driver(), reason="there is a GPU")
def test_models_for_gpus_are_saved_where_there_is_none(tmp_path: Path) -> None:
    model = tw.compile(network(), "cuda -arch=sm_90a")
    with pytest.raises(UserError, match="for an NVIDIA GPU, and there is no driver"):
        model(weights(1, 3, 12, 12))
    model.save(tmp_path / "net.twm")
    with pytest.raises(UserError, match="no driver"):
        tw.load(tmp_path / "net.twm")(weights(1, 3, 12, 12))


# ---- what a GPU does not have -------------------------------------------------------------------


def test_too_many_threads_are_refused() -> None:
    s = tw.Schedule(doubled(4096))
    block, thread = s.split(s.loops("Y")[0], None, 2048)
    s.bind(block, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    with pytest.raises(UserError, match="2048 threads, and sm_90a takes 1024"):
        tw.build(s, "cuda -arch=sm_90a")


def test_elements_outside_of_launches_are_refused() -> None:
    with pytest.raises(UserError, match="outside of all loops over blocks"):
        tw.build(tw.Schedule(doubled(64)), "simt")
