"""Detects this machine: by LLVM first, then by the operating system.

LLVM is imported inside functions, so that naming a target does not load it.
"""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path
from typing import Any

from tilewright.support.config import parse_size
from tilewright.target.cpu import Caches, Cpu, cpus, generic
from tilewright.target.features import Features, disable, enable, reasoned_about
from tilewright.target.flags import CPUINFO, read_flags, read_name
from tilewright.target.triple import arch_of, default_triple

_CACHE_DIR = Path("/sys/devices/system/cpu/cpu0/cache")


@cache
def host_triple() -> str:
    """The triple of code for this process."""
    llvm = _llvm()
    return default_of_system() if llvm is None else str(llvm.get_process_triple())


@cache
def host_cpu() -> Cpu:
    """This machine's processor; an unknown one is replaced by the closest known one."""
    llvm, arch = _llvm(), arch_of(host_triple())
    reported = reported_features(arch)
    name = read_name(CPUINFO, arch) if llvm is None else llvm.get_host_cpu_name()
    cpu = cpus(arch).get(name) or closest_cpu(arch, reported)
    features = actual_features(cpu, reported)
    return cpu._replace(features=features, caches=read_caches(_CACHE_DIR, cpu.caches))


def host_cores() -> int:
    """The number of cores that this process may use, now."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1


def reported_features(arch: str) -> dict[str, bool]:
    """The features that LLVM or the system can detect, and whether they are present."""
    llvm = _llvm()
    try:
        reported: dict[str, bool] = {} if llvm is None else dict(llvm.get_host_cpu_features())
    except RuntimeError:  # this LLVM cannot tell here
        reported = {}
    if arch == "aarch64" or llvm is None:
        reported |= read_flags(CPUINFO, arch)
    return reported


def default_of_system() -> str:
    """The triple for the system's own name of its architecture."""
    return default_triple(arch_of(platform.machine() or "unknown"), "")


def _llvm() -> Any:
    """LLVM, the best source; None on devices that only run compiled code."""
    try:
        import llvmlite.binding as llvm
    except ImportError:
        return None
    return llvm


def actual_features(cpu: Cpu, reported: dict[str, bool]) -> Features:
    """The features of `cpu` here: a virtual machine may hide some that its name implies."""
    known = reasoned_about(cpu.arch)
    present = [f for f, there in reported.items() if there and f in known]
    absent = [f for f, there in reported.items() if not there]
    return disable(cpu.arch, enable(cpu.arch, cpu.features, present), absent)


def closest_cpu(arch: str, reported: dict[str, bool]) -> Cpu:
    """The known processor with the most features, all of which are present here."""
    # On other architectures too few features are reported to distinguish processors.
    if arch != "x86_64":
        return generic(arch)
    present = {f for f, there in reported.items() if there}
    able = [cpu for cpu in cpus(arch).values() if cpu.features <= present]
    return max(able, key=lambda cpu: len(cpu.features), default=generic(arch))


def read_caches(directory: Path, default: Caches) -> Caches:
    """The caches reported by Linux, with defaults for missing ones."""
    found = [level for level in map(_read_cache, sorted(directory.glob("index*"))) if level]
    if not found:
        return default
    sizes = {level: size for level, size, _ in found}
    # A missing level below a listed one is unknown; above the last listed one there is none.
    last = max(sizes)
    l1d, l2, l3 = (
        sizes.get(level, known if level < last else 0)
        for level, known in enumerate(default[:3], start=1)
    )
    return Caches(l1d, l2, l3, found[0][2] or default.line)


def _read_cache(index: Path) -> tuple[int, int, int] | None:
    """Level, size and line size of one cache; None for instruction caches."""
    try:
        if (index / "type").read_text().strip() == "Instruction":
            return None
        level = int((index / "level").read_text())
        size = parse_size((index / "size").read_text())
        line = int((index / "coherency_line_size").read_text())
    except (OSError, ValueError):
        return None
    return level, size, line
