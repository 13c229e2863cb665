"""The targets that tests compile for: what this machine can run, and a sample of all others."""

from __future__ import annotations

import tilewright as tw
from tilewright.target import why_not_here

#: Processors of every kind that schedules tell apart: widths of vectors, registers, instructions.
CPUS = (
    "skylake-avx512",
    "cascadelake",
    "sapphirerapids",
    "haswell",
    "znver4",
    "neoverse-n1",
    "apple-m1",
)
CORES = (1, 2, 16)
#: Without AVX-512, without AVX2; without dot products.
_NARROWER = ("haswell", "x86-64", "cortex-a72")


def runs_here(target: str) -> bool:
    """Whether code for the target runs on this machine."""
    made = tw.Target.of(target)
    return not why_not_here(made.triple, made.features)


def native_targets() -> list[str]:
    """This machine, and older ones whose code it runs as well."""
    return ["llvm", *filter(runs_here, (f"llvm -mcpu={cpu}" for cpu in _NARROWER))]


def without_avx512() -> str:
    """This machine, without the vectors that few tools can read."""
    return "llvm -mattr=-avx512f" if tw.Target.of("llvm").has("avx512f") else "llvm"
