"""The figures that cost models ask for: defaults, and rows of the tables that override them."""

from __future__ import annotations

import pytest

from tilewright.target import ConvTiming, CpuTiming, Target
from tilewright.target.cpu import cpus, generic
from tilewright.target.features import ARCHITECTURES


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_processor_has_figures_that_make_sense(arch: str) -> None:
    for cpu in cpus(arch).values():
        *figures, conv = cpu.timing
        assert all(isinstance(figure, int | float) and figure > 0 for figure in figures)
        assert isinstance(conv, ConvTiming) and min(conv) > 0
        assert max(conv.blocked, conv.winograd_products, conv.bytes_share) <= 1


def test_a_row_overrides_figures_and_hands_them_on() -> None:
    wide = generic("x86_64").variant("wide", timing=CpuTiming(load_ports=3))
    assert wide.timing.load_ports == 3
    assert wide.variant("wider", fma_ports=4).timing is wide.timing


def test_a_target_has_the_figures_of_its_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target.of("llvm -mcpu=neoverse-n1")
    assert target.timing is cpus("aarch64")["neoverse-n1"].timing
    row = cpus("aarch64")["neoverse-n1"]._replace(timing=CpuTiming(fork_cycles=1))
    monkeypatch.setitem(cpus("aarch64"), "neoverse-n1", row)
    assert target.timing.fork_cycles == 1
