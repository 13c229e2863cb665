"""Kinds of targets, and what each lets loops ask for."""

from __future__ import annotations

import pytest

import tilewright as tw
from tilewright import te
from tilewright.ir import Function
from tilewright.support.errors import UserError
from tilewright.target import Target


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
