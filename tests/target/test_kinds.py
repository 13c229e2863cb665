"""Kinds of targets, and what each lets loops ask for."""

from __future__ import annotations

import pytest

import tilewright as tw
from tilewright import te
from tilewright.ir import Function
from tilewright.support import libcuda
from tilewright.support.errors import UserError
from tilewright.target import Target
from tilewright.target.host_gpu import nearest_gpu


def doubled() -> Function:
    x = te.placeholder((64, 64), name="X")
    return te.function([x], [te.compute((64, 64), lambda i, j: x[i, j] * 2.0, name="Y")], name="f")


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_loops_bound_to_threads_are_refused_on_a_cpu(target: str) -> None:
    s = tw.Schedule(doubled())
    s.bind(s.loops("Y")[0], "threadIdx.x")
    with pytest.raises(UserError, match=f"target '{target}': loop .* threadIdx.x: a cpu has no"):
        tw.build(s, target)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_shared_memory_is_refused_on_a_cpu(target: str) -> None:
    s = tw.Schedule(doubled())
    s.cache_read("Y", "X", "shared")
    with pytest.raises(UserError, match=r"in scope 'shared': a cpu has no such memory"):
        tw.build(s, target)


def test_matrix_registers_are_refused_in_c() -> None:
    s = tw.Schedule(doubled())
    s.cache_read("Y", "X", "tile")
    with pytest.raises(UserError, match=r"in scope 'tile'.*\n.*use 'global' or 'local'"):
        tw.build(s, "c")


def test_c_asks_nothing_of_the_processor() -> None:
    for cpu, base in (("sapphirerapids", "x86-64"), ("neoverse-v1", "generic")):
        target = Target.of(f"c -mcpu={cpu}")
        assert target.caches == Target.of(f"llvm -mcpu={cpu}").caches
        least = Target.of(f"llvm -mtriple={target.triple} -mcpu={base}")
        assert target.features == least.features
    assert not Target.of("c").flushes_denormals
    with pytest.raises(UserError, match=r"-mattr=.avx2 is of no use.*beyond its architecture"):
        Target.of("c -mattr=+avx2")


@pytest.mark.parametrize("text", ["c", "c -mcpu=znver4 -num-cores=3", "llvm -mcpu=haswell"])
def test_text_begins_with_the_kind_and_makes_the_same_target(text: str) -> None:
    target = Target.of(text)
    assert str(target).startswith(f"{text.split()[0]} ")
    assert Target.of(str(target)) == target


# ---- GPUs ---------------------------------------------------------------------------------------


def test_a_gpu_stands_beside_a_processor() -> None:
    target = Target.of("cuda -arch=sm_90a -mcpu=haswell -num-cores=4")
    assert target.gpu is not None and target.gpu.name == "sm_90a"
    assert target.host is not None and target.host.cpu == "haswell" and target.host.cores == 4
    assert target.runs_on is target.host
    assert Target.of(str(target)) == target


def test_a_gpu_is_the_same_machine_beside_any_processor() -> None:
    beside = [Target.of(f"cuda -arch=sm_90a -mcpu={cpu}") for cpu in ("haswell", "neoverse-n1")]
    assert {t.machine for t in beside} == {"cuda -arch=sm_90a"}
    assert Target.of("cuda -arch=sm_80 -mcpu=haswell").machine == "cuda -arch=sm_80"
    cpu = Target.of("llvm -mcpu=haswell -num-cores=2")
    assert cpu.machine == str(cpu) != Target.of("llvm -mcpu=haswell -num-cores=4").machine


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("cuda -arch=sm_91", "no such GPU"),
        ("llvm -arch=sm_90", "'llvm' is for processors"),
        ("llvm -mcpu=sm_90", "no such processor"),
    ],
)
def test_what_is_no_gpu_is_refused(text: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        Target.of(text)


@pytest.mark.parametrize(
    ("capability", "name"),
    [((9, 0), "sm_90a"), ((8, 7), "sm_86"), ((10, 0), "sm_90"), ((7, 0), "sm_70")],
)
def test_code_is_made_for_the_described_gpu_that_is_nearest(
    capability: tuple[int, int], name: str
) -> None:
    assert nearest_gpu(capability) == name


@pytest.mark.parametrize("name", ["", "sm_", "sm_x0", "sm_9", "sm_90b", "sm_\u0663\u0664"])
def test_what_names_no_gpu_runs_on_none(name: str) -> None:
    assert not libcuda.runs(name, (9, 0))


def test_gpus_that_are_too_old_are_told() -> None:
    with pytest.raises(UserError, match="too old"):
        nearest_gpu((6, 1))


@pytest.mark.skipif(not libcuda.why_no_driver(), reason="there is a driver")
def test_a_missing_driver_is_told_with_the_remedy() -> None:
    with pytest.raises(UserError, match="-arch"):
        Target.of("cuda")
    with pytest.raises(UserError, match="no NVIDIA GPU can be used here"):
        libcuda.call("cuInit", 0)
