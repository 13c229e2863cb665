"""The description of processors, and the tables of all of them."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from tilewright.support.errors import UserError, nearest
from tilewright.target.features import ARCHITECTURES, Features, enable
from tilewright.target.timing import CpuTiming


class Caches(NamedTuple):
    """Bytes of data cache visible to one core, by level (0: none), and of a cache line."""

    l1d: int
    l2: int
    l3: int
    line: int = 64


class Cpu(NamedTuple):
    """A processor by its LLVM name, with parameters that LLVM does not have."""

    name: str
    arch: str
    features: Features
    caches: Caches
    #: Fused multiply-adds of full vector width started per cycle.
    fma_ports: int = 2
    #: Latency of a multiply-add in cycles.
    fma_latency: int = 4
    #: The name for LLVM, where it differs.
    llvm_name: str = ""
    timing: CpuTiming = CpuTiming()
    #: The default triple, where it is not that of the architecture.
    triple: str = ""

    def variant(
        self,
        name: str,
        adds: str = "",
        caches: Caches | None = None,
        *,
        fma_ports: int = 0,
        fma_latency: int = 0,
        timing: CpuTiming | None = None,
        triple: str = "",
    ) -> Cpu:
        """A processor that differs from this one in the given parameters."""
        return Cpu(
            name,
            self.arch,
            enable(self.arch, self.features, adds.split()),
            caches or self.caches,
            fma_ports or self.fma_ports,
            fma_latency or self.fma_latency,
            timing=timing or self.timing,
            triple=triple or self.triple,
        )


def kib(l1d: int, l2: int, l3: int, line: int = 64) -> Caches:
    """Cache sizes from KiB (the line in bytes)."""
    return Caches(l1d << 10, l2 << 10, l3 << 10, line)


@cache
def cpus(arch: str) -> dict[str, Cpu]:
    """All described processors of an architecture, by name; the first is the generic one."""
    # Imported here because the tables import this module.
    from tilewright.target import cpus_arm, cpus_arm32, cpus_other, cpus_x86, gpus

    table = (*cpus_x86.CPUS, *cpus_arm.CPUS, *cpus_arm32.CPUS, *cpus_other.CPUS, *gpus.CPUS)
    found = {cpu.name: cpu for cpu in table if cpu.arch == arch}
    return {**found, "generic": next(iter(found.values()))}


def generic(arch: str) -> Cpu:
    """The baseline processor of an architecture."""
    return cpus(arch)["generic"]


def find_cpu(name: str, archs: tuple[str, ...]) -> Cpu:
    """The processor called `name` in the first of `archs` that has one."""
    for arch in archs:
        if name in cpus(arch):
            return cpus(arch)[name]
    raise _unknown(name, archs)


def _unknown(name: str, archs: tuple[str, ...]) -> UserError:
    what = f"target option -mcpu names {name!r}"
    elsewhere = [arch for arch in ARCHITECTURES if name in cpus(arch)]
    if elsewhere:
        return UserError(
            what,
            reason=f"that is a processor of {elsewhere[0]}, and the triple is {archs[0]}'s",
            remedy="change -mcpu or -mtriple",
        )
    where = archs[0] if len(archs) == 1 else "any architecture"
    known = ["native", *(n for arch in archs for n in cpus(arch))]
    reason = f"no such processor of {where} is known"
    return UserError(what, reason=reason, remedy=nearest(name, known))
